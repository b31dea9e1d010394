"""Diagnostics against slow readings of their equations, and on a trained toy cell."""

import csv
import json

import numpy as np
import pytest
import torch
from synthetic import make_cohort, make_problem

from brio_core.diagnostics import predictive_variation, site_discrepancy
from brio_core.diagnostics.cell import reestimated_logits
from brio_core.transport import sinkhorn_divergence


def sites_and_labels(n_sites=4, per_cell=3):
    site = torch.arange(n_sites).repeat_interleave(2 * per_cell)
    label = torch.arange(2).repeat_interleave(per_cell).repeat(n_sites)
    return site, label


def test_site_discrepancy_equals_a_loop_over_pairs_and_classes():
    site, label = sites_and_labels()
    values = torch.randn(len(site), 5, generator=torch.Generator().manual_seed(0)).double()
    unit = values / values.norm(dim=1, keepdim=True)
    total = 0.0
    for e in range(4):
        for f in range(e + 1, 4):
            for c in (0, 1):
                one, other = (unit[(site == s) & (label == c)] for s in (e, f))
                total += float(sinkhorn_divergence(one, other, 0.1, 500))
    assert float(site_discrepancy(values, site, label, 0.1)) == pytest.approx(total / 12, rel=1e-4)


def test_site_discrepancy_is_zero_for_equal_sites_and_ignores_scale():
    site, label = sites_and_labels(3)
    block = torch.randn(6, 4, generator=torch.Generator().manual_seed(1)).double()
    values = block.repeat(3, 1)
    assert float(site_discrepancy(values, site, label, 0.1)) == pytest.approx(0, abs=1e-8)
    moved = values.clone()
    moved[site == 1] += 0.5
    one, other = (float(site_discrepancy(scale * moved, site, label, 0.1)) for scale in (1, 7))
    assert one == pytest.approx(other) and one > 0.001


def test_predictive_variation_equals_a_slow_reading():
    site, label = sites_and_labels()
    logits = torch.randn(len(site), 6, generator=torch.Generator().manual_seed(2)).double()
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


@pytest.mark.parametrize("name", ["gcn", "linear-correlation"])
def test_full_scan_column_and_reestimates_belong_to_the_same_subjects(name):
    cohort, table = make_cohort()
    problem, _ = make_problem(name, cohort, table)
    fold = problem.folds[0]
    module = problem.module(fold)
    if name.startswith("linear"):
        module.fit(1)
    logits = reestimated_logits(module.eval(), problem, fold, 4)
    assert logits.shape == (len(fold.train), 5)
    # Re-estimates of a subject are closer to its own full scan than to other subjects'.
    distance = (logits[:, None, :1] - logits[None, :, 1:]).abs().mean(-1)
    own, others = distance.diagonal().mean(), distance.mean()
    assert own < others


def test_resampled_series_have_the_reestimated_connectivity():
    from brio_core.connectivity import fisher_z_connectivity

    problem, _ = make_problem("gcn")
    rows, length = torch.arange(5), torch.tensor(4)
    fc = problem.scans.reestimate(rows, length, 3, 2)
    series = problem.scans.resample(rows, length, 3, 2)
    for index in range(5):
        frames = int(problem.scans.frames[index])
        again = fisher_z_connectivity(series[index, :, :frames].double())
        torch.testing.assert_close(again.float(), fc[index], atol=1e-4, rtol=1e-4)
        assert (series[index, :, frames:] == 0).all()


def test_diagnose_and_predict_from_the_command_line(trained_demo_cell, run_script, tmp_path):
    folder, files = trained_demo_cell
    done = run_script(
        "diagnose", *files, "--run-dir", folder, "--settings",
        json.dumps({"reestimates": 2, "epsilon": 0.1}), "--out", tmp_path / "diagnostics.csv",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    records = list(csv.DictReader((tmp_path / "diagnostics.csv").open()))
    stored = list(csv.DictReader((folder / "predictions.csv").open()))
    assert {record["fold"] for record in records} == {row["fold"] for row in stored}
    assert all(float(record["site_discrepancy"]) > 0 for record in records)

    cohort = files[files.index("--cohort-dir") + 1]
    out = tmp_path / "new.csv"
    done = run_script("predict", "--models", folder / "models.pt", "--series",
                      cohort / "series.h5", "--out", out)  # fmt: skip
    assert done.returncode == 0, done.stderr
    new = {row["subject"]: row for row in csv.DictReader(out.open())}
    for row in stored:
        assert float(new[row["subject"]][f"logit_{row['fold']}"]) == pytest.approx(
            float(row["logit"]), abs=1e-4
        )
