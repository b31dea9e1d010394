"""Exact linear models against scikit-learn, scipy and conditions of optimality."""

import os
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from synthetic import make_problem

from brio_core.cohorts.cohort import Cohort
from brio_core.cohorts.stores import Rois, Series
from brio_core.connectivity.fisher_z import fisher_z_connectivity
from brio_core.evaluation.scores import auc
from brio_core.methods.linear.exact import balanced_weights, gram_matrix, logistic_path, ridge_grid
from brio_core.training.checkpoints import Checkpoints
from brio_core.training.results import fold_logits
from brio_core.training.trainer import train

PENALTIES = [1e-4, 1e-3, 1e-2, 1e-1, 1.0, 1e1, 1e2]
SHAPES = [(40, 300), (60, 60), (200, 7)]


def made_up(n, features, seed=0):
    generator = torch.Generator().manual_seed(seed)
    design = torch.randn(n, features, generator=generator, dtype=torch.float64)
    design = design @ torch.diag(torch.logspace(1, -2, features, dtype=torch.float64))
    score = design[:, 0] + 0.3 * torch.randn(n, generator=generator) * design[:, 0].std() + 2
    return design, (score > 0).long()


@pytest.mark.parametrize(("n", "features"), SHAPES)
def test_logistic_equals_scikit_learn(n, features):
    linear_model = pytest.importorskip("sklearn.linear_model")
    design, label = made_up(n, features)
    weights, intercepts = logistic_path(design, label, PENALTIES)
    for index, strength in enumerate(PENALTIES):
        model = linear_model.LogisticRegression(C=strength, tol=1e-10, max_iter=100_000)
        model.fit(design.numpy(), label.numpy())
        scale = np.abs(model.coef_).max()
        np.testing.assert_allclose(weights[index], model.coef_[0], atol=1e-4 * scale)
        np.testing.assert_allclose(intercepts[index], model.intercept_[0], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("n", "features"), SHAPES)
def test_logistic_equals_scipy(n, features):
    from scipy.optimize import minimize

    design, label = made_up(n, features, seed=1)
    weights, intercepts = logistic_path(design, label, PENALTIES)
    extended = np.c_[design.numpy(), np.ones(n)]
    for index, strength in enumerate(PENALTIES):

        def objective(weight, strength=strength):
            margin = extended @ weight
            loss = np.logaddexp(0, margin) - label.numpy() * margin
            residual = 1 / (1 + np.exp(-margin)) - label.numpy()
            gradient = strength * extended.T @ residual + np.r_[weight[:-1], 0]
            return strength * loss.sum() + weight[:-1] @ weight[:-1] / 2, gradient

        ours = np.r_[weights[index].numpy(), intercepts[index]]
        found = minimize(
            objective, np.zeros(features + 1), jac=True, method="L-BFGS-B",
            options={"maxiter": 50_000, "maxfun": 100_000, "ftol": 1e-16, "gtol": 1e-10},
        )  # fmt: skip
        assert objective(ours)[0] <= found.fun * (1 + 1e-10)
        np.testing.assert_allclose(ours, found.x, atol=1e-4 * np.abs(found.x).max())


@pytest.mark.parametrize(("n", "features"), SHAPES)
def test_logistic_gradient_vanishes(n, features):
    design, label = made_up(n, features, seed=2)
    weights, intercepts = logistic_path(design, label, PENALTIES)
    for weight, intercept, strength in zip(weights, intercepts, PENALTIES):
        residual = torch.sigmoid(design @ weight + intercept) - label
        gradient = strength * (design.T @ residual) + weight
        summands = strength * (design.T.abs() @ residual.abs()) + weight.abs()
        assert float((gradient / summands).abs().max()) < 1e-6
        assert float(residual.sum().abs() / residual.abs().sum()) < 1e-6


def test_an_order_of_penalties_does_not_matter():
    design, label = made_up(40, 300)
    forth, _ = logistic_path(design, label, PENALTIES)
    back, _ = logistic_path(design, label, PENALTIES[::-1])
    largest = forth.abs().amax(1, keepdim=True)
    torch.testing.assert_close(forth / largest, back.flip(0) / largest, rtol=0, atol=1e-5)


def test_a_tiny_c_leaves_the_intercept_at_the_log_odds():
    design, label = made_up(60, 300)
    weights, intercepts = logistic_path(design, label, [1e-12])
    share = label.double().mean()
    torch.testing.assert_close(intercepts[0], torch.log(share / (1 - share)))
    assert float(weights.abs().max()) < 1e-8


def test_a_constant_feature_gets_no_weight():
    design, label = made_up(40, 300)
    design[:, 7] = 0
    assert float(logistic_path(design, label, PENALTIES)[0][:, 7].abs().max()) == 0
    weights, *_ = ridge_grid(
        design, 2 * label - 1, torch.ones(40), torch.ones(1, 300).double(), [1e-2]
    )
    assert float(weights[0, :, 7].abs().max()) == 0


