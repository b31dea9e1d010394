"""The paper's numbers, which live in config/paper and nowhere else, one row per number."""

import re
from collections.abc import Iterator
from pathlib import Path

import pandas as pd

from brio_core.reporting.results import REFERENCE, read_table
from brio_core.system.errors import BrioError

FOLDER = Path(__file__).resolve().parents[2] / "config" / "paper"
TITLES = {
    "loso": "Results on unseen sites",
    "id": "Results on sites seen in training",
    "block_length": "Sensitivity to block length",
    "efficiency": "Training time and memory",
    "datasets": "Statistics of the datasets",
}
COLUMNS = ("table", "cohort", "protocol", "variant", "method", "quantity", "unit", "paper")
SCALES = {0.5: "brio-block0.5x", 1.0: REFERENCE, 2.0: "brio-block2x"}
UNITS = {"seconds_per_epoch": "s", "gpu_memory_gb": "GB", "block_length_frames": "frames",
         "block_length_seconds": "s"}  # fmt: skip


def paper_method(name: str) -> str:
    """Our key of a method that the paper names."""
    return name.lower()


def read_efficiency() -> list[dict]:
    """Seconds per epoch and memory by method and cohort."""
    return _read("efficiency", ("method", "setting"), ("seconds_per_epoch", "gpu_memory_gb"))


def _read(name: str, words: tuple[str, ...], numbers: tuple[str, ...]) -> list[dict]:
    return read_table(FOLDER / f"table_{name}.csv", words, numbers).to_dict("records")


def paper_numbers() -> pd.DataFrame:
    """Every number of the paper's tables, in the order of the tables."""
    rows = [
        *_scores("loso"), *_scores("id"), *_block_lengths(), *_efficiency(), *_datasets(),
    ]  # fmt: skip
    return pd.DataFrame(rows, columns=list(COLUMNS))


def _scores(protocol: str) -> Iterator[tuple]:
    words = ("protocol", "method", "setting", "metric")
    for row in _read(protocol, words, ("mean", "sd")):
        key = (protocol, row["setting"], protocol, paper_method(row["method"]), row["method"])
        for what in ("mean", "sd"):
            yield (*key, f"{row['metric']}_{what}", "%", row[what])


def _block_lengths() -> Iterator[tuple]:
    quantities = ("block_length_frames", "block_length_seconds", "auc_mean", "auc_sd", "acc_mean",
                  "acc_sd")  # fmt: skip
    for row in _read("block_length", ("setting",), ("scale", *quantities)):
        variant = SCALES[row["scale"]]
        label = f"BRIO, {row['scale']:g} ×"
        for name in quantities:
            unit = UNITS.get(name, "%")
            yield "block_length", row["setting"], "loso", variant, label, name, unit, row[name]


def _efficiency() -> Iterator[tuple]:
    for row in read_efficiency():
        key = ("efficiency", row["setting"], "loso", paper_method(row["method"]), row["method"])
        for name in ("seconds_per_epoch", "gpu_memory_gb"):
            yield (*key, name, UNITS[name], row[name])


def _datasets() -> Iterator[tuple]:
    counts = ("samples", "patients", "controls", "sites")
    for row in _read("datasets", ("dataset", "parcellations", "time_points"), counts):
        for parcellation in row["parcellations"].split(";"):
            key = ("datasets", f"{row['dataset']}-{parcellation}", "", "", "")
            for name in counts:
                yield (*key, name, "", row[name])
            for name, value in _time_points(row["time_points"]).items():
                yield (*key, name, "frames", value)


def _time_points(text: str) -> dict[str, float]:
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
    raise BrioError(
        f"{FOLDER}/table_datasets.csv: time_points {text!r} is neither a number, nor a range, nor "
        "mean +- deviation; correct it"
    )
