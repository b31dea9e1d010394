"""Diagnostics against slow readings of their equations, and on trained toy cells."""

import sys
from itertools import combinations

import numpy as np
import pandas as pd
import pytest
import torch
import yaml
from synthetic import METHODS, make_cohort, make_problem

from brio_core.connectivity.fisher_z import fisher_z_connectivity
from brio_core.evaluation.diagnostics.fold import TrainedFold, diagnose_fold
from brio_core.evaluation.diagnostics.mismatch_axes import predictive_variation, site_discrepancy
from brio_core.evaluation.diagnostics.scans import Reestimates, shortened, window
from brio_core.evaluation.mismatch import discordance_rate, mismatches
from brio_core.methods.interface import PathMethod
from brio_core.methods.layers.transport import sinkhorn_divergence
from brio_core.training.results import write_records

SETTINGS = {"reestimates": 3, "epsilon": 0.1, "retention_draws": 4, "scan_fractions": [0.5]}


def diagnosed_methods():
    """Methods whose models the diagnostics can look at."""
    found = {path.stem: yaml.safe_load(path.read_text()) for path in sorted(METHODS.glob("*.yaml"))}
    return [name for name, method in found.items()
            if method.get("diagnose", True)]  # fmt: skip


def sites_and_labels(n_sites=4, per_cell=3):
    site = torch.arange(n_sites).repeat_interleave(2 * per_cell)
    label = torch.arange(2).repeat_interleave(per_cell).repeat(n_sites)
    return site, label