@pytest.mark.parametrize("n", [1, 3, 64, 65, 301])
def test_the_gram_matrix_is_exactly_symmetric(n):
    design = made_up(301, 30)[0][:n]
    gram = gram_matrix(design)
    assert torch.equal(gram, gram.T)
    torch.testing.assert_close(gram, design @ design.T)


@pytest.mark.parametrize(("n", "features"), SHAPES)
def test_ridge_equals_scikit_learn(n, features):
    linear_model = pytest.importorskip("sklearn.linear_model")
    design, label = made_up(n, features)
    target = 2.0 * label - 1
    sample = torch.rand(n, generator=torch.Generator().manual_seed(3)).double() + 0.1
    scales = torch.stack([torch.ones(features), torch.linspace(0, 1, features)]).double()
    penalties = [1e6, 1e3, 1.0, 1e-2]
    weights, intercepts, _ = ridge_grid(design, target, sample, scales, penalties)
    for set_of_weights, set_of_intercepts, scale in zip(weights, intercepts, scales):
        for weight, intercept, strength in zip(set_of_weights, set_of_intercepts, penalties):
            model = linear_model.Ridge(strength, solver="cholesky")
            model.fit((design * scale).numpy(), target.numpy(), sample.numpy())
            largest = np.abs(model.coef_).max()
            np.testing.assert_allclose(weight, model.coef_, rtol=1e-6, atol=1e-7 * largest)
            np.testing.assert_allclose(intercept, model.intercept_, rtol=1e-6)


def test_a_weight_of_two_is_a_subject_twice():
    design, label = made_up(30, 100)
    target, scales = 2 * label - 1, torch.ones(1, 100).double()
    sample = torch.ones(30).index_fill(0, torch.arange(5), 2.0)
    twice = torch.cat([torch.arange(30), torch.arange(5)])
    weighted = ridge_grid(design, target, sample, scales, [1.0])
    repeated = ridge_grid(design[twice], target[twice], torch.ones(35), scales, [1.0])
    torch.testing.assert_close(weighted[:2], repeated[:2])


def test_balanced_weights_give_every_site_and_class_the_same_total():
    site = torch.tensor([0, 0, 0, 0, 1, 1, 1, 2, 2])
    label = torch.tensor([0, 0, 0, 1, 0, 1, 1, 0, 1])
    weight = balanced_weights(site, label)
    totals = [
        float(weight[(site == one) & (label == two)].sum()) for one in range(3) for two in range(2)
    ]
    np.testing.assert_allclose(totals, 1.5)


def abide():
    """The cohort and its table, from the compact file of the test data."""
    if "BRIO_TEST_DATA" not in os.environ:
        pytest.skip("BRIO_TEST_DATA does not name a folder with the cohort")
    with np.load(Path(os.environ["BRIO_TEST_DATA"]) / "abide_cc200_compact.npz") as stored:
        bold = np.cumsum(stored["bold_delta"], axis=0, dtype=np.int64) * float(stored["step"])
        cuts, label = stored["offsets"], stored["label"].astype(int)
        subjects, site = tuple(stored["subject"].tolist()), stored["site"].astype(object)
    scans = [bold[first:last] for first, last in pairwise(cuts)]
    fc = np.stack([fisher_z_connectivity(scan) for scan in scans]).astype(np.float32)
    rois = Rois.named(f"roi{number}" for number in range(fc.shape[-1]))
    series = Series(subjects, bold.astype(np.float32), cuts, rois, {})
    covariates = np.zeros((len(label), 3), np.float32)
    table = pd.DataFrame({"subject": subjects, "site": site, "label": label, "group": "n/a"})
    return Cohort("abide", subjects, site, fc, series, covariates), table


@pytest.mark.cohort
@pytest.mark.slow
def test_an_independent_run_is_met(tmp_path):
    """73.8 AUC and 67.7 ACC, with the next two sites in alphabetical order as validation."""
    problem, _ = make_problem("linear-correlation", *abide())
    site = problem.data.cohort.site
    sites = sorted(set(site))
    for number, fold in enumerate(problem.data.folds):
        (held_out,) = set(site[fold.test])
        place = sites.index(held_out)
        chosen = [sites[(place + step) % len(sites)] for step in (1, 2)]
        groups = tuple(np.flatnonzero(site == name) for name in chosen)
        rest = np.flatnonzero(~np.isin(site, [held_out, *chosen]))
        problem.data.folds[number] = replace(
            fold, train=rest, validation=np.concatenate(groups), validation_groups=groups
        )
    aucs, accuracies = [], []
    for fold, result in zip(
        problem.data.folds, train(problem, Checkpoints(tmp_path, "x", 1e9), None)
    ):
        logit, label = fold_logits(problem, result, fold)["test"], problem.data.label[fold.test]
        aucs.append(100 * auc(label, logit))
        accuracies.append(100 * np.mean((logit > 0) == label))
    assert np.mean(aucs) == pytest.approx(73.8, abs=0.7)
    assert np.mean(accuracies) == pytest.approx(67.7, abs=1.5)
