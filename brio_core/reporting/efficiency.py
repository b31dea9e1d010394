"""What training took, as measured by the training jobs themselves, beside the paper's figures."""

from collections.abc import Iterator
from pathlib import Path

import pandas as pd

from brio_core.reporting.blocks import blocks
from brio_core.reporting.paper import paper_method, read_efficiency
from brio_core.reporting.results import (
    EXTERNAL,
    cohort_title,
    in_paper_order,
    ordered,
    protocol_title,
)
from brio_core.reporting.results_table import VARIANT_WORDS
from brio_core.reporting.tables import NOT_RUN, Cell, Table

COLUMNS = (
    "seeds", "epochs", "seconds", "folds_together", "seconds_per_epoch", "peak_memory_gb",
    "parameters", "device",
)  # fmt: skip
PAPER = {"paper_seconds_per_epoch": "seconds_per_epoch", "paper_memory_gb": "gpu_memory_gb"}


def efficiency_rows(summaries: pd.DataFrame, planned: dict, paper: str | Path) -> pd.DataFrame:
    """One row per cohort, protocol and method; planned ones that were not run say so."""
    summaries = summaries[summaries["device"] != EXTERNAL]
    known = read_efficiency(paper)
    known = {(paper_method(row["method"]), row["setting"]): row for _, row in known.iterrows()}
    index = summaries.drop_duplicates(["cohort", "protocol", "variant"])
    index = index.set_index(["cohort", "protocol", "variant"])
    present = zip(summaries["cohort"], summaries["protocol"])
    variants = pd.concat([summaries, pd.DataFrame(planned["variants"])])[list(VARIANT_WORDS)]
    rows = []
    for cohort, protocol in ordered([*map(tuple, planned["pairs"]), *present]):
        for _, method in in_paper_order(variants.drop_duplicates("variant")).iterrows():
            key = (cohort, protocol, method["variant"])
            was_run = key in index.index
            figures = known.get((method["variant"], cohort), {})
            rows.append(
                {"status": "run" if was_run else NOT_RUN, "cohort": cohort, "protocol": protocol}
                | {name: method[name] for name in VARIANT_WORDS}
                | {name: index.loc[key, name] if was_run else None for name in COLUMNS}
                | {name: figures.get(column) for name, column in PAPER.items()}
            )
    return pd.DataFrame(rows)


def efficiency_table(rows: pd.DataFrame, experiment: dict, datasets: dict) -> Table:
    """What :func:`efficiency_rows` found, cohorts one below the other."""
    notes = (
        "Seconds per epoch and fold, mean over folds and seeds: the time of a job divided by "
        "the epochs of all its folds, which train together. Memory: the highest of all seeds, "
        "of the GPU for all folds that train together, or of the whole process on a CPU. Whole "
        "cell: all seeds, one after the other. Methods without epochs fit a "
        "path of penalties. The paper names no hardware, so its figures show an order and no "
        "ratio.",
    )
    notes += tuple(_totals(rows, datasets))
    return Table(
        title=experiment.get("title", "Cost of training"),
        caption=experiment.get("caption", ""),
        columns=(
            "Method", "Seconds per epoch", "Paper (s)", "Memory (GB)", "Paper (GB)",
            "Folds at once", "Epochs", "Parameters", "Whole cell", "Hardware",
        ),
        rows=blocks(rows, datasets, _cells),
        notes=notes,
        section="efficiency",
        left=(0, 9),
    )  # fmt: skip


def _totals(rows: pd.DataFrame, datasets: dict) -> Iterator[str]:
    """What one seed of every method takes, for each cohort, protocol and device."""
    ran = rows[rows["status"] != NOT_RUN]
    for (cohort, protocol, device), part in ran.groupby(
        ["cohort", "protocol", "device"], sort=False
    ):
        if len(part) > 1:
            seconds = (part["seconds"].astype(float) / part["seeds"].astype(float)).sum()
            yield (
                f"{cohort_title(datasets, cohort)}, {protocol_title(protocol)}: one seed of "
                f"{len(part)} methods on {device}, one after the other, takes "
                f"{seconds / 60:.1f} min."
            )


def _cells(row: pd.Series) -> list[Cell]:
    paper = [_number(row[name], ".3g") for name in PAPER]
    if row["status"] == NOT_RUN:
        ours = [NOT_RUN] * 7
    else:
        ours = [
            _number(row["seconds_per_epoch"], ".3g"),
            _number(row["peak_memory_gb"], ".2f"),
            _number(row["folds_together"], ".0f"),
            _number(row["epochs"], ".0f"),
            _number(row["parameters"], ",.0f"),
            duration(row["seconds"]),
            row["device"] or "–",
        ]
    seconds, memory, *rest = ours
    return [Cell(text) for text in (seconds, paper[0], memory, paper[1], *rest)]


def _number(value: float | None, form: str) -> str:
    return "–" if pd.isna(value) else format(float(value), form)


def duration(seconds: float | None) -> str:
    """Seconds, minutes or hours, whichever is read most easily."""
    if pd.isna(seconds):
        return "–"
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
