"""CORE: the scaffold that sites agree on, its sharing between folds, descriptors and gates."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from synthetic import make_cohort, make_problem, settings_of

from brio_core.cohorts.stores import Rois
from brio_core.connectivity.graphs import upper_triangle
from brio_core.methods.core import scaffold
from brio_core.methods.core.method import Core
from brio_core.methods.core.scaffold import Group, resamples, scaffold_statistics, site_groups
from brio_core.methods.interface import Batch
from brio_core.methods.training_scans import TrainView
from brio_core.training.gradient import GradientFit

ROIS, EDGES, WANTED = 10, 45, 8
PLANTED, FLIPPED = [3, 11, 27, 40], 20


def population(n_sites=6, per_class=12, seed=0):
    """FC (N, P, P), group and covariates; PLANTED edges have an effect, FLIPPED has two."""
    generator = torch.Generator().manual_seed(seed)
    site = torch.arange(n_sites).repeat_interleave(2 * per_class)
    label = torch.arange(2).repeat_interleave(per_class).repeat(n_sites)
    edges = 0.3 * torch.randn(len(site), EDGES, generator=generator)
    edges[:, PLANTED] += 0.4 * label[:, None]
    edges[:, FLIPPED] += 0.8 * label * (2 * (site % 2) - 1)
    covariates = torch.randn(len(site), 3, generator=generator)
    return squares(edges), Group(torch.arange(len(site)), site, label), covariates


def squares(edges):
    fc = torch.zeros(len(edges), ROIS, ROIS)
    first, second = torch.triu_indices(ROIS, ROIS, 1)
    fc[:, first, second] = edges
    return fc + fc.mT


def statistics(fc, group, covariates, count=20):
    inputs = lambda rows: {"fc": fc[rows], "covariates": covariates[rows]}  # noqa: E731
    return scaffold_statistics([group], inputs, count, WANTED)[0]


def strongest(found):
    return set(found["stability"].topk(len(PLANTED)).indices.tolist())


def view(fc, group, covariates, frames=60, seed=0):
    generator = torch.Generator().manual_seed(seed)
    bold = torch.randn(len(fc), frames, ROIS, generator=generator)
    return TrainView(
        site=group.site,
        label=group.label,
        n_sites=len(group.site.unique()),
        n_rois=ROIS,
        fc=fc,
        bold=bold,
        frames=torch.full((len(fc),), frames),
        covariates=covariates,
        rois=Rois.named(f"roi{index}" for index in range(ROIS)),
    )


def prepared(train, **overrides):
    torch.manual_seed(0)
    module = Core(settings_of("core", **overrides), ROIS, train.n_sites)
    module.prepare(train)
    return module, module.features({need: getattr(train, need) for need in Core.needs})


def test_an_offset_per_site_and_edge_changes_nothing():
    fc, group, covariates = population()
    plain = statistics(fc, group, covariates)
    offset = torch.randn(6, EDGES, generator=torch.Generator().manual_seed(1))
    moved = statistics(fc + squares(offset)[group.site], group, covariates)
    torch.testing.assert_close(moved["effect"], plain["effect"], rtol=1e-3, atol=1e-4)
    assert torch.equal(moved["stability"], plain["stability"])
    states = [
        prepared(view(x, group, covariates))[0] for x in (fc, fc + squares(offset)[group.site])
    ]
    for name in ("first", "second", "kept"):
        assert torch.equal(*(getattr(module, name) for module in states))


def test_planted_edges_are_recovered_and_one_that_flips_between_sites_is_not():
    fc, group, covariates = population()
    found = statistics(fc, group, covariates)
    assert strongest(found) == set(PLANTED)
    assert found["stability"][PLANTED].min() > 0.9 and found["stability"][FLIPPED] < 0.2
    torch.testing.assert_close(found["effect"][PLANTED], torch.full((4,), 0.4), atol=0.1, rtol=0)
    effects = upper_triangle(fc)[:, FLIPPED]
    first = group.site == 0
    assert (
        effects[first & (group.label == 0)].mean() - effects[first & (group.label == 1)].mean()
        > 0.5
    )


def test_one_gross_outlier_per_site_removes_no_planted_edge():
    fc, group, covariates = population()
    edges = upper_triangle(fc)
    # A control with an effect a hundred times as large.
    edges[torch.arange(6) * 24] += 40
    found = statistics(squares(edges), group, covariates, count=50)
    assert found["stability"][PLANTED].min() >= 0.5
    assert set(PLANTED) <= set(found["stability"].topk(WANTED).indices.tolist())


def test_a_covariate_does_not_pass_for_a_diagnosis():
    fc, group, covariates = population()
    # Age differs between the classes and moves an edge that the diagnosis does not move.
    covariates[:, 0] += 1.5 * group.label
    edges = upper_triangle(fc)
    edges[:, 30] += 0.4 * covariates[:, 0]
    found = statistics(squares(edges), group, covariates)
    assert strongest(found) == set(PLANTED)
    torch.testing.assert_close(found["slopes"][30, 0], torch.tensor(0.4), atol=0.1, rtol=0)


def test_resamples_stay_within_site_and_class_and_belong_to_their_subjects():
    _, group, _ = population(n_sites=2)
    draws = resamples(group, 5)
    assert np.array_equal(draws[0], np.arange(48))
    for values in (group.site, group.label):
        assert (values.numpy()[draws] == values.numpy()).all()
    assert len(np.unique(draws[1:], axis=0)) == 5
    assert np.array_equal(draws, resamples(group, 5))
    assert not np.array_equal(draws, resamples(group._replace(rows=group.rows + 1), 5))


def test_sites_without_enough_of_both_classes_are_left_out():
    site = torch.tensor([0] * 10 + [1] * 10 + [2] * 6)
    label = torch.tensor([0, 1] * 13)
    fold = Group(torch.arange(26), site, label)
    assert [len(group.rows) for group in site_groups(fold)] == [10, 10]
    few = Group(*(part[10:] for part in fold))
    (everyone,) = site_groups(few)
    assert everyone is few


@pytest.mark.parametrize("case", ["all male", "site of six", "unknown", "two sites", "tiny sites"])
def test_what_is_missing_leaves_results_finite(case):
    n_sites, per_class = {"two sites": (2, 12), "tiny sites": (3, 2)}.get(case, (3, 8))
    fc, group, covariates = population(n_sites, per_class)
    covariates[:, 1] = (covariates[:, 1] > 0).float()
    if case == "all male":
        covariates[group.site == 0, 1] = 1.0
    if case == "site of six":
        chosen = (group.site > 0) | (torch.arange(len(fc)) % 16 % 8 < 3)
        fc, covariates = fc[chosen], covariates[chosen]
        site, label = group.site[chosen], group.label[chosen]
        group = Group(torch.arange(len(fc)), site, label)
    if case == "unknown":
        covariates[::3, 0], covariates[:, 2] = torch.nan, torch.nan
    module, features = prepared(view(fc, group, covariates))
    assert all(torch.isfinite(value).all() for value in module.state_dict().values())
    assert torch.isfinite(module.eval().logits(features)).all()
    assert module.kept.sum() >= len(module.kept) // 4


def share_problem(cohort, table, **options):
    return make_problem("core", cohort, table, **options)[0]


def test_every_site_is_regressed_once_for_all_folds(monkeypatch):
    cohort, table = make_cohort(per_class=6)
    asked, regressions = [], scaffold.regressions
    monkeypatch.setattr(
        scaffold,
        "regressions",
        lambda group, *rest: asked.append(group) or regressions(group, *rest),
    )
    problem = share_problem(cohort, table)
    together = problem.shared_statistics
    assert len(asked) == 6
    alone = share_problem(cohort, table, folds=slice(2, 3)).shared_statistics
    (name,) = alone
    for key, value in alone[name].items():
        assert torch.equal(value, together[name][key])


def test_a_fold_pools_nothing_of_validation_and_test_sites():
    cohort, table = make_cohort(per_class=6)
    problem = share_problem(cohort, table)
    fold = problem.data.folds[0]
    outside = np.setdiff1d(np.arange(len(cohort.subjects)), fold.train)
    changed, _ = make_cohort(per_class=6, seed=1)
    fc, covariates = cohort.fc.copy(), cohort.covariates.copy()
    fc[outside], covariates[outside] = changed.fc[outside], changed.covariates[outside]
    other = share_problem(replace(cohort, fc=fc, covariates=covariates), table)
    other.data.label[outside] = 1 - other.data.label[outside]
    ours, theirs = (p.shared_statistics for p in (problem, other))
    for key, value in ours[fold.name].items():
        assert torch.equal(value, theirs[fold.name][key])
    last = problem.data.folds[-1].name
    assert not torch.equal(ours[last]["score"], theirs[last]["score"])


def test_gates_start_at_the_clipped_prior_and_differ_after_a_step():
    module, features = prepared(view(*population()))
    prior = module.priors[:, 0].clamp(0.05, 0.95)
    logits = module.encode(features)[1]
    torch.testing.assert_close(logits.sigmoid(), prior[:, None].expand_as(logits))
    assert module.gate_divergence(logits).abs() < 1e-6
    label = torch.arange(len(logits.T)) % 2
    optimiser = torch.optim.SGD(module.parameters(), lr=1.0)
    module.loss(Batch(features, label, label, torch.tensor(0)), "train")[0].backward()
    optimiser.step()
    after = module.encode(features)[1].sigmoid()
    assert after.std(1).min() > 0 and module.gate_divergence(after.logit()) > 0


def test_the_scaffold_drops_unstable_edges_but_not_below_a_quarter():
    train = view(*population())
    module, features = prepared(train, bootstraps=20, scaffold_edges=20)
    size = int(module.kept.sum())
    assert 5 <= size < 20 and module.kept[:size].all()
    stability = module.priors[:size, 0]
    assert (stability[5:] >= 0.5).all() and not module.priors[size:].any()
    # What fills the scaffold up is heard by nobody.
    noise = {"edges": features["edges"].clone()}
    noise["edges"][:, size:] = 7.0
    torch.testing.assert_close(module.logits(noise), module.logits(features))
    strict, _ = prepared(train, bootstraps=20, scaffold_edges=20, least_stability=1.1)
    assert strict.kept.sum() == 5


def test_folds_with_scaffolds_of_different_size_train_together():
    cohort, table = make_cohort(per_class=6)
    problem = share_problem(cohort, table, epochs=3, least_stability=0.7)
    run = GradientFit(problem, problem.data.folds, memory_budget=1 << 30)
    assert len(run.stack.buffers["kept"].sum(1).unique()) > 1
    run.run(lambda _: None, "test")
    assert np.isfinite(run.history[-1]["loss"]).all()


def test_descriptors_are_standardised_on_training_subjects_and_constant_ones_left_out():
    train = view(*population())
    train.fc[:, 0, 1] = train.fc[:, 1, 0] = 0.0
    module, features = prepared(train, scaffold_edges=EDGES)
    varying = module.scale > 0
    torch.testing.assert_close(
        features["edges"].mean(0), torch.zeros_like(module.mean), atol=1e-4, rtol=0
    )
    deviation = features["edges"].std(0, correction=0)
    torch.testing.assert_close(deviation[varying], torch.ones(int(varying.sum())))
    assert not features["edges"][:, ~varying].any()


def test_covariates_are_removed_from_the_static_edge_only_where_known():
    fc, group, covariates = population()
    edges = upper_triangle(fc) + 0.5 * covariates[:, :1]
    module, _ = prepared(view(squares(edges), group, covariates))
    inputs = {
        "fc": squares(edges)[:2],
        "bold": torch.randn(2, 60, ROIS),
        "frames": torch.tensor([60, 60]),
        "covariates": covariates[:2].clone(),
    }
    inputs["covariates"][1] = torch.nan
    static = module.describe(inputs)[..., 0]
    plain = inputs["fc"][:, module.first, module.second]
    away = covariates[0] - module.covariate_mean
    torch.testing.assert_close(static[0], plain[0] - module.slopes @ away)
    assert torch.equal(static[1], plain[1])
    torch.testing.assert_close(module.slopes[:, 0].mean(), torch.tensor(0.5), atol=0.05, rtol=0)


def test_resamples_are_pooled_with_the_precision_of_the_full_sample():
    """Their own standard errors vanish where a few different subjects are fitted exactly."""
    fc, group, covariates = population(n_sites=2)
    groups = [
        scaffold.regressions(one, fc[one.rows], covariates[one.rows], 3)
        for one in site_groups(group)
    ]
    effect, score = scaffold.pool(groups)
    (one, other), weights = groups, [1 / part.variance for part in groups]
    total = weights[0] + weights[1]
    wanted = (one.effect * weights[0] + other.effect * weights[1]) / total
    torch.testing.assert_close(effect, wanted)
    agree = one.effect.sign() == other.effect.sign()
    # Two sites of one size: where they disagree, half of the weight is against the effect.
    torch.testing.assert_close(score, wanted.abs() * total.sqrt() * agree, atol=1e-5, rtol=1e-5)


def test_edges_may_be_regressed_in_any_number_of_parts(monkeypatch):
    fc, group, covariates = population(n_sites=2)
    whole = statistics(fc, group, covariates)
    monkeypatch.setitem(scaffold.VALUES_AT_ONCE, "cpu", 21 * 24 * 7)
    parts = statistics(fc, group, covariates)
    torch.testing.assert_close(parts["effect"], whole["effect"])
    assert torch.equal(parts["stability"], whole["stability"])
