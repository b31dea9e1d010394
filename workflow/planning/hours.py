"""GPU hours of a whole configuration, estimated from seconds that were measured on one cohort.

Time is taken to grow with subjects, folds and epochs. Regions and what a variant changes are left
out of account, and so is early stopping unless the measured runs have stopped early.
"""

import csv
import re
from collections import defaultdict
from math import prod
from pathlib import Path
from typing import NamedTuple

from brio_core.system.files import ROOT
from workflow.planning.configuration import Configuration
from workflow.planning.files import ConfigurationError
from workflow.planning.paths import Run
from workflow.planning.runs import experiment_runs

PAPER = ROOT / "config" / "paper" / "numbers.csv"
# Row of the table of times with what a job takes beside training in a warm process; all seeds of a
# variant are one job.
START = "start of a run"
ID_FOLDS = 10


class Size(NamedTuple):
    """What the time of a run grows with, beside its epochs."""

    subjects: int
    sites: int

    def work(self, protocol: str) -> int:
        """Subjects times folds."""
        return self.subjects * (ID_FOLDS if protocol == "id" else self.sites)


class Times(NamedTuple):
    """What benchmarks/methods.py printed: seconds and epochs of every method, tried once."""

    machine: str
    measured: Size
    rows: dict[str, tuple[float, int]]


def read_times(path: Path) -> Times:
    """Read a table that benchmarks/methods.py has printed."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
        machine, _, about = lines[0].partition("; ")
        subjects, sites = re.search(r"([\d,]+) subjects, (\d+) sites", about).groups()
        table = [line.strip("|").split("|") for line in lines if line.startswith("|")]
        header, _, *table = [[text.strip() for text in line] for line in table]
        rows = [dict(zip(header, line)) for line in table]
        once = [row for row in rows if row["tries"] in ("", "1")]
        times = {row["method"]: (float(row["seconds"]), int(row["epochs"] or 0)) for row in once}
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        raise ConfigurationError(
            f"{path} is no table of benchmarks/methods.py ({error}); print one with that program"
        ) from None
    return Times(machine, Size(int(subjects.replace(",", "")), int(sites)), times)


def cohort_size(cohort: str, results: Path) -> Size | None:
    """Subjects and sites that are there, else those of the paper."""
    path = results / "cohorts" / cohort / "participants.tsv"
    if path.is_file():
        with open(path, newline="", encoding="utf-8") as stream:
            sites = [row["site"] for row in csv.DictReader(stream, delimiter="\t")]
        return Size(len(sites), len(set(sites)))
    with open(PAPER, newline="", encoding="utf-8") as stream:
        rows = [row for row in csv.DictReader(stream) if row["table"] == "datasets"]
    known = {row["quantity"]: row["paper"] for row in rows if row["cohort"] == cohort}
    return Size(int(known["samples"]), int(known["sites"])) if known else None


def estimate(
    configuration: Configuration, times: Times, results: Path
) -> tuple[dict[str, list[float]], set[str]]:
    """Seconds of every run by cohort and by experiment, and methods and cohorts not known.

    A run of several experiments is counted with the first.
    """
    found, unknown = defaultdict(list), set()
    sizes = {name: cohort_size(name, results) for name in configuration.config["cohorts"]}
    first: dict[Run, str] = {}
    for experiment in configuration.config["experiments"]:
        for run in experiment_runs(configuration, experiment):
            first.setdefault(run, experiment)
    started, (start, _) = set(), times.rows.get(START, (0.0, 0))
    for run, experiment in first.items():
        if not configuration.method_of(run.variant)["gpu"]:
            continue
        size, params = sizes[run.cohort], configuration.train_params(run.variant)
        seconds, measured = times.rows.get(params["method"], (0.0, 0))
        if not (size and measured):
            unknown.add(params["method"] if size else run.cohort)
            continue
        seconds *= size.work(run.protocol) / times.measured.work("loso")
        # A search trains every one of its tries.
        tries = prod(map(len, params["search"].values()))
        seconds *= tries * params["hyperparameters"].get("epochs", 0) / measured
        job = run._replace(seed=0)
        seconds += 0.0 if job in started else start
        started.add(job)
        for key in (run.cohort, experiment):
            found[key].append(seconds)
    return found, unknown


def report(configuration: Configuration, times: Times, results: Path, title: str) -> str:
    """The estimate as Markdown."""
    found, unknown = estimate(configuration, times, results)
    lines = [f"{title}: GPU hours on one {times.machine}; an estimate"]
    for kind in ("experiments", "cohorts"):
        rows = {name: found[name] for name in configuration.config[kind] if found[name]}
        rows["all"] = [seconds for row in rows.values() for seconds in row]
        lines += ["", f"| {kind[:-1]} | runs | GPU hours |", "| --- | --- | --- |"]
        lines += [
            f"| {name} | {len(row):,} | {sum(row) / 3600:.1f} |" for name, row in rows.items()
        ]
    if unknown:
        names = ", ".join(sorted(unknown))
        lines += ["", f"Not counted, because their time or size is not known: {names}."]
    return "\n".join(lines)
