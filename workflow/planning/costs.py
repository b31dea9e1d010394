"""What a plan will cost: jobs and training runs, and hours and disk once runs have been timed."""

import json
from collections import defaultdict
from pathlib import Path
from statistics import mean

from workflow.planning.configuration import Configuration


def print_costs(workflow, configuration: Configuration, results: Path) -> None:
    """Print the cost of the plan that a dry run has made; nothing if it has failed."""
    if workflow.scheduler is None:
        return
    jobs = list(workflow.dag.needrun_jobs(exclude_finished=False))
    if not jobs:
        return
    waiting = [job.wildcards for job in jobs if job.rule.name == "train"]
    planned = sum(job.rule.name == "train" for job in workflow.dag.jobs)
    runs = [(run.cohort, configuration.variants[run.variant][0]) for run in waiting]
    print("\n".join(report(len(jobs), planned, runs, results)))


def report(jobs: int, planned: int, runs: list[tuple[str, str]], results: Path) -> list[str]:
    """Lines on a plan of ``jobs`` jobs, among them the training ``runs`` (cohort, method)."""
    lines = [
        "",
        "What it will cost",
        f"  jobs            {jobs:,}",
        f"  training runs   {len(runs):,} to train, {planned - len(runs):,} of {planned:,} done",
    ]
    if not runs:
        return lines
    means = measured(results)
    # From the same method on the same cohort, else from the method on other cohorts.
    known = [means.get(run, means.get(run[1])) for run in runs]
    known = [cost for cost in known if cost]
    if not known:
        return [*lines, "  time, disk      not known before the first runs have been trained"]
    unknown = len(runs) - len(known)
    rest = f", and {unknown:,} runs of methods that were never timed" if unknown else ""
    took, disk = map(sum, zip(*known))
    return [
        *lines,
        f"  training time   about {duration(took)} one after the other{rest}",
        f"  disk            about {disk / 1e6:,.0f} MB of training results{rest}",
    ]


def duration(seconds: float) -> str:
    """Hours, or minutes where it is less than one and a half hours."""
    return f"{seconds / 3600:,.1f} hours" if seconds >= 5400 else f"{seconds / 60:,.1f} minutes"


def measured(results: Path) -> dict[str | tuple[str, str], tuple[float, float]]:
    """Mean seconds and bytes of finished runs by (cohort, method) and by method."""
    found = defaultdict(list)
    for path in results.glob("runs/*/*/*/seed-*/meta.json"):
        try:
            meta = json.loads(path.read_text(encoding="utf-8"))
            used = sum(file.stat().st_size for file in path.parent.iterdir() if file.is_file())
            cost = (float(meta["seconds"]), used)
            keys = ((meta["cohort"], meta["method"]), meta["method"])
        except (OSError, ValueError, KeyError, TypeError):
            continue
        for key in keys:
            found[key].append(cost)
    return {key: tuple(map(mean, zip(*costs))) for key, costs in found.items()}
