"""The rules of exclusion, without files."""

import re
from pathlib import Path

import pytest

from brio_core.cohorts import inclusion
from brio_core.cohorts.duplicates import Sketches
from brio_core.cohorts.extraction import Outcome
from brio_core.cohorts.inclusion import (
    Rules,
    check_enough,
    inclusion_rows,
    stop_if_bad,
    summary,
)
from brio_core.system.errors import BrioError

RULES = Rules(rois=10, min_frames=50, max_constant_rois=0.2, min_subjects_per_class=2)


def exclusion_reasons(candidates, outcomes, rules):
    """Without copies of scans, which are in test_duplicates.py."""
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
            outcomes.append(Outcome(subject, "", 60, 60, 10, 0, ("x", "y")))
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
        ({"constant_rois": 3}, "too many constant ROIs: 3 of 10, at most 2"),
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
    _change(outcomes, "B1", frames_after=50, constant_rois=2)
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
