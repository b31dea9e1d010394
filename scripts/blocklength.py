"""Estimate the block length of every fold from its training subjects."""

import argparse
from pathlib import Path

from brio_core.system.cli import json_argument, run


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--series", type=Path, required=True)
    parser.add_argument("--participants", type=Path, required=True)
    parser.add_argument("--split", type=Path, required=True)
    parser.add_argument(
        "--settings", type=json_argument, required=True,
        help="JSON object: threshold, max_lag, subjects, rois, products, quantile",
    )  # fmt: skip
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()

    import numpy as np
    import pandas as pd

    from brio_core.cohorts.cohort import read_participants
    from brio_core.cohorts.splits import read_split
    from brio_core.cohorts.stores import read_series
    from brio_core.connectivity.block_length import fold_block_length, round_half_up
    from brio_core.system.errors import BrioError
    from brio_core.system.files import write_json

    series = read_series(arguments.series)
    table = read_participants(arguments.participants)
    split = read_split(arguments.split)
    if not list(series.subjects) == split["subjects"] == table["subject"].tolist():
        raise BrioError(
            f"{arguments.series}, {arguments.participants} and {arguments.split} list different "
            "subjects; run the workflow again so that they are made from the same cohort"
        )
    repetition_time = pd.to_numeric(table["tr"], errors="coerce").to_numpy()
    folds = []
    for fold in split["folds"]:
        estimate = fold_block_length(fold, split, series, **arguments.settings)
        block_length = round_half_up(estimate)
        known = repetition_time[fold["train"]]
        known = known[np.isfinite(known)]
        print(f"{fold['name']}: estimate {estimate:g}, blocks of {block_length} frames")
        folds.append(
            {
                "name": fold["name"],
                "estimate": estimate,
                "block_length": block_length,
                # Where repetition times are known.
                "seconds": block_length * float(np.median(known)) if len(known) else None,
            }
        )
    content = {
        "cohort": split["cohort"],
        "protocol": split["protocol"],
        "split_checksum": split["checksum"],
        "settings": arguments.settings,
        "folds": folds,
    }
    write_json(arguments.out, content)


if __name__ == "__main__":
    run(main)
