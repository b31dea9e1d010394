"""Site profiles."""

import numpy as np
import pytest

from brio_core.cohorts import site_profile as module
from brio_core.cohorts.site_profile import recognised_sites, robust_z, site_profile

SITES = np.repeat(["A", "B", "C", "D"], (40, 30, 20, 10))


def _connectivity(strength: float, seed: int = 0) -> np.ndarray:
    """Noise, and a pattern per site of the given strength."""
    draw = np.random.default_rng(seed)
    pattern = {site: draw.normal(size=(12, 12)) for site in "ABCD"}
    fc = np.stack([draw.normal(size=(12, 12)) + strength * pattern[site] for site in SITES])
    fc = 0.1 * (fc + fc.transpose(0, 2, 1))
    fc[:, range(12), range(12)] = 0
    return fc.astype(np.float32)


def _balanced(found, sites=SITES):
    return np.mean([(found[sites == site] == site).mean() for site in np.unique(sites)])


def test_sites_are_recognised_if_they_differ_and_only_then():
    assert _balanced(recognised_sites(_connectivity(1.0), SITES)) == 1
    chance = [_balanced(recognised_sites(_connectivity(0.0, seed), SITES)) for seed in range(8)]
    assert abs(np.mean(chance) - 0.25) < 0.06


def test_a_subject_does_not_recognise_itself():
    """With one subject per site nobody else can tell, so every answer is wrong."""
    fc = _connectivity(1.0)[:4]
    names = np.array(list("ABCD"))
    assert _balanced(recognised_sites(fc, names), names) == 0


def test_large_cohorts_are_thinned(monkeypatch):
    monkeypatch.setattr(module, "MOST_SUBJECTS", 50)
    found = recognised_sites(_connectivity(1.0), SITES)
    assert (found != "").sum() == 50 and (found[found != ""] == SITES[found != ""]).all()


def test_columns_are_those_of_plain_numpy():
    fc = _connectivity(0.5)
    found = site_profile(fc, SITES)
    edges = fc[:, *np.triu_indices(12, 1)].astype(float)
    np.testing.assert_allclose(found["fc_mean"], edges.mean(1))
    np.testing.assert_allclose(found["fc_sd"], edges.std(1))
    others = edges[1:40].mean(0)
    assert found["typicality"][0] == pytest.approx(np.corrcoef(edges[0], others)[0, 1])
    assert not any(found["outlier"])


def test_outliers_are_named():
    fc = _connectivity(3.0)
    fc[45] = _connectivity(0.0, 1)[45]
    fc[60] += 2
    found = site_profile(fc, SITES)["outlier"]
    assert "unlike its site" in found[45] and "level of FC" in found[60]
    assert sum(map(bool, found)) <= 3


def test_cohort_without_spread_has_no_outliers():
    assert not robust_z(np.ones(6), np.array([0, 0, 0, 1, 1, 1])).any()


def test_constant_regions_are_no_problem():
    fc = _connectivity(0.5)
    fc[3] = 0
    found = site_profile(fc, SITES)
    assert found["typicality"][3] == 0 and np.isfinite(found["fc_mean"]).all()
