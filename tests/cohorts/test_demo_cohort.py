"""The demo cohort: always the same bytes, with the planted effects, and accounted for."""

import hashlib
import json

import numpy as np
import pytest

from brio_core.cohorts.cohort import read_participants
from brio_core.cohorts.demo import model
from brio_core.cohorts.demo.cohort import make_demo
from brio_core.cohorts.stores import read_series
from brio_core.cohorts.tables import read_table


def _checksums(folder):
    return {
        path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


@pytest.fixture(scope="module")
def fisher_z(demo_results):
    series = read_series(demo_results / "series.h5")
    matrices = np.zeros((len(series), 24, 24))
    for index in range(len(series)):
        with np.errstate(invalid="ignore"):
            correlation = np.nan_to_num(np.corrcoef(series.scan(index).T))
        np.fill_diagonal(correlation, 0)
        matrices[index] = np.arctanh(correlation)
    return matrices


@pytest.fixture(scope="module")
def truth(demo_data):
    return json.loads((demo_data / "demo" / "truth.json").read_text())


def test_same_bytes_every_time(tmp_path):
    make_demo(tmp_path / "one", usable_per_site=4)
    make_demo(tmp_path / "two", usable_per_site=4)
    one = _checksums(tmp_path / "one")
    assert one == _checksums(tmp_path / "two")
    assert len(one) > 4 * 7 * 4


def test_is_small_and_complete(demo_data):
    files = [path for path in (demo_data / "demo").rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) < 25e6
    table = read_table(demo_data / "demo" / "participants.tsv")
    assert len(table) == 105
    assert table["site"].nunique() == 7
    assert (table["family"].value_counts() == 2).sum() == 1


def test_sites_differ_in_repetition_time_and_length(demo_results):
    table = read_participants(demo_results / "participants.tsv")
    series = read_series(demo_results / "series.h5")
    table["frames"] = series.frames
    by_site = table.groupby("site")
    assert by_site["tr"].nunique().eq(1).all()
    assert by_site["tr"].first().nunique() >= 6
    assert by_site["frames"].nunique().gt(1).all()
    assert table["frames"].between(80, 160).all()
    assert by_site["label"].mean().eq(0.5).all()


def test_every_dirty_subject_is_accounted_for(demo_results, truth):
    table = read_table(demo_results / "inclusion.tsv").set_index("subject")
    beginnings = {
        "too short": "too few frames: 42 of at least 60",
        "duplicate": "duplicate scan: series correlate 1.00 at lag 0 with ",
        "missing image": "missing file: demo/derivatives/prep/",
        "empty image": "empty file: demo/derivatives/prep/",
        "truncated image": "unreadable image: ",
        "missing diagnosis": "missing phenotype: no diagnosis",
    }
    assert {d["problem"] for d in truth["dirty"].values()} - set(beginnings) == {
        "nan frames",
        "constant roi",
    }
    for subject, dirt in truth["dirty"].items():
        row = table.loc[subject]
        if dirt["problem"] == "nan frames":
            assert row["kept"] == "yes"
            assert int(row["frames_before"]) - int(row["frames_after"]) == 3
        elif dirt["problem"] == "constant roi":
            assert (row["kept"], row["constant_rois"]) == ("yes", "1")
        else:
            assert row["kept"] == "no"
            assert row["reason"].startswith(beginnings[dirt["problem"]])
            assert (dirt["of"] or "") in row["reason"]
    clean = table.drop(index=list(truth["dirty"]))
    assert (clean["kept"] == "yes").all()
    assert (clean["reason"] == "n/a").all()
    assert (clean["constant_rois"] == "0").all()
    assert (clean["frames_before"] == clean["frames_after"]).all()


def test_the_log_counts_reasons_and_sites(demo_results):
    log = (demo_results / "assemble.log").read_text()
    assert "98 of 105 candidate subjects kept" in log
    assert "excluded, duplicate scan: 1" in log
    assert "14 of 15 kept (7 positive, 7 negative)" in log


def test_kept_subjects_are_in_one_order(demo_results):
    table = read_participants(demo_results / "participants.tsv")
    series = read_series(demo_results / "series.h5")
    assert series.subjects == tuple(table["subject"])
    pairs = list(zip(table["site"], table["subject"]))
    assert pairs == sorted(pairs)
    assert series.rois.names == model.NAMES
    assert set(series.rois.hemispheres) == {"L", "R"}
    assert np.isfinite(series.rois.centroids).all()
    assert series.provenance["dataset"]["source"]["kind"] == "bids"
    assert len(series.provenance["atlas_sha256"]) == 64


def test_networks_agree_and_oppose(fisher_z):
    mean = fisher_z.mean(0)
    assert mean.max() > 0.3
    assert mean.min() < -0.15


def test_shared_effect_is_in_the_data_at_every_site(demo_results, fisher_z, truth):
    table = read_participants(demo_results / "participants.tsv")
    rows, columns = np.array([effect["index"] for effect in truth["shared"]]).T
    sign = np.sign([effect["effect"] for effect in truth["shared"]])
    assert {1, -1} == set(sign)
    score = (fisher_z[:, rows, columns] * sign).mean(1)
    for site in table["site"].unique():
        here = (table["site"] == site).to_numpy()
        positive = (table["label"] == 1).to_numpy()
        assert score[here & positive].mean() > score[here & ~positive].mean() + 0.1


def test_spurious_effects_are_of_one_site_each(truth):
    shared = {tuple(effect["index"]) for effect in truth["shared"]}
    by_site = [{tuple(e["index"]): e["effect"] for e in effects}
               for effects in truth["spurious"].values()]  # fmt: skip
    assert len({frozenset(effects.items()) for effects in by_site}) == 7
    assert all(shared.isdisjoint(effects) for effects in by_site)
    sums = {pair: sum(effects.get(pair, 0) for effects in by_site) for e in by_site for pair in e}
    assert any(abs(total) < 0.1 for total in sums.values())


def test_a_simple_classifier_finds_the_effect_on_unseen_sites(demo_results, fisher_z):
    table = read_participants(demo_results / "participants.tsv")
    rows, columns = np.triu_indices(24, 1)
    features, label = fisher_z[:, rows, columns], table["label"].to_numpy()
    wins = []
    for site in table["site"].unique():
        test = (table["site"] == site).to_numpy()
        train = features[~test]
        direction = train[label[~test] == 1].mean(0) - train[label[~test] == 0].mean(0)
        score = features[test] @ direction
        positive, negative = score[label[test] == 1], score[label[test] == 0]
        wins.append((positive[:, None] > negative).mean())
    assert 0.7 < np.mean(wins) < 0.97


@pytest.mark.parametrize("site", [site.name for site in model.SITES])
def test_correlations_are_positive_definite(site):
    for positive in (False, True):
        matrix = model.subject_correlation(site, "sub-001", positive)
        assert np.linalg.eigvalsh(matrix).min() > 0.01
        np.testing.assert_allclose(np.diag(matrix), 1)


def test_autoregressive_noise_has_its_colour():
    noise = model.autoregressive(np.random.default_rng(0), (4000, 20), 0.6)
    np.testing.assert_allclose(noise.std(), 1, rtol=0.05)
    np.testing.assert_allclose((noise[1:] * noise[:-1]).mean(), 0.6, atol=0.03)