def random(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_site_discrepancy_equals_a_loop_over_pairs_and_classes():
    site, label = sites_and_labels()
    values = random(len(site), 5)
    unit = values / values.norm(dim=1, keepdim=True)
    total = 0.0
    for e in range(4):
        for f in range(e + 1, 4):
            for c in (0, 1):
                one, other = (unit[(site == s) & (label == c)] for s in (e, f))
                total += float(sinkhorn_divergence(one, other, 0.1, 500))
    assert float(site_discrepancy(values, site, label, 0.1)) == pytest.approx(total / 12, rel=1e-4)


@pytest.mark.parametrize("base, entries", [(2, 2**25), (1024, 2**25), (2, 1)])
def test_sites_of_unequal_sizes_are_padded_with_points_of_no_mass(base, entries, monkeypatch):
    """However they share batches; a site that lacks a class has no part in that class."""
    module = sys.modules[site_discrepancy.__module__]
    monkeypatch.setitem(module.SAME_SIZE, "cpu", base)
    monkeypatch.setattr(module, "ENTRIES_AT_ONCE", entries)
    sizes = [(1, 2), (9, 4), (3, 17), (5, 0)]
    site = torch.cat([torch.full((sum(pair),), e) for e, pair in enumerate(sizes)])
    label = torch.cat([torch.arange(2).repeat_interleave(torch.tensor(pair)) for pair in sizes])
    order = torch.randperm(len(site), generator=torch.Generator().manual_seed(0))
    site, label = site[order], label[order]
    values = random(len(site), 3, seed=3)
    unit = values / values.norm(dim=1, keepdim=True)
    total = 0.0
    for c, sites in ((0, range(4)), (1, range(3))):
        groups = [unit[(site == e) & (label == c)] for e in sites]
        total += sum(
            float(sinkhorn_divergence(*pair, 0.1, 500)) for pair in combinations(groups, 2)
        )
    found = float(site_discrepancy(values, site, label, 0.1, iterations=500))
    assert found == pytest.approx(total / 12, rel=1e-9)


def test_site_discrepancy_is_zero_for_equal_sites_and_ignores_scale():
    site, label = sites_and_labels(3)
    values = random(6, 4, seed=1).repeat(3, 1)
    assert float(site_discrepancy(values, site, label, 0.1)) == pytest.approx(0, abs=1e-8)
    moved = values.clone()
    moved[site == 1] += 0.5
    one, other = (float(site_discrepancy(scale * moved, site, label, 0.1)) for scale in (1, 7))
    assert one == pytest.approx(other) and one > 0.001


def test_predictive_variation_equals_a_slow_reading():
    site, label = sites_and_labels()
    logits = random(len(site), 6, seed=2)
    total = 0.0
    for e in range(4):
        means = [float(logits[(site == e) & (label == c), 0].mean()) for c in (0, 1)]
        for c in (0, 1):
            mine = logits[(site == e) & (label == c)].numpy()
            change = np.mean((mine[:, 1:] - mine[:, :1]) ** 2)
            scale = np.var(mine[:, 0]) + (means[1] - means[0]) ** 2 / 4
            total += change / (scale + 1e-8)
    assert float(predictive_variation(logits, site, label)) == pytest.approx(total / 8, rel=1e-9)
    # Numerator and denominator scale alike.
    found = predictive_variation(10 * logits, site, label)
    assert float(found) == pytest.approx(total / 8, rel=1e-6)


def measured(x, y, run):
    fold, seed = zip(*run)
    columns = {"site_discrepancy": x, "predictive_variation": y, "fold": fold, "seed": seed}
    return pd.DataFrame(columns)


def test_discordance_rate_counts_pairs_of_one_fold_and_seed():
    generator = np.random.default_rng(0)
    x, y = generator.integers(0, 6, (2, 40)) / 10
    run = [(index % 4, index % 2) for index in range(40)]
    discordant = compared = 0
    for one, other in combinations(range(40), 2):
        if run[one] == run[other] and x[one] != x[other] and y[one] != y[other]:
            compared += 1
            discordant += (x[one] < x[other]) == (y[one] > y[other])
    assert compared
    assert discordance_rate(measured(x, y, run)) == discordant / compared
    assert discordance_rate(measured([1, 2], [2, 1], [(0, 0), (0, 0)])) == 1
    alone = measured([1, 2], [2, 1], [(0, 0), (0, 1)])
    assert np.isnan(discordance_rate(alone)), "nothing to compare"


def test_mismatch_rates_equal_a_slow_reading():
    generator = np.random.default_rng(1)
    x, y, auc_found = generator.random((3, 30))
    reference = auc_found + np.array([0.02, 0.021, -0.1] * 10)
    variant = ["plain", "brio"] * 15
    runs = measured(x, y, [(0, 0)] * 30)
    runs = runs.assign(validation_auc=auc_found, reference=reference, variant=variant)
    found = mismatches(runs, 0.02)
    rates = found.groupby(runs["variant"], sort=False).mean()
    assert list(rates.index) == ["plain", "brio"]
    for name, *rate in rates.itertuples():
        rows = [i for i in range(30) if variant[i] == name]
        wrong = [i for i in rows if x[i] < np.median(x) and y[i] > np.median(y)]
        kept = [i for i in wrong if i % 3 != 1]
        assert rate == [len(wrong) / 15, len(kept) / 15]
    assert rates["total"].sum() > 0
    # Medians of other runs: below all of these nothing agrees, between them all may.
    other = measured(x - 1, y, [(0, 0)] * 30)
    assert not mismatches(runs, 0.02, other[other["site_discrepancy"] < 0])["total"].any()
    wide = measured(x + 1, y - 1, [(0, 0)] * 30)
    assert mismatches(runs, 0.02, wide)["total"].all()


@pytest.mark.parametrize("position", ["beginning", "middle", "end"])
def test_a_shortened_scan_is_a_window_of_its_series(position):
    cohort, table = make_cohort(n_sites=5, per_class=2)
    scans = make_problem("gcn", cohort, table)[0].data.scans(0)
    rows = torch.arange(5)
    inputs = {"fc": torch.as_tensor(cohort.fc[:5]), "bold": scans.bold[rows],
              "frames": scans.frames[rows], "covariates": torch.ones(5, 3)}  # fmt: skip
    made = shortened(inputs, scans.bold[rows], scans.frames[rows], 0.75, position)
    assert (made["covariates"] == 1).all()
    for index in range(5):
        scan = cohort.series.scan(index).astype(float)
        count = int(0.75 * len(scan) + 0.5)
        room = len(scan) - count
        start = {"beginning": 0, "middle": room // 2, "end": room}[position]
        cut = scan[start : start + count]
        np.testing.assert_allclose(made["fc"][index], fisher_z_connectivity(cut), atol=2e-4)
        assert int(made["frames"][index]) == count
        z = (cut - cut.mean(0)) / cut.std(0)
        np.testing.assert_allclose(made["bold"][index, :count], z, atol=1e-3)
        assert (made["bold"][index, count:] == 0).all()
    first, count = window(torch.tensor([100, 7]), 0.5, "middle")
    assert (first.tolist(), count.tolist()) == ([25, 1], [50, 4])


def test_reestimates_that_are_kept_are_those_that_are_made_anew():
    scans = make_problem("gcn")[0].data.scans(0)
    rows = torch.tensor([3, 0, 17])
    kept, anew = Reestimates(scans, 2), Reestimates(scans, 2, budget=0)
    for length in (4, 6, 4):
        torch.testing.assert_close(kept.fc(rows, length), anew.fc(rows, length))
    assert (kept.fc(rows, 4) != kept.fc(rows, 6)).any()


def test_resampled_series_have_the_reestimated_connectivity():
    problem, _ = make_problem("gcn")
    rows, length = torch.arange(5), torch.tensor(4)
    fc = problem.scans.reestimate(rows, length, 3, 2)
    series = problem.scans.resample(rows, length, 3, 2)
    for index in range(5):
        frames = int(problem.scans.frames[index])
        again = fisher_z_connectivity(series[index, :, :frames].double())
        torch.testing.assert_close(again.float(), fc[index], atol=1e-4, rtol=1e-4)
        assert (series[index, :, frames:] == 0).all()


def test_unknown_numbers_are_empty_cells(tmp_path):
    write_records(tmp_path / "table.csv", [{"fold": "a", "test_auc": float("nan"), "kept": 2}])
    assert (tmp_path / "table.csv").read_text() == "fold,test_auc,kept\na,,2\n"


@pytest.mark.parametrize("name", diagnosed_methods())
def test_every_method_can_be_diagnosed(name):
    cohort, table = make_cohort(n_sites=5, per_class=3)
    problem, _ = make_problem(name, cohort, table)
    fold = problem.data.folds[0]
    module = problem.module(fold).eval()
    if issubclass(problem.trial.method, PathMethod):
        module.fit(1)
    reestimates = Reestimates(problem.data.scans(0), 2)
    data = TrainedFold(module, problem, fold, reestimates)
    with torch.no_grad():
        tables = diagnose_fold(data, SETTINGS)
    (record,) = tables["folds"]
    assert all(np.isfinite(value) and value >= -1e-6 for value in record.values())
    # Half of these scans is too short for methods that cut scans into windows.
    assert len(tables["scan-length"]) == (3 if data.can_shorten(0.5) else 0)
    assert all(0 <= row["test_auc"] <= 1 for row in tables["scan-length"])
