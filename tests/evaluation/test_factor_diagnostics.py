"""Diagnostics of BRIO's factors on a trained toy model, against slow readings in float64."""

from itertools import combinations

import numpy as np
import pytest
import torch
from synthetic import make_problem

from brio_core.evaluation.diagnostics.factors import (
    contrast_stability,
    factor_retention,
    factor_scores,
    roi_profile,
    variational_form,
)
from brio_core.evaluation.diagnostics.fold import TrainedFold, diagnose_fold
from brio_core.evaluation.diagnostics.scans import Reestimates
from brio_core.evaluation.scores import auc
from brio_core.methods.brio.qualification import qualify
from brio_core.training.gradient import GradientFit

SETTINGS = {"reestimates": 3, "epsilon": 0.1, "retention_draws": 4, "scan_fractions": [0.5]}


def trained_brio(**overrides):
    problem, _ = make_problem("brio", folds=slice(0, 2), factors=4, **overrides)
    fit = GradientFit(problem, problem.data.folds, 1 << 30)
    fit.run(lambda fit: None, "test")
    states = [{name: value[fold] for name, value in fit.best.items()} for fold in (0, 1)]
    return problem, [problem.restored(*pair, {}) for pair in zip(problem.data.folds, states)]


@pytest.fixture(scope="module")
def brio():
    """A trained BRIO fold and its qualification from the diagnostics' re-estimates."""
    problem, modules = trained_brio()
    scans = problem.data.scans(0)
    data = TrainedFold(modules[0], problem, problem.data.folds[0], Reestimates(scans, 3))
    site, label = data.train
    _, contributions = data.responses("logits", "contributions")
    with torch.no_grad():
        weights = modules[0].classifier.double()
        found = qualify(contributions, site, label, weights)
    return data, contributions, found


def test_contributions_of_full_scans_and_reestimates_add_up_to_the_logits(brio):
    data, contributions, _ = brio
    logits, _ = data.responses("logits", "contributions")
    bias = float(data.module.head.bias.detach())
    torch.testing.assert_close(contributions.sum(-1) / 2 + bias, logits, atol=1e-5, rtol=1e-5)


def test_keeping_all_factors_gives_the_original_predictions_exactly(brio):
    data, _, found = brio
    representation, logits = data.full_scans(data.fold.test, "represent", "logits")
    with torch.no_grad():
        kept = list(
            factor_retention(representation, data.module.head, factor_scores(found), draws=20)
        )
    rankings = [ranking for ranking, _, count, _ in kept if count == 4]
    assert rankings == ["qualification", "relevance", "support", *["random"] * 20]
    for *_, count, again in kept:
        same = bool((again == logits).all())
        assert same if count == 4 else not same


def test_factor_retention_equals_a_sum_over_the_best_factors(brio):
    data, contributions, found = brio
    fold = data.fold
    representation, parts = data.full_scans(fold.test, "represent", "contributions")
    with torch.no_grad():
        kept, again = (
            list(factor_retention(representation, data.module.head, factor_scores(found), draws=2))
            for _ in range(2)
        )
    weights = data.module.classifier.detach().double().numpy()
    scores = slow_scores(contributions.numpy(), *(one.numpy() for one in data.train), weights)
    bias = float(data.module.head.bias.detach())
    for ranking, _, count, logits in kept:
        if ranking == "random":
            continue
        best = np.argsort(-scores[ranking])[:count]
        expected = parts.double().numpy()[:, best].sum(1) / 2 + bias
        np.testing.assert_allclose(logits.numpy(), expected, atol=1e-5)
    # Random orders differ, and the seed brings them back.
    assert all(bool((one[-1] == other[-1]).all()) for one, other in zip(kept, again))


def slow_scores(a, site, label, weights):
    """Qualification, relevance and support of the factors, one loop per index of the paper."""
    sites, n_factors = np.unique(site), a.shape[-1]
    score = np.zeros(n_factors)
    support = np.zeros((len(sites), 2, n_factors))
    for j in range(n_factors):
        contrasts, variances = [], []
        for e in sites:
            own = [a[(site == e) & (label == c), :, j] for c in (0, 1)]
            contrast = own[1][:, 0].mean() - own[0][:, 0].mean()
            contrasts.append(contrast)
            variances.append([np.var(part[:, 0]) for part in own])
            for c in (0, 1):
                change = np.mean((own[c][:, 1:] - own[c][:, :1]) ** 2)
                scale = np.var(own[c][:, 0]) + contrast**2 / 4
                support[e, c, j] = (scale + 1e-8) / (scale + change + 1e-8)
        share = (weights[j] ** 2).sum() / ((weights**2).sum() + 1e-8)
        pooled = np.mean(variances, 0).sum()
        score[j] = share * np.mean(contrasts) ** 2 / (pooled + 1e-8)
    relevance = score / score.sum()
    pairs = [np.sqrt(support[e, c] * support[f, c])
             for e, f in combinations(sites, 2) for c in (0, 1)]  # fmt: skip
    return {
        "qualification": np.mean([relevance * pair for pair in pairs], 0),
        "relevance": relevance,
        "support": np.mean(pairs, 0),
        "weights": np.mean([relevance * pair / (relevance * pair).sum() for pair in pairs], 0),
    }


