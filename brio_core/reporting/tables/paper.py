"""The paper's numbers and claims, which live in config/paper, and tables with some beside ours."""

from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pandas as pd

from brio_core.reporting import results
from brio_core.reporting.blocks import by_cohort, with_planned
from brio_core.reporting.catalogue import REFERENCE, Given, output
from brio_core.reporting.cohorts import (
    block_lengths,
    read_block_lengths,
    read_cohorts,
    read_regions,
    region_counts,
)
from brio_core.reporting.table import (
    NONE,
    NOT_RUN,
    Cell,
    Row,
    Table,
    duration,
    number,
    with_spread,
)

FOLDER = Path(__file__).resolve().parents[3] / "config" / "paper"
WORDS = ("table", "cohort", "protocol", "variant", "method", "quantity", "unit")
CLAIM = (
    "section", "claim", "quantity", "source", "measure", "first", "second", "expected", "unit",
)  # fmt: skip


@cache
def paper_numbers() -> pd.DataFrame:
    """Every number of the paper's tables, one row each, in the order of the tables."""
    return results.read_table(FOLDER / "numbers.csv", WORDS, ("paper",))


@cache
def paper_claims() -> pd.DataFrame:
    """Every claim of the paper that has a quantity, one row each."""
    return results.read_table(FOLDER / "claims.csv", CLAIM)


def paper_table(table: str, cohort: str, variant: str = "") -> dict[str, float]:
    """The numbers of one table of the paper, by quantity."""
    rows = paper_numbers()
    own = (rows["table"] == table) & (rows["cohort"] == cohort) & (rows["variant"] == variant)
    return dict(zip(rows.loc[own, "quantity"], rows.loc[own, "paper"]))


# The paper's name of each quantity, in the order of the columns.
COUNTS = ("samples", "patients", "controls", "sites")
FRAMES = ("time_points_mean", "time_points_sd", "time_points_min", "time_points_max")
DATASETS_COLUMNS = (
    "Cohort", "Task", "Subjects", "Patients", "Controls", "Sites", "Regions", "Frames",
    "Shortest–longest", "Block (frames)", "Block (s)",
)  # fmt: skip
BLOCKS = ("block_length_frames", "block_length_seconds")


@output(
    files=["inclusion", "participants", "regions", "block_lengths"],
    page="cohort",
    title="Statistics of the cohorts",
    caption="Subjects, sites and scans of every cohort, beside the paper's table of datasets.",
    reads=["config/paper/*.csv"],
)
def datasets_table(given: Given) -> tuple[pd.DataFrame, Table]:
    """Statistics of the cohorts, as the paper's table of datasets has them, beside its numbers.

    Two rows per cohort, ours and the paper's; what the paper does not give is empty.

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
        DATASETS_COLUMNS,
        tuple(Row(_datasets_cells(row, given.datasets)) for _, row in table.iterrows()),
        "Frames: mean ± standard deviation over subjects, after cleaning. Block: length of the "
        "blocks of the re-estimation when one site is left out, median over folds; seconds where "
        "the repetition time is known.",
        left=(0, 1),
    )
    return table, printed


def _datasets_cells(row: pd.Series, datasets: dict) -> tuple[Cell, ...]:
    is_ours = row["source"] == "ours"
    task = datasets.get(row["cohort"], {}).get("task", "")
    low, high = row["time_points_min"], row["time_points_max"]
    return (
        Cell(results.cohort_title(datasets, row["cohort"]) if is_ours else "in the paper"),
        Cell(task if is_ours else ""),
        *(Cell(number(row[name], ",.0f")) for name in (*COUNTS, "rois")),
        with_spread(row["time_points_mean"], row["time_points_sd"], ".2f"),
        Cell(NONE if pd.isna(low) else f"{low:.0f}–{high:.0f}"),
        *(Cell(number(row[name], ".3g")) for name in BLOCKS),
    )


MEASURED = (
    "seeds", "epochs", "seconds", "folds_together", "seconds_per_epoch", "peak_memory_gb",
    "parameters", "device",
)  # fmt: skip
PAPER = {"paper_seconds_per_epoch": "seconds_per_epoch", "paper_memory_gb": "gpu_memory_gb"}
COLUMNS = (
    "Method", "Seconds per epoch", "Paper (s)", "Memory (GB)", "Paper (GB)", "Folds at once",
    "Epochs", "Parameters", "Whole run", "Hardware",
)  # fmt: skip


@output(
    files=["summaries"],
    page="efficiency",
    title="Cost of training",
    caption="Time and memory, measured by the training jobs, beside the paper's figures.",
    reads=["config/paper/numbers.csv"],
)
def efficiency_table(given: Given) -> tuple[pd.DataFrame, Table]:
    """What training took, as measured by the training jobs themselves, beside the paper's figures.

    One row per cohort, protocol and method; planned ones that were not run say so.
    """
    summaries = results.read_summaries(given.files["summaries"])
    # External code does not say what it took, and an ensemble is not trained.
    ours = summaries[~summaries["device"].isin([results.EXTERNAL, ""])]
    table = with_planned(ours[[*results.IDENTITY, *MEASURED]], given)
    places = list(zip(table["cohort"], table["variant"]))
    for name, quantity in PAPER.items():
        table[name] = [paper_table("efficiency", *place).get(quantity) for place in places]
    printed = given.table(
        COLUMNS,
        by_cohort(table.astype({"parameters": float}), given, COLUMNS, _cells),
        "Seconds per epoch and fold, mean over the folds of the fastest seed: the time of a job "
        "divided by the epochs of all its folds, which train together. Memory: the highest of all "
        "seeds, of the GPU for all folds that train together, or of the whole process on a CPU. "
        "Seeds of one job may share a GPU: each has its share of the time, and the memory is that "
        "of all. Whole run: the fastest seed; others may have shared the machine. Methods "
        "without epochs fit a path of penalties. The paper names no hardware and reports one fold "
        "alone, so its figures show an order and no ratio. The experiment one-fold measures "
        "ours of one fold alone.",
        *_totals(table, given.datasets),
        left=(0, 9),
    )
    return table, printed


def _totals(rows: pd.DataFrame, datasets: dict) -> Iterator[str]:
    """What one seed of every method takes, for each cohort, protocol and device."""
    ran = rows[rows["status"] != NOT_RUN]
    groups = ran.groupby(["cohort", "protocol", "device"], sort=False)
    for (cohort, protocol, device), part in groups:
        if len(part) > 1:
            seconds = part["seconds"].astype(float).sum()
            yield (
                f"{results.place_title(datasets, cohort, protocol)}: one seed of {len(part)} "
                f"methods on {device}, one method after the other, takes {seconds / 60:.1f} min."
            )


def _cells(own: pd.DataFrame) -> list[Cell]:
    row = own.iloc[0]
    paper = [number(row[name], ".3g") for name in PAPER]
    if row["status"] == NOT_RUN:
        seconds, memory, *rest = [NOT_RUN] * 7
    else:
        seconds = number(row["seconds_per_epoch"], ".3g")
        memory = number(row["peak_memory_gb"], ".2f")
        counts = (("folds_together", ".0f"), ("epochs", ".0f"), ("parameters", ",.0f"))
        rest = [number(row[name], form) for name, form in counts]
        rest += [duration(row["seconds"]), row["device"] or NONE]
    return [Cell(text) for text in (seconds, paper[0], memory, paper[1], *rest)]
