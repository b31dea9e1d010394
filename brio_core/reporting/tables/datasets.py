"""Statistics of the cohorts, as the paper's table of datasets has them, beside its numbers."""

import pandas as pd

from brio_core.reporting.catalogue import REFERENCE
from brio_core.reporting.cohorts import (
    block_lengths,
    read_block_lengths,
    read_cohorts,
    read_regions,
    region_counts,
)
from brio_core.reporting.given import Given
from brio_core.reporting.paper import paper_table
from brio_core.reporting.results import cohort_title
from brio_core.reporting.table import NONE, Cell, Row, Table, number, with_spread

OUTPUT = {
    "files": ["inclusion", "participants", "regions", "block_lengths"],
    "page": "cohort",
    "title": "Statistics of the cohorts",
    "caption": "Subjects, sites and scans of every cohort, beside the paper's table of datasets.",
    "reads": ["config/paper/*.csv"],
}

# The paper's name of each quantity, in the order of the columns.
COUNTS = ("samples", "patients", "controls", "sites")
FRAMES = ("time_points_mean", "time_points_sd", "time_points_min", "time_points_max")
COLUMNS = (
    "Cohort", "Task", "Subjects", "Patients", "Controls", "Sites", "Regions", "Frames",
    "Shortest–longest", "Block (frames)", "Block (s)",
)  # fmt: skip
BLOCKS = ("block_length_frames", "block_length_seconds")


def make(given: Given) -> tuple[pd.DataFrame, Table]:
    """Two rows per cohort, ours and the paper's; what the paper does not give is empty.

    Block lengths are medians over the folds of leaving one site out.
    """
    lengths = read_block_lengths(given.files["block_lengths"])
    regions = read_regions(given.files["regions"])
    rows = []
    for cohort in read_cohorts(given.files["inclusion"], given.files["participants"]):
        every, used = region_counts(regions[cohort.name])
        ours = {"rois": used, **cohort.statistics}
        if (cohort.name, "loso") in lengths:
            frames, seconds = block_lengths(lengths[cohort.name, "loso"], 1.0)
            ours |= dict(zip(BLOCKS, (frames.median(), seconds.median())))
        rows.append({"cohort": cohort.name, "source": "ours", **ours})
        theirs = paper_table("datasets", cohort.name)
        if theirs:
            blocks = paper_table("block_length", cohort.name, REFERENCE)
            theirs |= {name: blocks[name] for name in BLOCKS if name in blocks}
            rows.append({"cohort": cohort.name, "source": "paper", "rois": every, **theirs})
    order = ["cohort", "source", *COUNTS, "rois", *FRAMES, *BLOCKS]
    table = pd.DataFrame(rows).reindex(columns=order)
    printed = given.table(
        COLUMNS,
        tuple(Row(_cells(row, given.datasets)) for _, row in table.iterrows()),
        "Frames: mean ± standard deviation over subjects, after cleaning. Block: length of the "
        "blocks of the re-estimation when one site is left out, median over folds; seconds where "
        "the repetition time is known.",
        left=(0, 1),
    )
    return table, printed


def _cells(row: pd.Series, datasets: dict) -> tuple[Cell, ...]:
    is_ours = row["source"] == "ours"
    task = datasets.get(row["cohort"], {}).get("task", "")
    low, high = row["time_points_min"], row["time_points_max"]
    return (
        Cell(cohort_title(datasets, row["cohort"]) if is_ours else "in the paper"),
        Cell(task if is_ours else ""),
        *(Cell(number(row[name], ",.0f")) for name in (*COUNTS, "rois")),
        with_spread(row["time_points_mean"], row["time_points_sd"], ".2f"),
        Cell(NONE if pd.isna(low) else f"{low:.0f}–{high:.0f}"),
        *(Cell(number(row[name], ".3g")) for name in BLOCKS),
    )
