"""BRIO with shorter and longer blocks: frames, seconds and scores, cohorts one below the other."""

import numpy as np
import pandas as pd

from brio_core.reporting.blocks import part_of
from brio_core.reporting.cohorts import block_lengths, read_block_lengths
from brio_core.reporting.given import Given
from brio_core.reporting.results import SCORES, place_title, read_summaries
from brio_core.reporting.table import NOT_RUN, Cell, Row, Table, best, is_best, number, with_sd

OUTPUT = {"files": ["summaries", "block_lengths"]}

SCALE = "block_length_scale"


def make(given: Given) -> tuple[pd.DataFrame, Table]:
    """One row per cohort, protocol and planned variant; lengths are medians over folds."""
    lengths = read_block_lengths(given.files["block_lengths"])
    index = read_summaries(given.files["summaries"])
    index = index.drop_duplicates(["cohort", "protocol", "variant"])
    index = index.set_index(["cohort", "protocol", "variant"])
    rows = []
    for place in map(tuple, given.planned["pairs"]):
        for one in given.planned["variants"]:
            scale = float(one.get("change", {}).get(SCALE, 1.0))
            row = {"status": NOT_RUN, **dict(zip(("cohort", "protocol"), place))}
            row |= {"variant": one["variant"], "label": one["label"], "scale": scale}
            if place in lengths:
                row |= _lengths(*block_lengths(lengths[place], scale))
            key = (*place, one["variant"])
            if key in index.index:
                scores = [f"{s}_{what}" for s in SCORES for what in ("mean", "sd")]
                row |= {"status": "run", **{name: index.loc[key, name] for name in scores}}
            rows.append(row)
    table = pd.DataFrame(rows)
    lines = []
    for place in map(tuple, given.planned["pairs"]):
        own = part_of(table, *place)
        lines.append(Row((Cell(place_title(given.datasets, *place)),), heading=True))
        done = own[own["status"] == "run"]
        highest = {score: best(done[f"{score}_mean"].tolist()) for score in SCORES if len(done)}
        lines += [Row(_cells(row, highest)) for _, row in own.iterrows()]
    printed = given.table(
        ("Block length", "Frames", "Seconds", "AUC", "ACC"),
        lines,
        "Frames and seconds: median over folds, in brackets their range where folds differ. AUC "
        "and ACC in %: mean ± standard deviation over held-out sites, each averaged over seeds "
        "first. Bold: the highest of a cohort as printed.",
    )
    return table, printed


def _lengths(frames: np.ndarray, seconds: np.ndarray) -> dict:
    return {
        "frames": float(np.median(frames)),
        "frames_min": float(frames.min()),
        "frames_max": float(frames.max()),
        "seconds": float(np.median(seconds)),
    }


def _cells(row: pd.Series, highest: dict) -> tuple[Cell, ...]:
    scale = Cell(f"{row['scale']:g} ×")
    if row["status"] == NOT_RUN:
        return scale, *[Cell(NOT_RUN)] * 4
    low, high = row["frames_min"], row["frames_max"]
    scores = [
        with_sd(row[f"{s}_mean"], row[f"{s}_sd"], is_best(row[f"{s}_mean"], highest[s]))
        for s in SCORES
    ]
    span = "" if low == high else f"[{low:g}, {high:g}]"
    seconds = Cell(number(row["seconds"], ".1f"))
    return scale, Cell(f"{row['frames']:g}", span), seconds, *scores
