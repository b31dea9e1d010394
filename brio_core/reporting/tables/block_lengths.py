"""BRIO with shorter and longer blocks: frames, seconds and scores, cohorts one below the other."""

from collections.abc import Callable

import pandas as pd

from brio_core.reporting.blocks import part_of, scored
from brio_core.reporting.cohorts import block_lengths, read_block_lengths
from brio_core.reporting.given import Given
from brio_core.reporting.paired import HEADS, compared, difference_cells
from brio_core.reporting.results import SCORES, place_title, read_sites, read_variants
from brio_core.reporting.table import NOT_RUN, Cell, Row, Table, heading, number

OUTPUT = {
    "files": ["summaries", "sites", "block_lengths"],
    "options": ["reference", "margin"],
}

SCALE = "block_length_scale"


def make(given: Given) -> tuple[pd.DataFrame, Table]:
    """One row per cohort, protocol and planned variant; lengths are medians over folds."""
    lengths = read_block_lengths(given.files["block_lengths"])
    index = read_variants(given.files["summaries"])
    rows = []
    for place in map(tuple, given.planned["pairs"]):
        for one in given.planned["variants"]:
            scale = float(one.get("change", {}).get(SCALE, 1.0))
            row = {"status": NOT_RUN, **dict(zip(("cohort", "protocol"), place))}
            row |= {"variant": one["variant"], "label": one["label"], "scale": scale}
            if place in lengths:
                frames, seconds = block_lengths(lengths[place], scale)
                row |= {"frames": frames.median(), "frames_min": frames.min()}
                row |= {"frames_max": frames.max(), "seconds": seconds.median()}
            key = (*place, one["variant"])
            if key in index.index:
                scores = [f"{s}_{what}" for s in SCORES for what in ("mean", "sd")]
                row |= {"status": "run", **{name: index.loc[key, name] for name in scores}}
            rows.append(row)
    sites = read_sites(given.files["sites"])
    table, notes = compared(pd.DataFrame(rows), sites, given, name="the estimated length")
    scores, lines = scored(table), []
    for place in map(tuple, given.planned["pairs"]):
        lines.append(heading(place_title(given.datasets, *place)))
        lines += [Row(_cells(row, scores)) for _, row in part_of(table, *place).iterrows()]
    printed = given.table(
        ("Block length", "Frames", "Seconds", "AUC", "ACC", "Difference", *HEADS),
        lines,
        "Frames and seconds: median over folds, in brackets their range where folds differ. AUC "
        "and ACC in %: mean ± standard deviation over held-out sites, each averaged over seeds "
        "first. Bold: the highest of a cohort as printed.",
        *notes,
    )
    return table, printed


def _cells(row: pd.Series, scores: Callable[[pd.Series], list[Cell]]) -> tuple[Cell, ...]:
    scale = Cell(f"{row['scale']:g} ×")
    if row["status"] == NOT_RUN:
        return scale, *[Cell(NOT_RUN)] * (5 + len(HEADS))
    low, high = row["frames_min"], row["frames_max"]
    span = "" if low == high else f"[{low:g}, {high:g}]"
    seconds = Cell(number(row["seconds"], ".1f"))
    return scale, Cell(f"{row['frames']:g}", span), seconds, *scores(row), *difference_cells(row)
