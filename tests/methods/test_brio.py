"""BRIO's own promises: the factor model, anchoring, qualification, variants."""

import math

import numpy as np
import pytest
import torch
from synthetic import make_cohort, make_problem, settings_of
from torch.nn import functional

from brio_core.connectivity.block_length import clipped_block_length
from brio_core.connectivity.fisher_z import fisher_z_connectivity
from brio_core.connectivity.reestimation import block_indices, refresh_keys, subject_keys
from brio_core.methods.brio.qualification import qualify
from brio_core.system.errors import BrioError
from brio_core.training.gradient import GradientFit

BUDGET = 1 << 30


@pytest.fixture(scope="module")
def trained():
    """A fit after all phases, and the parameters as they were when warm-up ended."""
    problem, _ = make_problem("brio")
    run = GradientFit(problem, problem.data.folds, BUDGET)
    kept = {}

    def keep(fit):
        if fit.epoch == fit.hyperparameters.warmup_epochs:
            kept.update({name: value.clone() for name, value in fit.stack.parameters.items()})

    run.run(keep, "test")
    return run, kept


def slow_logit(module, fc):
    """One subject, loops and float64, straight from the equations."""
    settings = module.hyperparameters
    support, fc = module.support.numpy(), fc.double().numpy()
    state = {name: value.detach().double().numpy() for name, value in module.named_parameters()}
    p = len(fc)
    graph = np.where(support, fc, 0.0)
    channels = []
    for part in (np.maximum(graph, 0), np.maximum(-graph, 0)):
        degree = part.sum(1)
        scaled = np.zeros_like(part)
        for u in range(p):
            for v in range(p):
                if part[u, v] > 0:
                    scaled[u, v] = part[u, v] / math.sqrt(degree[u] * degree[v])
        channels.append(scaled)
    d = support.sum(1)
    positive, negative = np.maximum(graph, 0).sum(1), np.maximum(-graph, 0).sum(1)
    descriptor = np.stack([positive / d, negative / d, np.sqrt((graph**2).sum(1) / d)], 1)
    gelu = lambda x: functional.gelu(torch.as_tensor(x)).numpy()  # noqa: E731
    nodes = np.concatenate([state["encoder.roi_embedding"], descriptor], 1)
    hidden = gelu(nodes @ state["encoder.enter.weight"].T + state["encoder.enter.bias"])
    width = settings.hidden
    for layer in range(settings.layers):
        name = f"encoder.layers.{layer}"
        messages = state[f"{name}.messages.weight"]
        total = hidden @ state[f"{name}.own.weight"].T
        total += channels[0] @ (hidden @ messages[:width].T)
        total += channels[1] @ (hidden @ messages[width:].T)
        value = hidden + gelu(total)
        centred = value - value.mean(1, keepdims=True)
        value = centred / np.sqrt((centred**2).mean(1, keepdims=True) + 1e-5)
        hidden = value * state[f"{name}.norm.weight"] + state[f"{name}.norm.bias"]
    logit = state["head.bias"][0]
    for j in range(settings.factors):
        pooled = settings.factors * sum(module.anchored[j, u].item() * hidden[u] for u in range(p))
        projected = state["factor_map.project.weight"] @ pooled
        projected /= np.linalg.norm(projected)
        wide = gelu(state["factor_map.widen.weight"] @ projected + state["factor_map.widen.bias"])
        factor = state["factor_map.narrow.weight"] @ wide + state["factor_map.narrow.bias"]
        factor /= np.linalg.norm(factor)
        block = state["head.weight"][0].reshape(settings.factors, -1)[j]
        logit += block @ factor / math.sqrt(settings.factors)
    return logit


def single(run, fold):
    """The trained module of one fold."""
    module = run.problem.module(run.folds[fold])
    module.load_state_dict({name: value[fold] for name, value in run.stack.state().items()})
    return module.eval()


def test_logit_equals_a_slow_reading_of_the_equations(trained):
    run, _ = trained
    module, fc = single(run, 0), run.problem.inputs["fc"]
    with torch.no_grad():
        logits = module.logits(module.features({"fc": fc[:3]}))
    for index in range(3):
        assert float(logits[index]) == pytest.approx(slow_logit(module, fc[index]), abs=2e-5)


def test_contributions_add_up_to_the_logit(trained):
    run, _ = trained
    module = single(run, 1)
    features = module.features(run.problem.inputs)
    total = module.contributions(features).sum(-1) / module.hyperparameters.factors**0.5
    torch.testing.assert_close(total + module.head.bias, module.logits(features))
    assert (module.contributions(features).abs() <= module.classifier.norm(dim=-1) + 1e-5).all()


def test_assignment_is_frozen_after_warm_up_while_roi_embeddings_go_on(trained):
    run, at_warm_up = trained
    for name, value in run.stack.parameters.items():
        assert torch.equal(value, at_warm_up[name]) == name.startswith("assignment."), name
    # The cached matrix is that of the end of warm-up, not one of moved embeddings.
    assert not torch.allclose(run.stack.buffers["anchored"], run.stack.call("assign"), atol=1e-6)


