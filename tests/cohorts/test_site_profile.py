"""Site profiles, and scans under two ids: copies are found however they were treated."""

import os
from pathlib import Path

import numpy as np
import pytest
from scipy import signal

from brio_core.cohorts import site_profile as module
from brio_core.cohorts.duplicates import LEAST_CORRELATION, Sketches
from brio_core.cohorts.extraction import Outcome
from brio_core.cohorts.inclusion import Rules, exclusion_reasons
from brio_core.cohorts.site_profile import recognised_sites, robust_z, site_profile
from brio_core.system.rows import Rows

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


def test_columns_are_those_of_plain_numpy_and_are_read_a_few_subjects_at_a_time(monkeypatch):
    fc, most = _connectivity(0.5), 30
    monkeypatch.setattr(module, "_CHUNK", most)
    monkeypatch.setattr(module, "MOST_SUBJECTS", most)

    def read(rows):
        assert len(fc[rows]) <= most
        return fc[rows]

    found = site_profile(Rows(read, fc.shape), SITES)
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


ROIS = 40


def person(draw):
    """Who mixes regions in a way of their own; sessions have that in common, and no frame."""
    mixing = draw.normal(size=(12, ROIS)) + 2 * np.eye(12, ROIS)

    def session(frames=160, drift=1.0):
        noise = draw.normal(size=(frames + 20, 12))
        slow = signal.lfilter([1], [1, -0.7], noise, axis=0)[20:]
        shared = drift * np.cumsum(draw.normal(size=frames))[:, None]
        return (slow @ mixing + shared + draw.normal(size=(frames, ROIS))).astype(np.float32)

    return session


@pytest.fixture
def scans():
    draw = np.random.default_rng(0)
    return {f"s{number:02d}": person(draw)(140 + number) for number in range(60)}


def pairs_of(scans):
    sketches = Sketches(ROIS)
    for subject, series in scans.items():
        sketches.add(subject, series)
    return sketches.pairs(scans)


def filtered(series):
    return signal.filtfilt(*signal.butter(2, 0.5), series, axis=0).astype(np.float32)


