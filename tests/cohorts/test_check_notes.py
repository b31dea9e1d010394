"""What check_cohort notes about covariates, repetition times and groups."""

import numpy as np
import pandas as pd
import pytest

from brio_core.cohorts.check import check_cohort
from brio_core.cohorts.cohort import _covariates

DATASET = {
    "cohort": "toy",
    "source": {
        "kind": "series",
        "folder": "toy",
        "pattern": "{subject}.npy",
        "participants": "participants.tsv",
    },
    "columns": {
        "subject": "subject", "site": "site", "label": "label", "age": "age", "sex": "sex",
        "mean_fd": "mean_fd", "tr": "tr", "group": "group",
    },
    "label": {"positive": "1", "negative": "0"},
    "rois": {"expected": 4},
    "inclusion": {},
}  # fmt: skip
PLAIN = {"age": "31.5", "sex": "F", "mean_fd": "0.1", "tr": "2", "group": "n/a"}


@pytest.fixture
def checked(tmp_path):
    """``checked(s01={"age": "x"})`` reads five sites of eight, with cells of s01 replaced."""

    def check(**changes):
        folder = tmp_path / "toy"
        folder.mkdir(exist_ok=True)
        draw = np.random.default_rng(0)
        rows = []
        for site in range(5):
            for number in range(8):
                subject = f"s{site}{number}"
                np.save(folder / f"{subject}.npy", draw.normal(size=(60, 4)))
                row = {"subject": subject, "site": f"site{site}", "label": number % 2, **PLAIN}
                rows.append(row | changes.get(subject, {}))
        pd.DataFrame(rows).to_csv(folder / "participants.tsv", sep="\t", index=False)
        return check_cohort(DATASET, tmp_path)

    return check


def test_a_plain_cohort_needs_no_notes(checked):
    report = checked()
    assert report.notes == report.errors == report.exclusions == []


def test_numbers_that_are_none_are_noted(checked):
    report = checked(
        s00={"age": "31,5"}, s01={"age": "25 years"}, s02={"age": "M"}, s03={"age": "n/a"},
        s10={"mean_fd": "high"},
    )  # fmt: skip
    assert report.notes == [
        "age is unknown for 1 of 40 kept subjects",
        "age of 3 of 40 kept subjects is no number, e.g. '31,5' of subject s00: it counts as "
        "missing",
        "mean_fd of 1 of 40 kept subjects is no number, e.g. 'high' of subject s10: it counts as "
        "missing",
    ]


def test_unknown_codes_of_sex_are_noted(checked):
    report = checked(s00={"sex": "w"}, s01={"sex": "1.0"}, s02={"sex": "MALE"}, s03={"sex": "2"})
    assert report.notes == [
        "sex of 2 of 40 kept subjects is neither male (1, m, male) nor female (0, 2, f, female), "
        "e.g. 'w' of subject s00: it counts as missing"
    ]


@pytest.mark.parametrize("column", ["age", "sex", "mean_fd"])
@pytest.mark.parametrize(
    "value",
    ["0", "1", "2", "3", "m", "M", "f", "Male", "FEMALE", "w", "1.0", "1e1", "1_0", "1,5", ".5",
     "0x1A", "True", "inf", "25 years", "none"],
)  # fmt: skip
def test_noted_is_what_training_counts_as_missing(checked, column, value):
    """Should training ever read another spelling, this fails."""
    missing = np.isnan(_covariates(pd.DataFrame([PLAIN | {column: value}]))).any()
    notes = checked(s00={column: value}).notes
    assert [note.startswith(f"{column} of 1 of 40") for note in notes] == [True] * int(missing)


def test_repetition_times_in_milliseconds_are_noted(checked):
    assert checked(s00={"tr": "20"}).notes == []
    assert checked(s00={"tr": "2000"}, s11={"tr": "1500"}).notes == [
        "the repetition time of site0, site1 is above 20 s, e.g. 2000 of subject s00; is it in "
        "milliseconds?"
    ]


def test_groups_that_span_sites_are_noted(checked):
    report = checked(s00={"group": "a"}, s10={"group": "a"}, s20={"group": "b"})
    assert report.errors == []
    assert report.notes == [
        "2 of 40 kept subjects share their group (columns.group) with another site; they do not "
        "train where that site validates or is tested"
    ]


def test_splits_that_groups_prevent_are_errors(checked):
    """The same four controls were scanned at every site."""
    travelling = {
        f"s{site}{number}": {"group": f"p{number}"} for site in range(5) for number in (0, 2, 4, 6)
    }
    (error, *_) = checked(**travelling).errors
    assert error.startswith("cohort toy cannot be split for protocol loso: site 'site")
