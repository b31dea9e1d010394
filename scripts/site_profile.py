"""What connectivity tells about the sites of a cohort, before anything is trained."""

import argparse
from pathlib import Path

from brio_core.system.cli import run


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cohort-dir", type=Path, required=True, help="folder of the cohort")
    parser.add_argument("--out", type=Path, required=True, help="TSV: one row per subject")
    arguments = parser.parse_args()

    import numpy as np

    from brio_core.cohorts.cohort import Cohort, read_participants
    from brio_core.cohorts.site_profile import site_profile
    from brio_core.system.files import write_text

    table = read_participants(arguments.cohort_dir / "participants.tsv")
    cohort = Cohort.load(arguments.cohort_dir)
    rows = table[["subject", "site", "label"]].copy()
    rows[["age", "male", "mean_fd"]] = cohort.covariates.astype(np.float64)
    rows = rows.assign(tr=table["tr"], frames=cohort.series.frames)
    rows = rows.assign(**site_profile(cohort.fc, cohort.site))
    text = rows.to_csv(sep="\t", index=False, float_format="%.6g", na_rep="n/a")
    write_text(arguments.out, text)
    outliers = (rows["outlier"] != "").sum()
    print(f"{len(rows)} subjects, {outliers} of them stand out by their connectivity")


if __name__ == "__main__":
    run(main)
