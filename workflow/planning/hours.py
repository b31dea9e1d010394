"""GPU hours of a whole configuration, estimated from seconds that were measured on one cohort.

Time is taken to grow with subjects, folds and epochs. Regions, early stopping and what a variant
changes are left out of account.
"""

import csv
import re
from collections import defaultdict
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import NamedTuple

from brio_core.system.versions import ROOT
from workflow.planning.configuration import Configuration
from workflow.planning.files import ConfigurationError
from workflow.planning.runs import Run, experiment_runs

PAPER = ROOT / "config" / "paper" / "table_datasets.csv"
# Row of the table of times with what every run takes beside training in a warm process.
START = "start of a run"
ID_FOLDS = 10


class Size(NamedTuple):
    """What the time of a run grows with, beside its epochs."""

    subjects: int
    sites: int

    def work(self, protocol: str) -> int:
        """Subjects times folds."""
        return self.subjects * (ID_FOLDS if protocol == "id" else self.sites)


@dataclass(frozen=True)
class Times:
    """What benchmarks/methods.py printed: seconds and epochs by method and settings tried."""

    machine: str
    measured: Size
    rows: dict[tuple[str, int], tuple[float, int]]

    @property
    def start(self) -> float:
        """Seconds of a run beside its training."""
        return self.rows.get((START, 1), (0.0, 0))[0]

    def training(self, method: str, tried: int, epochs: int) -> float | None:
        """Seconds on the cohort that was measured; None for a method that was not."""
        times = 1
        if (method, tried) not in self.rows:
            times, tried = tried, 1
        if (method, tried) not in self.rows:
            return None
        seconds, measured = self.rows[method, tried]
        return times * seconds * epochs / measured


def read_times(path: Path) -> Times:
    """Read a table that benchmarks/methods.py has printed."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
        machine, _, about = lines[0].partition("; ")
        size = re.search(r"([\d,]+) subjects, (\d+) sites", about)
        measured = Size(int(size[1].replace(",", "")), int(size[2]))
        header, _, *table = [_cells(line) for line in lines if line.startswith("|")]
        rows = {}
        for line in table:
            row = dict(zip(header, line))
            tried = int(row["tries"] or 1)
            rows[row["method"], tried] = float(row["seconds"]), int(row["epochs"] or 0)
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise ConfigurationError(
            f"{path} is no table of benchmarks/methods.py ({error}); print one with that program"
        ) from None
    return Times(machine, measured, rows)


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip("|").split("|")]


def cohort_size(cohort: str, results: Path) -> Size | None:
    """Subjects and sites that are there, else those of the paper."""
    path = results / "cohorts" / cohort / "participants.tsv"
    if path.is_file():
        with open(path, newline="", encoding="utf-8") as stream:
            sites = [row["site"] for row in csv.DictReader(stream, delimiter="\t")]
        return Size(len(sites), len(set(sites)))
    with open(PAPER, newline="", encoding="utf-8") as stream:
        for row in csv.DictReader(stream):
            if cohort in [f"{row['dataset']}-{name}" for name in row["parcellations"].split(";")]:
                return Size(int(row["samples"]), int(row["sites"]))
    return None


@dataclass
class Estimate:
    """Cells and seconds by cohort and by experiment, and what could not be counted."""

    runs: dict[str, int]
    seconds: dict[str, float]
    unknown: set[str]


def estimate(configuration: Configuration, times: Times, results: Path) -> Estimate:
    """A run of several experiments is counted with the first."""
    found = Estimate(defaultdict(int), defaultdict(float), set())
    sizes = {name: cohort_size(name, results) for name in configuration.config["cohorts"]}
    seen: set[Run] = set()
    for experiment in configuration.config["experiments"]:
        for run in experiment_runs(configuration, experiment):
            if run in seen or not configuration.method_of(run.variant)["gpu"]:
                continue
            seen.add(run)
            params = configuration.train_params(run.variant)
            tried = prod(map(len, params["search"].values()))
            seconds = times.training(
                params["method"], tried, params["hyperparameters"].get("epochs", 0)
            )
            size = sizes[run.cohort]
            if seconds is None or size is None:
                found.unknown.add(params["method"] if size else run.cohort)
                continue
            share = size.work(run.protocol) / times.measured.work("loso")
            for key in (run.cohort, experiment):
                found.runs[key] += 1
                found.seconds[key] += seconds * share + times.start
    return found


def report(configuration: Configuration, times: Times, results: Path, title: str) -> str:
    """The estimate as Markdown."""
    found = estimate(configuration, times, results)
    lines = [f"{title}: GPU hours on one {times.machine}; an estimate", ""]
    for kind in ("experiments", "cohorts"):
        names = [name for name in configuration.config[kind] if found.runs[name]]
        lines += [f"| {kind[:-1]} | runs | GPU hours |", "| --- | --- | --- |"]
        lines += [_row(name, found.runs[name], found.seconds[name]) for name in names]
        runs, seconds = (sum(of[name] for name in names) for of in (found.runs, found.seconds))
        lines += [_row("all", runs, seconds), ""]
    if found.unknown:
        names = ", ".join(sorted(found.unknown))
        lines += [f"Not counted, because their time or size is not known: {names}.", ""]
    return "\n".join(lines[:-1])


def _row(name: str, runs: int, seconds: float) -> str:
    return f"| {name} | {runs:,} | {seconds / 3600:.1f} |"