CHANGES = {
    "equal": (lambda x: x.copy(), 0),
    "rounded": (lambda x: np.round(x), 0),
    "scaled": (lambda x: 3e-4 * x + 5, 0),
    "noisy": (lambda x: x + 0.2 * x.std() * np.random.default_rng(1).normal(size=x.shape), 0),
    "without its first frames": (lambda x: x[9:], 9),
    "without its last half": (lambda x: x[: len(x) // 2], 0),
    "shifted": (lambda x: np.roll(x, 4, axis=0), -4),
    "filtered again": (filtered, 0),
    "regions lost": (lambda x: x * (np.arange(ROIS) > 4), 0),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_copy_is_found_however_it_was_treated(scans, change):
    treated, lag = CHANGES[change]
    copy = treated(scans["s07"]).astype(np.float32)
    (pair,) = pairs_of({**scans, "copy": copy})
    assert (pair.first, pair.second, pair.lag) == ("s07", "copy", lag)
    assert LEAST_CORRELATION < pair.correlation < 1.001


def test_unrelated_scans_and_sessions_of_one_person_are_no_copies(scans):
    """Sessions have nearest connectivity, so they are compared, and their series are unrelated."""
    draw = np.random.default_rng(5)
    someone = person(draw)
    sessions = {f"again{number}": someone() for number in range(5)}
    assert pairs_of({**scans, **sessions}) == []


def test_correlation_at_lag_is_that_of_the_overlap(scans):
    """With as many directions as regions, by a plain loop in double precision."""
    draw = np.random.default_rng(2)
    first = draw.normal(size=(90, 3)).astype(np.float32)
    second = (first[12:] + 0.3 * draw.normal(size=(78, 3))).astype(np.float32)
    sketches = Sketches(3)
    sketches.add("a", first)
    sketches.add("b", second)
    (pair,) = sketches.pairs({"a", "b"})

    def standardised(series):
        values = (series.astype(float) - series.mean(axis=0)) / series.std(axis=0)
        return values - values.mean(axis=1, keepdims=True)

    one, other = standardised(first)[12:], standardised(second)
    plain = (one * other).sum() / np.sqrt((one**2).sum() * (other**2).sum())
    assert pair.lag == 12
    assert pair.correlation == pytest.approx(plain, abs=1e-3)


def test_short_scans_must_be_nearly_equal():
    draw = np.random.default_rng(3)
    short = {f"s{number}": draw.normal(size=(20, ROIS)).astype(np.float32) for number in range(9)}
    assert pairs_of(short) == []
    (pair,) = pairs_of({**short, "copy": 2 * short["s4"]})
    assert pair[:2] == ("s4", "copy") and pair.lag == 0
    noisy = short["s4"] + 0.5 * draw.normal(size=(20, ROIS)).astype(np.float32)
    assert pairs_of({**short, "noisy": noisy}) == []


def test_many_copies_all_meet_the_first(scans):
    copies = {f"copy{number}": scans["s03"] for number in range(30)}
    found = pairs_of({**scans, **copies})
    linked = {"s03"}
    for pair in sorted(found, key=lambda pair: pair.second):
        linked |= {pair.second} if pair.first in linked else set()
    assert linked == {"s03", *copies}


@pytest.fixture
def judged():
    """``judged(rule, a=("A", "0", scan), …)`` gives the reasons of subjects with these scans."""

    def judge(rule, **people):
        candidates, outcomes, sketches = [], [], Sketches(ROIS)
        for subject, (site, label, scan) in people.items():
            row = {"subject": subject, "site": site, "label": label, "mean_fd": f"0.{len(subject)}"}
            candidates.append(row | {"excluded": ""})
            outcomes.append(Outcome(subject, "", len(scan), len(scan), ROIS))
            sketches.add(subject, scan)
        rules = Rules(ROIS, min_subjects_per_class=0, duplicates=rule)
        reasons = exclusion_reasons(candidates, outcomes, rules, sketches)
        return {subject: reason for subject, reason in reasons.items() if "dupl" in reason}

    return judge


def test_labels_decide_who_stays(scans, judged):
    one, two = scans["s00"], scans["s01"]
    people = {"a": ("A", "0", one), "b": ("A", "1", two), "same": ("B", "0", one[5:]),
              "other": ("B", "0", np.round(two)), "else": ("A", "1", scans["s02"])}  # fmt: skip
    found = judged("by-label", **people)
    assert set(found) == {"same", "b", "other"}
    assert found["same"] == (
        "duplicate scan: series correlate 1.00 at lag 5 with a (label 0, mean FD 0.1); own label "
        "0, mean FD 0.4"
    )
    assert found["b"].startswith("duplicate scan with opposite labels: series correlate ")
    assert "with other (label 0, mean FD 0.5); own label 1, mean FD 0.1" in found["b"]
    assert set(judged("first", **people)) == {"same", "other"}
    assert set(judged("none", **people)) == {"a", "same", "b", "other"}
    assert judged("keep", **people) == {}


def test_copies_of_copies_belong_together(scans, judged):
    """a and c do not overlap, but both are parts of b, whose label differs."""
    whole = scans["s59"]
    people = {"a": ("A", "0", whole[:90]), "b": ("B", "1", whole), "c": ("A", "0", whole[-90:])}
    assert set(judged("by-label", **people)) == {"a", "b", "c"}
    assert set(judged("first", **people)) == {"b", "c"}


@pytest.mark.cohort
def test_copies_in_abide():
    """One scan is there twice, and one under two ids with opposite labels; no other is."""
    if "BRIO_TEST_DATA" not in os.environ:
        pytest.skip("BRIO_TEST_DATA does not name a folder with the cohort")
    with np.load(Path(os.environ["BRIO_TEST_DATA"]) / "abide_cc200_compact.npz") as stored:
        subjects, offsets = stored["subject"].tolist(), stored["offsets"]
        bold = np.cumsum(stored["bold_delta"], axis=0, dtype=np.int32) * float(stored["step"])
    sketches = Sketches(bold.shape[1])
    for subject, start, end in zip(subjects, offsets, offsets[1:]):
        sketches.add(subject, bold[start:end].astype(np.float32))
    same, yale = sketches.pairs(set(subjects))
    assert same[:2] == ("UM_1_0050279", "UM_1_0050286") and same.correlation > 0.999
    assert yale[:2] == ("Yale_0050578", "Yale_0050602") and 0.93 < yale.correlation < 0.95
    assert same.lag == yale.lag == 0
