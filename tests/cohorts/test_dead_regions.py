"""Regions without signal are told by site and class, and left out of the whole cohort."""

import csv

import numpy as np
import pytest

from brio_core.cohorts.check import check_cohort
from brio_core.cohorts.dead_regions import DeadRegions
from brio_core.cohorts.stores import Rois, read_series
from brio_core.system.errors import BrioError

ROIS, PER_SITE = 8, 10
SITES = ("A", "B", "C", "D", "E", "F")


@pytest.fixture
def cohort(tmp_path):
    """Region r3 is dead at nine of the ten subjects of A and at none of B; r5 at one of C."""
    folder = tmp_path / "data" / "made"
    folder.mkdir(parents=True)
    draw = np.random.default_rng(0)
    lines = ["id\tsite\tgroup"]
    for site in SITES:
        for number in range(PER_SITE):
            subject = f"{site}{number}"
            lines.append(f"{subject}\t{site}\t{('case', 'control')[number % 2]}")
            values = draw.normal(size=(70, ROIS))
            if site == "A" and number:
                values[:, 3] = 0
            if subject == "C4":
                values[:, 5] = 7.5
            header = "\t".join(f"r{index}" for index in range(ROIS))
            path = folder / f"{subject}.tsv"
            np.savetxt(path, values, delimiter="\t", header=header, comments="")
    (folder / "participants.tsv").write_text("\n".join(lines) + "\n")
    dataset = {
        "cohort": "made",
        "source": {"kind": "series", "folder": "made", "pattern": "{subject}.tsv"},
        "columns": {"subject": "id", "site": "site", "label": "group"},
        "label": {"positive": "case", "negative": "control"},
        "rois": {"expected": ROIS},
        "inclusion": {},
    }
    return tmp_path / "data", dataset


def _alive(run_cohort, cohort, out, rule=None):
    data_dir, dataset = cohort
    if rule is not None:
        dataset["inclusion"]["drop_regions"] = rule
    result = run_cohort(dataset, data_dir, out)
    assert result.returncode == 0, result.stderr
    return read_series(out / "series.h5"), result.stderr


def test_a_region_that_tells_the_site_is_left_out(cohort, run_cohort, tmp_path):
    series, log = _alive(run_cohort, cohort, tmp_path / "out")
    assert series.rois.names == ("r0", "r1", "r2", "r4", "r5", "r6", "r7")
    assert series.bold.shape[1] == 7 and len(series) == 60
    values = np.loadtxt(cohort[0] / "made" / "B2.tsv", skiprows=1)[:, [0, 1, 2, 4, 5, 6, 7]]
    np.testing.assert_array_equal(series.scan(12), values.astype(np.float32))
    assert (
        "9 of 10 subjects of A (4 positive, 5 negative) have a region without signal: r3 (9 times)"
    ) in log
    assert "1 of 8 regions are left out of all scans (inclusion.drop_regions): r3" in log
    with open(tmp_path / "out" / "regions.tsv", newline="") as stream:
        rows = list(csv.DictReader(stream, delimiter="\t"))
    assert len(rows) == len(SITES) * 2 * (ROIS + 1)
    dead = [tuple(row.values()) for row in rows if row["dead"] != "0"]
    assert dead == [
        ("any", "n/a", "A", "1", "5", "4"), ("r3", "no", "A", "1", "5", "4"),
        ("any", "n/a", "A", "0", "5", "5"), ("r3", "no", "A", "0", "5", "5"),
        ("any", "n/a", "C", "1", "5", "1"), ("r5", "yes", "C", "1", "5", "1"),
    ]  # fmt: skip


def test_the_user_may_keep_it_or_name_others(cohort, run_cohort, tmp_path):
    kept, log = _alive(run_cohort, cohort, tmp_path / "none", "none")
    assert len(kept.rois) == ROIS and "left out" not in log
    named, _ = _alive(run_cohort, cohort, tmp_path / "named", ["r0", "r7"])
    assert named.rois.names == ("r1", "r2", "r3", "r4", "r5", "r6")


def test_check_cohort_tells_the_same(cohort):
    data_dir, dataset = cohort
    notes = check_cohort(dataset, data_dir).notes
    assert notes[-3].startswith("9 of 10 subjects of A (4 positive, 5 negative) have a region")
    assert notes[-2].startswith("1 of 10 subjects of C") and "r5 (1 times)" in notes[-2]
    assert notes[-1].endswith("(inclusion.drop_regions): r3")
    dataset["inclusion"]["drop_regions"] = ["r99", "R3"]
    (error,) = check_cohort(dataset, data_dir).errors
    assert "inclusion.drop_regions of cohort made has 'r99', which is no region" in error


def _judge(dead, rule="auto", sites=4, per_site=25):
    kept = [
        {"subject": f"{site}-{number}", "site": f"{site}", "label": str(number % 2)}
        for site in range(sites)
        for number in range(per_site)
    ]
    found = {candidate["subject"]: dead.get(candidate["subject"], ()) for candidate in kept}
    return DeadRegions.of(kept, found, [f"r{index}" for index in range(5)], rule, "c")


def test_limits_of_auto():
    """Ten of a hundred subjects, or half of a site, are not too many; one more is."""
    of_all = {f"{site}-{number}": (2,) for site in range(4) for number in range(3)}
    ten, eleven = dict(list(of_all.items())[:10]), dict(list(of_all.items())[:11])
    assert not _judge(ten).dropped.any()
    assert np.flatnonzero(_judge(eleven).dropped).tolist() == [2]
    at_a_site = {f"0-{number}": (4,) for number in range(5)}
    assert not _judge(at_a_site, sites=20, per_site=10).dropped.any()
    at_a_site["0-5"] = (4,)
    assert np.flatnonzero(_judge(at_a_site, sites=20, per_site=10).dropped).tolist() == [4]


def test_names_must_be_regions_and_leave_two():
    with pytest.raises(BrioError, match=r"has 'R2', which is no region; did you mean 'r2'\?"):
        _judge({}, ["R2"])
    with pytest.raises(BrioError, match=r"of cohort c leaves 1 of 5 regions"):
        _judge({}, ["r0", "r1", "r2", "r3"])


def test_places_and_sides_stay_with_their_regions():
    rois = Rois(("a", "b", "c"), np.arange(9, dtype=np.float32).reshape(3, 3), ("L", "R", "L"))
    left = rois.at(np.array([0, 2]))
    assert (left.names, left.hemispheres) == (("a", "c"), ("L", "L"))
    assert left.centroids.tolist() == [[0, 1, 2], [6, 7, 8]]
