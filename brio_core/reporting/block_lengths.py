"""BRIO with shorter and longer blocks: frames, seconds and scores, cohorts one below the other."""

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from brio_core.reporting.results import cohort_title, ordered, protocol_title
from brio_core.reporting.results_table import SCORES
from brio_core.reporting.tables import NOT_RUN, Cell, Row, Table, best, is_best, with_sd
from brio_core.system.errors import BrioError
from brio_core.system.files import read_json

SHORTEST, LONGEST = 2, 30  # Eq. app_block_length_range
SETTING = "block_length_scale"


def read_block_lengths(paths: Sequence[str | Path]) -> dict[str | Path, tuple[str, str]]:
    """The cohort and protocol of each block-length file."""
    contents = {path: read_json(path) for path in paths}
    return {path: (one["cohort"], one["protocol"]) for path, one in contents.items()}


def block_lengths(path: str | Path, scale: float) -> tuple[np.ndarray, np.ndarray]:
    """Frames and seconds (NaN if unknown) of every fold at a multiple of its estimate."""
    content = read_json(path)
    try:
        estimates = np.array([fold["estimate"] for fold in content["folds"]], float)
        second = [
            fold["seconds"] / fold["block_length"] if fold.get("seconds") else math.nan
            for fold in content["folds"]
        ]
    except KeyError as error:
        raise BrioError(f"{path} has no {error} in a fold; delete it and run again") from None
    # Half up, as in training.
    frames = np.clip(np.floor(scale * estimates + 0.5), SHORTEST, LONGEST)
    return frames, frames * np.array(second)


def block_length_rows(
    summaries: pd.DataFrame, files: Sequence[str | Path], planned: dict
) -> pd.DataFrame:
    """One row per cohort, protocol and planned variant; lengths are medians over folds."""
    contents = {pair: path for path, pair in read_block_lengths(files).items()}
    index = summaries.drop_duplicates(["cohort", "protocol", "variant"])
    index = index.set_index(["cohort", "protocol", "variant"])
    rows = []
    for cohort, protocol in map(tuple, planned["pairs"]):
        for one in planned["variants"]:
            scale = float(one.get("change", {}).get(SETTING, 1.0))
            row = {"status": NOT_RUN, "cohort": cohort, "protocol": protocol}
            row |= {"variant": one["variant"], "label": one["label"], "scale": scale}
            if (cohort, protocol) in contents:
                row |= _lengths(*block_lengths(contents[cohort, protocol], scale))
            key = (cohort, protocol, one["variant"])
            if key in index.index:
                scores = [f"{s}_{what}" for s in SCORES for what in ("mean", "sd")]
                row |= {"status": "run", **{name: index.loc[key, name] for name in scores}}
            rows.append(row)
    return pd.DataFrame(rows)


def _lengths(frames: np.ndarray, seconds: np.ndarray) -> dict:
    return {
        "frames": float(np.median(frames)),
        "frames_min": float(frames.min()),
        "frames_max": float(frames.max()),
        "seconds": float(np.median(seconds)),
    }


def block_length_table(rows: pd.DataFrame, experiment: dict, datasets: dict) -> Table:
    """What :func:`block_length_rows` found."""
    lines = []
    for key in ordered(zip(rows["cohort"], rows["protocol"])):
        own = rows[(rows["cohort"] == key[0]) & (rows["protocol"] == key[1])]
        name = f"{cohort_title(datasets, key[0])}, {protocol_title(key[1])}"
        lines.append(Row((Cell(name),), heading=True))
        done = own[own["status"] == "run"]
        highest = {score: best(done[f"{score}_mean"].tolist()) for score in SCORES if len(done)}
        lines += [Row(_cells(row, highest)) for _, row in own.iterrows()]
    return Table(
        title=experiment.get("title", "Block length"),
        caption=experiment.get("caption", ""),
        columns=("Block length", "Frames", "Seconds", "AUC", "ACC"),
        rows=tuple(lines),
        notes=(
            "Frames and seconds: median over folds, in brackets their range where folds differ. "
            "AUC and ACC in %: mean ± standard deviation over held-out sites, each averaged over "
            "seeds first. Bold: the highest of a cohort as printed.",
        ),
    )


def _cells(row: pd.Series, highest: dict) -> tuple[Cell, ...]:
    scale = Cell(f"{row['scale']:g} ×")
    if row["status"] == NOT_RUN:
        return scale, *[Cell(NOT_RUN)] * 4
    low, high = row["frames_min"], row["frames_max"]
    scores = [
        with_sd(row[f"{s}_mean"], row[f"{s}_sd"], is_best(row[f"{s}_mean"], highest[s]))
        for s in SCORES
    ]
    seconds = "–" if math.isnan(row["seconds"]) else f"{row['seconds']:.1f}"
    span = "" if low == high else f"[{low:g}, {high:g}]"
    return scale, Cell(f"{row['frames']:g}", span), Cell(seconds), *scores