def test_factor_scores_and_roi_profile_equal_a_slow_reading(brio):
    data, contributions, found = brio
    weights = data.module.classifier.detach().double().numpy()
    slow = slow_scores(contributions.numpy(), *(one.numpy() for one in data.train), weights)
    for name, score in factor_scores(found).items():
        np.testing.assert_allclose(score.numpy(), slow[name], rtol=1e-9)
    assignment = data.module.anchored
    expected = 4 * slow["weights"] @ assignment.double().numpy()
    profile = roi_profile(found, assignment).numpy()
    np.testing.assert_allclose(profile, expected, rtol=1e-4)
    assert profile.sum() == pytest.approx(1)


def test_propositions_hold_and_equal_a_slow_reading(brio):
    data, contributions, found = brio
    site, label = (one.numpy() for one in data.train)
    stable = contrast_stability(contributions, *data.train, found)
    a = contributions.numpy()
    for e in np.unique(site):
        for j in range(4):
            own = [a[(site == e) & (label == c), :, j] for c in (0, 1)]
            contrast = own[1][:, 0].mean() - own[0][:, 0].mean()
            again = own[1][:, 1:].mean() - own[0][:, 1:].mean()
            bound, condition = 0.0, True
            for c in (0, 1):
                change = np.mean((own[c][:, 1:] - own[c][:, :1]) ** 2)
                variance = np.var(own[c][:, 0])
                scale = variance + contrast**2 / 4 + 1e-8
                support = scale / (scale + change)
                bound += np.sqrt(scale * (1 / support - 1))
                kappa = contrast**2 / (4 * (variance + 1e-8))
                condition &= support > (1 + kappa) / (1 + 2 * kappa)
            assert float(stable["contrast"][e, j]) == pytest.approx(contrast)
            assert float(stable["reestimated"][e, j]) == pytest.approx(again)
            assert float(stable["bound"][e, j]) == pytest.approx(bound, rel=1e-6)
            assert bool(stable["condition"][e, j]) == condition
            assert abs(again - contrast) <= bound
            assert not condition or np.sign(again) == np.sign(contrast)
    form = variational_form(found)
    relevance = found.relevance.numpy()
    for pair, one in enumerate(found.pair_support.numpy()):
        for side in (0, 1):
            penalty, alone = (
                float(form["penalty"][pair, side]),
                float(form["relevance_penalty"][pair, side]),
            )
            assert penalty == pytest.approx(-np.log((relevance * one[side]).sum()))
            assert alone == pytest.approx((relevance * np.log(1 / one[side])).sum())
            assert penalty <= alone + 1e-12
            v = np.random.default_rng(pair).dirichlet(np.ones(4))
            objective = (v * np.log(v / relevance)).sum() + (v * np.log(1 / one[side])).sum()
            assert objective >= penalty


def test_only_full_brio_has_qualified_factors(brio):
    data, _, _ = brio
    tables = diagnose_fold(data, SETTINGS)
    assert set(tables) == {
        "folds", "scan-length", "held-out", "retention", "profiles", "contrasts", "penalties",
    }  # fmt: skip
    assert len(tables["retention"]) == 4 * (3 + SETTINGS["retention_draws"])
    assert len(tables["scan-length"]) == 3
    logits = data.full_scans(data.fold.test, "logits")[0]
    whole = auc(data.problem.data.label[data.fold.test], logits.numpy())
    assert {row["test_auc"] for row in tables["retention"] if row["kept"] == 4} == {whole}

    problem, modules = trained_brio(without="RS")
    other = TrainedFold(modules[0], problem, problem.data.folds[0], data.reestimates)
    assert set(diagnose_fold(other, SETTINGS)) == {"folds", "scan-length", "held-out"}
