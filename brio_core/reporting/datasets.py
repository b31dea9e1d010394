"""Statistics of the cohorts, as the paper's table of datasets has them, beside its numbers."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from brio_core.reporting.block_lengths import block_lengths, read_block_lengths
from brio_core.reporting.cohorts import CohortTables
from brio_core.reporting.paper import paper_numbers
from brio_core.reporting.results import cohort_title
from brio_core.reporting.tables import Cell, Row, Table

# The paper's name of each quantity, in the order of the columns.
COUNTS = ("samples", "patients", "controls", "sites")
FRAMES = ("time_points_mean", "time_points_sd", "time_points_min", "time_points_max")
BLOCKS = ("block_length_frames", "block_length_seconds")


def dataset_rows(
    cohorts: Sequence[CohortTables], files: Sequence[str | Path], paper: str | Path, datasets: dict
) -> pd.DataFrame:
    """Two rows per cohort, ours and the paper's; what the paper does not give is empty.

    Block lengths are medians over the folds of leaving one site out.
    """
    pairs = {pair: path for path, pair in read_block_lengths(files).items()}
    printed = paper_numbers(paper)
    rows = []
    for cohort in cohorts:
        rois = datasets.get(cohort.name, {}).get("rois", {}).get("expected")
        ours = {"rois": rois, **_counts(cohort)}
        if (cohort.name, "loso") in pairs:
            frames, seconds = block_lengths(pairs[cohort.name, "loso"], 1.0)
            ours |= dict(zip(BLOCKS, (np.median(frames), np.median(seconds))))
        rows.append({"cohort": cohort.name, "source": "ours", **ours})
        theirs = _printed(printed, cohort.name)
        if theirs:
            rows.append({"cohort": cohort.name, "source": "paper", "rois": rois, **theirs})
    order = ["cohort", "source", *COUNTS, "rois", *FRAMES, *BLOCKS]
    return pd.DataFrame(rows).reindex(columns=order)


def _counts(cohort: CohortTables) -> dict:
    people = cohort.participants
    frames = cohort.inclusion.loc[cohort.inclusion["kept"] == "yes", "frames_after"]
    return {
        "samples": len(people),
        "patients": int((people["label"] == 1).sum()),
        "controls": int((people["label"] == 0).sum()),
        "sites": people["site"].nunique(),
        **dict(zip(FRAMES, (frames.mean(), frames.std(ddof=1), frames.min(), frames.max()))),
    }


def _printed(numbers: pd.DataFrame, cohort: str) -> dict:
    own = numbers[numbers["cohort"] == cohort]
    datasets = own[own["table"] == "datasets"]
    blocks = own[(own["table"] == "block_length") & (own["variant"] == "brio")]
    wanted = pd.concat([datasets, blocks[blocks["quantity"].isin(BLOCKS)]])
    return dict(zip(wanted["quantity"], wanted["paper"]))


def dataset_table(rows: pd.DataFrame, words: dict, datasets: dict) -> Table:
    """A line for each cohort, and below it the paper's where it has one."""
    lines = []
    for _, row in rows.iterrows():
        is_ours = row["source"] == "ours"
        task = datasets.get(row["cohort"], {}).get("task", "")
        lines.append(
            Row(
                (
                    Cell(cohort_title(datasets, row["cohort"]) if is_ours else "in the paper"),
                    Cell(task if is_ours else ""),
                    *(Cell(_whole(row[name])) for name in (*COUNTS, "rois")),
                    _frames(row),
                    Cell(_range(row)),
                    Cell(_number(row["block_length_frames"])),
                    Cell(_number(row["block_length_seconds"])),
                )
            )
        )
    return Table(
        title=words["title"],
        caption=words["caption"],
        columns=(
            "Cohort", "Task", "Subjects", "Patients", "Controls", "Sites", "Regions", "Frames",
            "Shortest–longest", "Block (frames)", "Block (s)",
        ),
        rows=tuple(lines),
        notes=(
            "Frames: mean ± standard deviation over subjects, after cleaning. Block: length of "
            "the blocks of the re-estimation when one site is left out, median over folds; "
            "seconds where the repetition time is known.",
        ),
        section="cohort",
        left=(0, 1),
    )  # fmt: skip


def _whole(value: float) -> str:
    return "–" if pd.isna(value) else f"{value:,.0f}"


def _number(value: float) -> str:
    return "–" if pd.isna(value) else f"{value:.3g}"


def _frames(row: pd.Series) -> Cell:
    mean, sd = row["time_points_mean"], row["time_points_sd"]
    if pd.isna(mean):
        return Cell("–")
    return Cell(f"{mean:.2f}", "" if pd.isna(sd) else f"± {sd:.2f}")


def _range(row: pd.Series) -> str:
    low, high = row["time_points_min"], row["time_points_max"]
    return "–" if pd.isna(low) else f"{low:.0f}–{high:.0f}"
