"""Errors of means over folds that share sites, choices by other folds, and verdicts."""

import numpy as np
import pandas as pd
import pytest

from brio_core.evaluation.site_statistics import mean_and_error, nested_choice, paired, preferred

SITES = 12


def ring_cells(site_effect, fold_effect, noise):
    """Two cells per fold: the next two sites of a ring validate."""
    rows = []
    for fold in range(SITES):
        for step in (1, 2):
            site = (fold + step) % SITES
            value = site_effect[site] + fold_effect[fold] + noise[fold, step - 1]
            rows.append({"fold": f"f{fold}", "part": f"s{site}", "value": value})
    return pd.DataFrame(rows)


def slow_error(cells):
    """Sums over clusters, one after the other."""
    rows = cells.to_dict("records")
    mean = sum(row["value"] for row in rows) / len(rows)

    def variance(key):
        total, names = 0.0, {key(row) for row in rows}
        for name in names:
            total += sum((row["value"] - mean) / len(rows) for row in rows if key(row) == name) ** 2
        return total * len(names) / (len(names) - 1)

    folds, parts = variance(lambda row: row["fold"]), variance(lambda row: row["part"])
    both = folds + parts - variance(lambda row: (row["fold"], row["part"]))
    return mean, max(both, folds) ** 0.5


@pytest.mark.parametrize("seed", range(5))
def test_the_error_is_that_of_a_slow_reading(seed):
    generator = np.random.default_rng(seed)
    cells = ring_cells(*generator.normal(size=(2, SITES)), generator.normal(size=(SITES, 2)))
    assert mean_and_error(cells) == pytest.approx(slow_error(cells))


@pytest.mark.parametrize("scales", [(1, 0, 0), (0, 1, 0), (0, 0, 1), (1, 1, 1)])
def test_the_error_is_right_on_average_and_that_over_folds_is_not(scales):
    generator = np.random.default_rng(0)
    means, found, over_folds = [], [], []
    for _ in range(250):
        site, fold = (scale * generator.normal(size=SITES) for scale in scales[:2])
        cells = ring_cells(site, fold, scales[2] * generator.normal(size=(SITES, 2)))
        mean, error = mean_and_error(cells)
        means.append(mean)
        found.append(error**2)
        over_folds.append(cells.groupby("fold")["value"].mean().sem() ** 2)
    truth = (scales[0] ** 2 + scales[1] ** 2 + scales[2] ** 2 / 2) / SITES
    assert np.var(means) == pytest.approx(truth, rel=0.25)
    assert np.mean(found) == pytest.approx(truth, rel=0.25)
    if scales == (1, 0, 0):
        assert np.mean(over_folds) == pytest.approx(truth / 2, rel=0.25), "too small by a root of 2"


def test_parts_that_differ_in_every_fold_leave_the_error_over_folds():
    generator = np.random.default_rng(1)
    cells = ring_cells(*generator.normal(size=(2, SITES)), generator.normal(size=(SITES, 2)))
    cells["part"] = cells["fold"] + cells["part"]
    wanted = cells.groupby("fold")["value"].mean()
    assert mean_and_error(cells) == pytest.approx((wanted.mean(), wanted.sem()))
    single = cells[cells["fold"] == "f0"]
    assert np.isnan(mean_and_error(single)[1])
    assert np.isnan(mean_and_error(single.iloc[:0])).all()


def ring_scores(seed, variants=("a", "b", "c"), rings=1):
    generator = np.random.default_rng(seed)
    keys, validated = [], {}
    for ring in range(rings):
        order = generator.permutation(SITES)
        for place in range(SITES):
            key = (f"s{order[place]}", ring)
            keys.append(key)
            validated[key] = {f"s{order[(place + step) % SITES]}" for step in (1, 2)}
    index = pd.MultiIndex.from_tuples(keys, names=["fold", "ring"])
    values = generator.normal(size=(len(keys), len(variants)))
    return pd.DataFrame(values, index, list(variants)), validated


@pytest.mark.parametrize("rings", [1, 2])
def test_a_nested_choice_does_not_see_the_labels_of_its_site(rings):
    scores, validated = ring_scores(0, rings=rings)
    chosen = nested_choice(scores, validated)
    assert set(chosen) == {f"s{number}" for number in range(SITES)}
    for site, variant in chosen.items():
        seen = [key for key in scores.index if key[0] == site or site in validated[key]]
        assert len(seen) == 3 * rings
        assert scores.drop(seen).mean().idxmax() == variant
        # Whatever the folds say that know the site, its choice stays.
        changed = scores.copy()
        changed.loc[seen, "a"] += 100
        assert nested_choice(changed, validated)[site] == variant
        assert preferred(changed) == "a"


def test_where_all_sources_validate_a_fold_decides_for_its_site():
    scores, _ = ring_scores(1)
    names = {key[0] for key in scores.index}
    chosen = nested_choice(scores, {key: names - {key[0]} for key in scores.index})
    for key, row in scores.iterrows():
        assert chosen[key[0]] == row.idxmax()


def test_the_first_of_equally_good_variants_is_chosen():
    scores, _ = ring_scores(2)
    scores["b"] = scores["a"] + 1e-15
    assert preferred(scores[["a", "b"]]) == "a"


def test_one_site_far_out_does_not_turn_the_verdict_around():
    """Nineteen sites are a little worse, and the mean is better."""
    values = np.append(-0.01 - 1e-4 * np.arange(19), 0.6)
    (found,) = paired([values], 0.0)
    assert found["difference"] > 0 and found["p_holm"] < 0.001
    assert found["verdict"] == "undecided"
    (found,) = paired([values - 0.02], 0.0)
    assert found["verdict"] == "worse" and found["difference"] < 0