def test_refresh_equals_qualification_of_explicit_reestimates(trained):
    run, _ = trained
    problem, method, settings = run.problem, run.method, run.hyperparameters
    run.scans.refresh.fill_(5)
    method.refresh(run.stack, run.scans, settings)
    for index in (0, 3):
        fold, module = run.folds[index], single(run, index)
        contributions = []
        for row in fold.train:
            subject, scan = problem.data.cohort.subjects[row], problem.data.cohort.series.scan(row)
            length = clipped_block_length(fold.block_length, len(scan))
            keys = refresh_keys(subject_keys("toy", [subject], 0), 4, 5, settings.reestimates)[0]
            draws = block_indices(len(scan), length, keys).numpy()
            matrices = [scan, *(scan[draw] for draw in draws)]
            fc = np.stack([fisher_z_connectivity(part.astype(np.float64)) for part in matrices])
            with torch.no_grad():
                contributions.append(module.contributions_of_fc(torch.as_tensor(fc).float()))
        site = np.unique(problem.data.cohort.site[fold.train], return_inverse=True)[1]
        expected = qualify(
            torch.stack(contributions).double(),
            torch.as_tensor(site),
            torch.as_tensor(problem.data.label[fold.train]),
            module.classifier.detach().double(),
        )
        found = run.stack.buffers["weight_matrix"][index].double()
        torch.testing.assert_close(found, expected.weight_matrix, rtol=1e-3, atol=1e-4)
        found = run.stack.buffers["strength_matrix"][index].double()
        torch.testing.assert_close(found, expected.strength_matrix, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("without", ["none", "RS", "TR", "SM", "SF", "QG"])
def test_variants_differ_in_weights_and_strength_only(without):
    problem, _ = make_problem("brio", without=without, variant="brio")
    run = GradientFit(problem, problem.data.folds[:2], BUDGET)
    run.run(lambda _: None, "test")
    weight, strength = run.stack.buffers["weight_matrix"], run.stack.buffers["strength_matrix"]
    others = ~torch.eye(strength.shape[1], dtype=torch.bool)
    relevance = run.stack.buffers["relevance"][:, None, None, None].expand_as(weight)
    if without == "QG":
        torch.testing.assert_close(weight, torch.full_like(weight, 0.5))
    if without in ("RS", "SF"):
        torch.testing.assert_close(weight, relevance)
    if without in ("none", "TR", "SM"):
        assert not torch.allclose(weight, relevance, atol=1e-6)
    if without in ("RS", "SM", "QG"):
        assert (strength[:, others] == 1).all()
    else:
        assert (strength[:, others] < 1).all() and (strength[:, others] > 0).all()
    assert run.history[-1]["alignment"][0] > 0
    assert run.history[0]["alignment"][0] == 0


def test_no_alignment_without_lambda():
    problem, _ = make_problem("brio", lambda_env=0.0)
    run = GradientFit(problem, problem.data.folds[:1], BUDGET)
    run.run(lambda _: None, "test")
    assert all(epoch["alignment"][0] == 0 for epoch in run.history)
    assert (run.stack.buffers["strength_matrix"] == 0).all()


def test_folds_with_other_block_lengths_get_other_reestimates():
    problem, _ = make_problem("brio")
    fits = []
    for lengths in ((4.0, 4.0), (4.0, 9.0)):
        folds = [
            type(f)(**{**vars(f), "block_length": length})
            for f, length in zip(problem.data.folds, lengths)
        ]
        run = GradientFit(problem, folds, BUDGET)
        run.stack.buffers["anchored"].copy_(run.stack.call("assign"))
        run.method.refresh(run.stack, run.scans, run.hyperparameters)
        fits.append(run.stack.buffers["strength_matrix"].clone())
    assert torch.equal(fits[0][0], fits[1][0])
    assert not torch.equal(fits[0][1], fits[1][1])


def test_permuting_subjects_changes_nothing_beyond_rounding():
    cohort, table = make_cohort()
    problem, _ = make_problem("brio", cohort, table)
    fold = problem.data.folds[0]
    support = problem.module(fold).support
    shuffled = type(fold)(
        **{**vars(fold), "train": np.random.default_rng(0).permutation(fold.train)}
    )
    assert torch.equal(support, problem.module(shuffled).support)


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        ({"sampler": "shuffled"}, "must be 'balanced'"),
        ({"factors": 3}, "multiple of factors"),
        ({"first_epoch": 2}, "must come after warmup_epochs"),
        ({"without": "XY"}, "must be one of"),
        ({"lamda": 1.0}, "unknown hyperparameter 'lamda'"),
        ({"epochs": "many"}, "should be int"),
        ({"epochs": 0}, "epochs is 0, but must be above 0"),
        ({"learning_rate": -0.01}, "learning_rate is -0.01, but must not be below 0"),
        ({"patience": -3}, "patience is -3, but must not be below 0"),
    ],
)
def test_bad_settings_are_named(overrides, words):
    with pytest.raises(BrioError, match=words):
        settings_of("brio", **overrides)
