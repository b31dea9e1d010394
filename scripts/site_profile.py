"""What connectivity tells about the sites of a cohort, before anything is trained."""

import argparse
from pathlib import Path

from brio_core.system.cli import run

COLUMNS = (
    "subject", "site", "label", "age", "male", "mean_fd", "tr", "frames", "fc_mean", "fc_sd",
    "typicality", "outlier", "recognised_as",
)  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cohort-dir", type=Path, required=True, help="folder of the cohort")
    parser.add_argument("--out", type=Path, required=True, help="TSV: one row per subject")
    arguments = parser.parse_args()

    import numpy as np

    from brio_core.cohorts.cohort import Cohort, read_participants
    from brio_core.cohorts.site_profile import site_profile
    from brio_core.cohorts.tables import write_table

    table = read_participants(arguments.cohort_dir / "participants.tsv")
    cohort = Cohort.load(arguments.cohort_dir)
    columns = {
        "subject": table["subject"],
        "site": table["site"],
        "label": table["label"],
        **dict(zip(("age", "male", "mean_fd"), cohort.covariates.T.astype(np.float64))),
        "tr": table["tr"],
        "frames": cohort.series.frames,
        **site_profile(np.asarray(cohort.fc), cohort.site),
    }
    values = zip(*(columns[name] for name in COLUMNS))
    rows = [dict(zip(COLUMNS, map(_text, row))) for row in values]
    write_table(arguments.out, COLUMNS, rows)
    outliers = sum(bool(reason) for reason in columns["outlier"])
    print(f"{len(table)} subjects, {outliers} of them stand out by their connectivity")


def _text(value: object) -> str:
    if isinstance(value, float):
        return "n/a" if value != value else f"{value:.6g}"
    return str(value)


if __name__ == "__main__":
    run(main)
