"""XG-GNN: the step within a step, learnt graphs, and scans of unequal length."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from synthetic import make_cohort, make_problem, settings_of
from torch.func import functional_call, vmap

from brio_core.methods.interface import Batch
from brio_core.methods.layers.series import draw_blend, mix
from brio_core.methods.xg_gnn.layers import variation_within
from brio_core.methods.xg_gnn.method import INNER, OUTER, PREFIX, Propagation, XgGnn
from brio_core.system.errors import BrioError
from brio_core.system.randomness import fold_in
from brio_core.training.batches import schedule
from brio_core.training.gradient import GradientFit

ROIS, FRAMES, SUBJECTS = 8, 40, 4


def make(**overrides):
    torch.manual_seed(0)
    module = XgGnn(settings_of("xg-gnn", **overrides), ROIS, 3)
    module.frame = torch.arange(FRAMES)
    return module.train()


def scans(*frames, longest=FRAMES, seed=0):
    draw = torch.Generator().manual_seed(seed)
    bold = torch.randn(len(frames), longest, ROIS, generator=draw).cumsum(1)
    inside = torch.arange(longest) < torch.tensor(frames)[:, None]
    fc = torch.randn(len(frames), ROIS, ROIS, generator=draw)
    return {"bold": bold * inside[..., None], "frames": torch.tensor(frames), "fc": fc + fc.mT}


def batch_of(module, sites, subjects=SUBJECTS, label=None, seed=0):
    rows = sites * subjects
    features = module.features(scans(*[FRAMES] * rows, seed=seed))
    label = torch.arange(rows) % 2 if label is None else label
    site = torch.arange(sites).repeat_interleave(subjects)
    return Batch(features, label, site, torch.tensor(11))


def rows_of(batch, rows):
    features = {name: value[rows] for name, value in batch.features.items()}
    return Batch(features, batch.label[rows], batch.site[rows], batch.key)


def step(module, batch):
    """The gradient of one iteration of one fold; buffers of the module change."""
    weights = {name: value[None].detach() for name, value in module.named_parameters()}
    buffers = {name: value[None] for name, value in module.named_buffers()}
    features = {name: value[None] for name, value in batch.features.items()}
    stacked = Batch(features, *(value[None] for value in batch[1:]))

    def loss(*given, phase):
        call = lambda *state: functional_call(module, state[:2], ("loss", state[2], phase))  # noqa: E731
        return vmap(call)(*given)

    weights = {name: value.requires_grad_() for name, value in weights.items()}
    slopes, (value, logs) = XgGnn.gradient(module.hyperparameters, loss, weights, buffers, stacked)
    return {name: slope[0] for name, slope in slopes.items()}, (value[0], logs)


def slopes_of(module, batch, phase):
    loss, _ = module.loss(batch, phase)
    names = [name for name, _ in module.named_parameters()]
    return dict(zip(names, torch.autograd.grad(loss, list(module.parameters()))))


def statistics(module):
    """Copies of running statistics."""
    return {
        name: value.clone()
        for name, value in module.named_buffers()
        if not name.startswith(PREFIX) and name != "frame"
    }


def test_without_an_inner_rate_the_step_is_that_of_the_outer_objective():
    module = make(inner_learning_rate=0.0, dropout=0.0)
    batch = batch_of(module, 3)
    found, (value, _) = step(module, batch)
    outer = rows_of(batch, slice(SUBJECTS, None))
    torch.testing.assert_close(value, module.loss(outer, OUTER)[0])
    torch.testing.assert_close(found, slopes_of(make(dropout=0.0), outer, OUTER))


def test_gradients_come_from_adapted_weights_and_statistics_from_the_inner_pass():
    batch = batch_of(make(), 3)
    inner, outer = rows_of(batch, slice(SUBJECTS)), rows_of(batch, slice(SUBJECTS, None))
    module, by_hand = make(inner_learning_rate=1e-3), make()
    optimiser = torch.optim.Adam(by_hand.parameters(), lr=1e-3, weight_decay=1e-4)
    seen = []
    for _ in range(2):
        start = [parameter.detach().clone() for parameter in by_hand.parameters()]
        for parameter, slope in zip(
            by_hand.parameters(), slopes_of(by_hand, inner, INNER).values()
        ):
            parameter.grad = slope
        kept = statistics(by_hand)
        optimiser.step()
        wanted = slopes_of(by_hand, outer, OUTER)
        with torch.no_grad():
            for parameter, value in zip(by_hand.parameters(), start):
                parameter.copy_(value)
            for name, value in kept.items():
                by_hand.get_buffer(name).copy_(value)
        found, _ = step(module, batch)
        torch.testing.assert_close(found, wanted, rtol=1e-3, atol=1e-5)
        torch.testing.assert_close(statistics(module), kept)
        seen.append(kept)
    # Both moments live through all iterations, and so do statistics.
    assert module.inner_adam_steps == 2
    assert not torch.equal(seen[0]["norms.0.running_mean"], seen[1]["norms.0.running_mean"])


def test_the_trainer_applies_the_outer_optimiser_to_the_weights_of_before():
    problem, _ = make_problem("xg-gnn", folds=slice(0, 1), optimiser="adam")
    run = GradientFit(problem, problem.data.folds, memory_budget=1 << 30)
    before = {name: value.clone() for name, value in run.stack.parameters.items()}
    slopes, step = {}, run.optimiser.step
    run.optimiser.step = lambda gradients: slopes.update(gradients) or step(gradients)
    run._step(OUTER)
    weights = {name: value.clone().requires_grad_() for name, value in before.items()}
    s = problem.trial.hyperparameters
    optimiser = torch.optim.Adam(weights.values(), lr=s.learning_rate, weight_decay=s.weight_decay)
    for name, value in weights.items():
        value.grad = slopes[name]
    optimiser.step()
    torch.testing.assert_close(run.stack.parameters, {k: v.detach() for k, v in weights.items()})


@torch.no_grad()
def test_at_the_start_regions_still_differ_after_the_first_layer_but_not_with_the_mean():
    kept, heard = {}, []
    for kind in Propagation.kinds:
        torch.manual_seed(0)
        module = XgGnn(settings_of("xg-gnn", propagation=kind), 40, 3)
        module.frame = torch.arange(FRAMES)
        cohort, _ = make_cohort(n_sites=2, n_rois=40)
        module.propagations[0].register_forward_hook(lambda _, ins, out: heard.append((*ins, out)))
        bold = torch.stack([torch.as_tensor(scan[:FRAMES]) for scan in scans_of(cohort)])
        fc = torch.as_tensor(cohort.fc)
        frames = torch.full((len(fc),), FRAMES)
        module.represent(module.features({"bold": bold, "frames": frames, "fc": fc}))
        fc, _, out = heard.pop()
        # Of what is linear in FC, so that the size of the weights plays no part.
        out = out if module.propagations[0].bias is None else out - module.propagations[0].bias
        plain = fc @ module.propagations[0].weight.T
        kept[kind] = float(between_nodes(out) / between_nodes(plain))
    assert kept["released"] > 0.1 and kept["mean+self"] > 0.1
    assert kept["mean"] < 1e-6


def scans_of(cohort):
    return [cohort.series.scan(row) for row in range(len(cohort.subjects))]


def between_nodes(hidden):
    """The share of between-node variance in all that is there."""
    return hidden.var(-2).mean() / hidden.square().mean()


def test_the_variation_of_graphs_is_that_within_them():
    """Two uniform graphs of unlike size vary over the batch, but neither varies within itself."""
    uniform = torch.ones(2, ROIS, ROIS) * torch.tensor([1.0, 5.0])[:, None, None]
    assert variation_within(uniform) == 0
    halves = uniform.clone()
    halves[:, : ROIS // 2] *= 3
    torch.testing.assert_close(variation_within(halves), halves[0].std() / halves[0].mean())
    module = make(dropout=0.0)
    logged = module.loss(batch_of(module, 3), OUTER)[1]["graph_variation"]
    assert 0 < logged < 0.1


@pytest.mark.parametrize(("sites", "inner"), [(2, 1), (7, 3), (8, 4), (17, 6), (22, 6)])
def test_any_number_of_sites_and_a_small_one_train(sites, inner):
    module = make(subjects_per_site=10)
    sizes = np.full(sites, 12)
    sizes[0] = 6
    site = np.repeat(np.arange(sites), sizes)
    label = torch.as_tensor(np.arange(len(site)) % 2)
    generator = np.random.default_rng(0)
    rows = schedule(module.hyperparameters, site, label.numpy(), 3, generator)
    assert rows.shape == (3, 10 * min(13, sites))
    assert module.hyperparameters.inner_rows(rows.shape[1]) == 10 * inner
    batch = batch_of(module, len(rows[0]) // 10, 10, label[rows[0]])
    slopes, (value, logs) = step(module, batch)
    assert all(torch.isfinite(slope).all() for slope in slopes.values()) and value > 0
    assert (logs["disagreement"] == 0) == (sites == 2)


def test_a_site_of_one_class_adds_no_explanation():
    module = make()
    label = torch.tensor([0] * SUBJECTS + [0, 1] * (SUBJECTS // 2))
    batch = batch_of(module, 2, label=label)
    loss, logs = module.loss(batch, OUTER)
    alone = rows_of(batch, slice(SUBJECTS, None))
    own = make().loss(alone, OUTER)[1]
    torch.testing.assert_close(logs["sparsity"], own["sparsity"])
    assert logs["disagreement"] == 0 and torch.isfinite(loss)
    single = make().loss(rows_of(batch, slice(SUBJECTS)), OUTER)
    assert single[1]["sparsity"] == 0
    torch.testing.assert_close(single[0], 2 * single[1]["risk"])


def test_only_inner_sites_are_mixed_up():
    plain, mixing = make(mixup=False, dropout=0.0), make(mixup=True, dropout=0.0)
    batch = batch_of(plain, 2)
    assert torch.equal(plain.loss(batch, OUTER)[0], mixing.loss(batch, OUTER)[0])
    assert plain.loss(batch, INNER)[0] != mixing.loss(batch, INNER)[0]


def test_scans_of_unequal_length_give_what_each_alone_would():
    module = make().double().eval()
    frames = (34, 37, FRAMES, 90)
    inputs = {
        name: value.double() if value.is_floating_point() else value
        for name, value in scans(*frames, longest=90).items()
    }
    together = module.logits(module.features(inputs))
    for row, count in enumerate(frames):
        alone = {name: value[row : row + 1] for name, value in inputs.items()}
        alone["bold"] = alone["bold"][:, :count]
        own = make().double().eval()
        # As if the fold's scans were no longer than this one.
        own.frame = torch.arange(min(count, FRAMES))
        for model in (module, own):
            torch.testing.assert_close(
                model.logits(model.features(alone))[0], together[row], rtol=1e-9, atol=1e-9
            )


def test_a_scan_that_is_cut_very_short_is_mirrored():
    module = make().eval()
    inputs = scans(20, 30)
    long = {**inputs, "frames": torch.full((2,), 34), "bold": inputs["bold"].clone()}
    for row, count in enumerate((20, 30)):
        own = np.pad(inputs["bold"][row, :count], ((0, 34 - count), (0, 0)), mode="reflect")
        long["bold"][row, :34] = torch.as_tensor(own)
    found = module.logits(module.features(inputs))
    torch.testing.assert_close(found, module.logits(module.features(long)))


def test_frames_beyond_the_fold_length_are_not_read():
    module = make().eval()
    inputs = scans(60, 60, longest=60)
    changed = {**inputs, "bold": inputs["bold"].clone()}
    changed["bold"][:, FRAMES:] = 5
    assert torch.equal(
        module.logits(module.features(inputs)), module.logits(module.features(changed))
    )


def test_the_representation_comes_before_the_last_layer():
    module = make().eval()
    features = module.features(scans(FRAMES, FRAMES, FRAMES))
    represented = module.represent(features)
    assert represented.shape == (3, 32)
    logits = module.head(represented)
    torch.testing.assert_close(module.logits(features), logits[:, 1] - logits[:, 0])


def test_the_length_is_that_of_the_shortest_training_scan():
    settings = settings_of("xg-gnn")
    assert XgGnn.scan_length(settings, np.array([146, 78, 300])) == 78
    assert XgGnn.scan_length(settings, np.array([146, 300])) == 100


def test_too_short_scans_and_a_single_site_are_errors():
    cohort, table = make_cohort()
    short = int(np.argmin(cohort.series.frames))
    problem, _ = make_problem("xg-gnn", cohort, table)
    picky = type("Picky", (XgGnn,), {"min_frames": 1000})
    problem = replace(problem, trial=replace(problem.trial, method=picky))
    with pytest.raises(BrioError, match=f"{cohort.subjects[0]} has .* frames, but xg-gnn needs"):
        problem.inputs  # noqa: B018
    with pytest.raises(BrioError, match=f"{cohort.subjects[short]} has"):
        cohort.series.require_frames(int(cohort.series.frames[short]) + 1, "xg-gnn")
    with pytest.raises(BrioError, match="two or more"):
        XgGnn(settings_of("xg-gnn"), ROIS, 1)


def test_every_site_is_mixed_within_itself():
    module = make(dropout=0.0)
    batch = batch_of(module, 2)
    seen = []
    module._encode = lambda features, key: (
        seen.append(features) or XgGnn._encode(module, features, key)
    )
    module.loss(batch, INNER)
    key = fold_in(batch.key, 0)
    for site in range(2):
        blend = draw_blend(fold_in(key, site), SUBJECTS)
        rows = slice(site * SUBJECTS, (site + 1) * SUBJECTS)
        for name in ("series", "fc"):
            assert torch.equal(seen[0][name][site], mix(batch.features[name][rows], blend))
