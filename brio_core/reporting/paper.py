"""The paper's numbers, which live in config/paper and nowhere else, one row per number."""

import re
from collections.abc import Iterator
from pathlib import Path

import pandas as pd

from brio_core.reporting.results import read_table
from brio_core.system.errors import BrioError

TITLES = {
    "loso": "Results on unseen sites",
    "id": "Results on sites seen in training",
    "block_length": "Sensitivity to block length",
    "efficiency": "Training time and memory",
    "datasets": "Statistics of the datasets",
}
COLUMNS = ("table", "cohort", "protocol", "variant", "method", "quantity", "unit", "paper")
SCALES = {0.5: "brio-block0.5x", 1.0: "brio", 2.0: "brio-block2x"}
UNITS = {"seconds_per_epoch": "s", "gpu_memory_gb": "GB", "block_length_frames": "frames",
         "block_length_seconds": "s"}  # fmt: skip


def paper_method(name: str) -> str:
    """Our key of a method that the paper names."""
    return name.lower()


def read_efficiency(path: str | Path) -> pd.DataFrame:
    """Seconds per epoch and memory by method and cohort."""
    return read_table(path, ("method", "setting"), ("seconds_per_epoch", "gpu_memory_gb"))


def paper_numbers(folder: str | Path) -> pd.DataFrame:
    """Every number of the paper's tables, in the order of the tables."""
    folder = Path(folder)
    rows = [
        *_scores(folder, "loso"),
        *_scores(folder, "id"),
        *_block_lengths(folder),
        *_efficiency(folder),
        *_datasets(folder),
    ]
    return pd.DataFrame(rows, columns=list(COLUMNS))


def _scores(folder: Path, protocol: str) -> Iterator[tuple]:
    words = ("protocol", "method", "setting", "metric")
    table = read_table(folder / f"table_{protocol}.csv", words, ("mean", "sd"))
    for _, row in table.iterrows():
        key = (protocol, row["setting"], protocol, paper_method(row["method"]), row["method"])
        for what in ("mean", "sd"):
            yield (*key, f"{row['metric']}_{what}", "%", row[what])


def _block_lengths(folder: Path) -> Iterator[tuple]:
    quantities = ("block_length_frames", "block_length_seconds", "auc_mean", "auc_sd", "acc_mean",
                  "acc_sd")  # fmt: skip
    table = read_table(folder / "table_block_length.csv", ("setting",), ("scale", *quantities))
    for _, row in table.iterrows():
        variant = SCALES[row["scale"]]
        label = f"BRIO, {row['scale']:g} ×"
        for name in quantities:
            unit = UNITS.get(name, "%")
            yield "block_length", row["setting"], "loso", variant, label, name, unit, row[name]


def _efficiency(folder: Path) -> Iterator[tuple]:
    for _, row in read_efficiency(folder / "table_efficiency.csv").iterrows():
        key = ("efficiency", row["setting"], "loso", paper_method(row["method"]), row["method"])
        for name in ("seconds_per_epoch", "gpu_memory_gb"):
            yield (*key, name, UNITS[name], row[name])


def _datasets(folder: Path) -> Iterator[tuple]:
    path = folder / "table_datasets.csv"
    counts = ("samples", "patients", "controls", "sites")
    table = read_table(path, ("dataset", "parcellations", "time_points"), counts)
    for _, row in table.iterrows():
        for parcellation in row["parcellations"].split(";"):
            key = ("datasets", f"{row['dataset']}-{parcellation}", "", "", "")
            for name in counts:
                yield (*key, name, "", row[name])
            for name, value in _time_points(row["time_points"], path).items():
                yield (*key, name, "frames", value)


def _time_points(text: str, path: Path) -> dict[str, float]:
    """The paper prints mean and deviation, a range, or one number for all scans."""
    number = r"(\d+(?:\.\d+)?)"
    for pattern, names in (
        (rf"{number} \+- {number}", ("time_points_mean", "time_points_sd")),
        (rf"{number}-{number}", ("time_points_min", "time_points_max")),
        (number, ("time_points_mean",)),
    ):
        found = re.fullmatch(pattern, text)
        if found:
            return dict(zip(names, map(float, found.groups())))
    raise BrioError(f"{path}: time_points {text!r} is no number, range or mean +- deviation")
