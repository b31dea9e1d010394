"""What training took, as measured by the training jobs themselves, beside the paper's figures."""

from collections.abc import Iterator

import pandas as pd

from brio_core.reporting.blocks import by_cohort, with_planned
from brio_core.reporting.given import Given
from brio_core.reporting.paper import paper_table
from brio_core.reporting.results import EXTERNAL, IDENTITY, PLACE, place_title, read_summaries
from brio_core.reporting.table import NONE, NOT_RUN, Cell, Table, duration, number

OUTPUT = {
    "files": ["summaries"],
    "page": "efficiency",
    "title": "Cost of training",
    "caption": "Time and memory, measured by the training jobs, beside the paper's figures.",
    "reads": ["config/paper/numbers.csv"],
}

MEASURED = (
    "seeds", "epochs", "seconds", "folds_together", "seconds_per_epoch", "peak_memory_gb",
    "parameters", "device",
)  # fmt: skip
PAPER = {"paper_seconds_per_epoch": "seconds_per_epoch", "paper_memory_gb": "gpu_memory_gb"}
COLUMNS = (
    "Method", "Seconds per epoch", "Paper (s)", "Memory (GB)", "Paper (GB)", "Folds at once",
    "Epochs", "Parameters", "Whole run", "Hardware",
)  # fmt: skip


def make(given: Given) -> tuple[pd.DataFrame, Table]:
    """One row per cohort, protocol and method; planned ones that were not run say so."""
    summaries = read_summaries(given.files["summaries"])
    # External code does not say what it took, and an ensemble is not trained.
    ours = summaries[~summaries["device"].isin([EXTERNAL, ""])].drop_duplicates(PLACE)
    table = with_planned(ours[[*IDENTITY, *MEASURED]], given)
    places = list(zip(table["cohort"], table["variant"]))
    for name, quantity in PAPER.items():
        table[name] = [paper_table("efficiency", *place).get(quantity) for place in places]
    printed = given.table(
        COLUMNS,
        by_cohort(table.astype({"parameters": float}), given, COLUMNS, _cells),
        "Seconds per epoch and fold, mean over folds and seeds: the time of a job divided by "
        "the epochs of all its folds, which train together. Memory: the highest of all seeds, "
        "of the GPU for all folds that train together, or of the whole process on a CPU. Whole "
        "run: all seeds, one after the other. Methods without epochs fit a path of penalties. "
        "The paper names no hardware and reports one fold alone, so its figures show an order and "
        "no ratio. The experiment one-fold measures ours of one fold alone.",
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
            seconds = (part["seconds"].astype(float) / part["seeds"].astype(float)).sum()
            yield (
                f"{place_title(datasets, cohort, protocol)}: one seed of {len(part)} methods on "
                f"{device}, one after the other, takes {seconds / 60:.1f} min."
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
