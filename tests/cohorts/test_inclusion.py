"""The rules of exclusion without files, and regions without signal, which a cohort leaves out."""

import csv
import re
from pathlib import Path

import numpy as np
import pytest

from brio_core.cohorts import inclusion
from brio_core.cohorts.check import check_cohort
from brio_core.cohorts.dead_regions import DeadRegions
from brio_core.cohorts.duplicates import Sketches
from brio_core.cohorts.extraction import Outcome
from brio_core.cohorts.inclusion import (
    Rules,
    check_enough,
    inclusion_rows,
    stop_if_bad,
    summary,
)
from brio_core.cohorts.stores import Rois, read_series
from brio_core.system.errors import BrioError

RULES = Rules(rois=10, min_frames=50, max_constant_rois=0.2, min_subjects_per_class=2)


def exclusion_reasons(candidates, outcomes, rules):
    """Without copies of scans, which are in test_site_profile.py."""
    return inclusion.exclusion_reasons(candidates, outcomes, rules, Sketches(rules.rois))


@pytest.fixture
def cohort():
    """Six sites with two subjects per class and nothing wrong."""
    candidates, outcomes = [], []
    for site in "ABCDEF":
        for number in range(4):
            subject = f"{site}{number}"
            candidates.append(
                {"subject": subject, "site": site, "label": str(number % 2), "excluded": ""}
            )
            outcomes.append(Outcome(subject, "", 60, 60, 10, "", ("x", "y")))
    return candidates, outcomes


def _change(outcomes, subject, **changes):
    position = [outcome.subject for outcome in outcomes].index(subject)
    outcomes[position] = Outcome(**(vars(outcomes[position]) | changes))


def test_nothing_wrong(cohort):
    reasons = exclusion_reasons(*cohort, RULES)
    assert not any(reasons.values())
    stop_if_bad(reasons, "c")
    check_enough(cohort[0], reasons, "c")


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"rois": 9}, "wrong number of ROIs: 9 instead of 10"),
        ({"frames_after": 49}, "too few frames: 49 of at least 50"),
        ({"dead": (0, 1, 2)}, "too many constant ROIs: 3 of 10, at most 2"),
        ({"reason": "unreadable image: x"}, "unreadable image: x"),
        ({"names": ("y", "x")}, "other ROI names: not those of A0"),
    ],
)
def test_reasons_of_a_subject(cohort, changes, reason):
    candidates, outcomes = cohort
    _change(outcomes, "F0", **changes)
    reasons = exclusion_reasons(candidates, outcomes, Rules(10, 50, 0.2, 1))
    assert reasons.pop("F0") == reason
    assert not any(reasons.values())


def test_limits_are_inclusive(cohort):
    candidates, outcomes = cohort
    _change(outcomes, "B1", frames_after=50, dead=(0, 1))
    assert not any(exclusion_reasons(candidates, outcomes, RULES).values())


def test_scans_without_names_go_with_any(cohort):
    candidates, outcomes = cohort
    _change(outcomes, "A0", names=())
    assert not any(exclusion_reasons(candidates, outcomes, RULES).values())


def test_site_that_loses_a_class_goes_as_a_whole(cohort):
    candidates, outcomes = cohort
    for subject in ("C0", "C2"):
        _change(outcomes, subject, frames_after=3)
    reasons = exclusion_reasons(candidates, outcomes, RULES)
    assert reasons["C1"] == reasons["C3"]
    assert reasons["C1"] == "site with one class: all 2 usable subjects of C are of one class"
    assert reasons["C0"].startswith("too few frames")


def test_site_with_too_few_of_a_class(cohort):
    candidates, outcomes = cohort
    candidates[0]["excluded"] = "missing phenotype: no age"
    reasons = exclusion_reasons(candidates, outcomes, RULES)
    assert reasons["A0"] == "missing phenotype: no age"
    assert reasons["A1"].startswith("site too small: A has 1 usable subjects in a class")


def test_table_and_log_account_for_everyone(cohort):
    candidates, outcomes = cohort
    _change(outcomes, "F0", reason="unreadable image: x", frames_before=-1, frames_after=-1)
    reasons = exclusion_reasons(candidates, outcomes, Rules(10, 50, 0.2, 1))
    rows = inclusion_rows(candidates, outcomes, reasons)
    assert len(rows) == len(candidates)
    assert [row["subject"] for row in rows if row["kept"] == "no"] == ["F0"]
    assert rows[20]["frames_before"] == "n/a"
    log = summary(candidates, reasons, "c")
    assert "23 of 24 candidate subjects kept" in log
    assert "excluded, unreadable image: 1" in log
    assert "F  3 of 4 kept (2 positive, 1 negative)" in log


def test_stop_names_the_first_subjects(cohort):
    candidates, outcomes = cohort
    for subject in ("A0", "B0", "C0", "D0"):
        _change(outcomes, subject, frames_after=3)
    reasons = exclusion_reasons(candidates, outcomes, Rules(10, 50, 0.2, 1))
    with pytest.raises(BrioError, match=r"4 of 24 .* \(A0: too few frames.*; and 1 more\)"):
        stop_if_bad(reasons, "c")


def test_rows_that_were_never_meant_do_not_stop(cohort):
    candidates, outcomes = cohort
    candidates[0]["excluded"] = "not selected: diag is 4"
    reasons = exclusion_reasons(candidates, outcomes, Rules(10, 50, 0.2, 1))
    assert reasons["A0"] == "not selected: diag is 4"
    stop_if_bad(reasons, "c")


def test_too_few_sites_and_nothing_left(cohort):
    candidates, outcomes = cohort
    for subject in ("A0", "A2", "B0", "B2"):
        _change(outcomes, subject, frames_after=3)
    reasons = exclusion_reasons(candidates, outcomes, RULES)
    with pytest.raises(BrioError, match=r"4 usable site\(s\) \(C, D, E, F\).* at least 5"):
        check_enough(candidates, reasons, "c")
    with pytest.raises(BrioError, match=r"no subject of cohort c is left .* 24 times: A0, bad"):
        check_enough(candidates, {c["subject"]: "bad: x" for c in candidates}, "c")


def test_every_kind_of_reason_is_in_the_manual():
    """The table of docs/troubleshooting.md, against the texts in the code."""
    root = Path(__file__).resolve().parents[2]
    code = "".join(path.read_text() for path in (root / "brio_core" / "cohorts").rglob("*.py"))
    kinds = set(re.findall(r'(?:Unusable|Misfit)\(\s*f?"([a-zA-Z ]+):', code))
    kinds |= set(re.findall(r'(?:return|reason =|"excluded":) \(?\s*f?"([a-zA-Z ]+): ', code))
    kinds |= {inclusion.NO_ROW, inclusion.NOT_SELECTED}
    kinds |= {"duplicate scan", "duplicate scan with opposite labels", "site too small"}
    assert len(kinds) > 25
    manual = (root / "docs" / "troubleshooting.md").read_text()
    missing = sorted(kind for kind in kinds if f"`{kind}`" not in manual)
    assert not missing


ROIS, PER_SITE = 8, 10
SITES = ("A", "B", "C", "D", "E", "F")


@pytest.fixture
def dead_cohort(tmp_path):
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


def _alive(run_cohort, dead_cohort, out, rule=None):
    data_dir, dataset = dead_cohort
    if rule is not None:
        dataset["inclusion"]["drop_regions"] = rule
    result = run_cohort(dataset, data_dir, out)
    assert result.returncode == 0, result.stderr
    return read_series(out / "series.h5"), result.stderr


def test_a_region_that_tells_the_site_is_left_out(dead_cohort, run_cohort, tmp_path):
    series, log = _alive(run_cohort, dead_cohort, tmp_path / "out")
    assert series.rois.names == ("r0", "r1", "r2", "r4", "r5", "r6", "r7")
    assert series.bold.shape[1] == 7 and len(series) == 60
    values = np.loadtxt(dead_cohort[0] / "made" / "B2.tsv", skiprows=1)[:, [0, 1, 2, 4, 5, 6, 7]]
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


def test_the_user_may_keep_it_or_name_others(dead_cohort, run_cohort, tmp_path):
    kept, log = _alive(run_cohort, dead_cohort, tmp_path / "none", "none")
    assert len(kept.rois) == ROIS and "left out" not in log
    named, _ = _alive(run_cohort, dead_cohort, tmp_path / "named", ["r0", "r7"])
    assert named.rois.names == ("r1", "r2", "r3", "r4", "r5", "r6")


def test_check_cohort_tells_the_same(dead_cohort):
    data_dir, dataset = dead_cohort
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
