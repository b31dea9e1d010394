"""What another machine can do of a configuration: its training and diagnostics, as the rules do."""

import json
import os
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from snakemake.utils import format as format_command

from workflow.planning.outputs import KINDS, item_runs, output_names, takes_diagnostics
from workflow.planning.runs import Run, experiment_pairs, experiment_runs

if TYPE_CHECKING:
    from workflow.planning.configuration import Configuration
    from workflow.planning.paths import Paths


def prepared_files(configuration: "Configuration", paths: "Paths") -> list[str]:
    """All that training reads."""
    names = ("participants.tsv", "series.h5", "fc.h5")
    pairs = [
        pair for name in _active(configuration) for pair in experiment_pairs(configuration, name)
    ]
    files = [
        file
        for cohort, protocol in pairs
        for file in (
            *(paths.cohort(cohort, name) for name in names),
            paths.split(cohort, protocol),
            paths.block_length(cohort, protocol),
        )
    ]
    return list(dict.fromkeys(files))


def trained_cells(configuration: "Configuration") -> list[Run]:
    """Seed by seed, each in the order of the configuration: early on there are whole tables."""
    runs = [run for name in _active(configuration) for run in experiment_runs(configuration, name)]
    return sorted(dict.fromkeys(runs), key=lambda run: run.seed)


def diagnosed_cells(configuration: "Configuration") -> list[Run]:
    """Cells whose diagnostics some table or figure shows."""
    runs = [
        run
        for kind in KINDS
        for name in output_names(configuration, kind, _active(configuration))
        if takes_diagnostics(configuration, kind, name)
        for run in item_runs(configuration, kind, name)
    ]
    return sorted(dict.fromkeys(runs), key=lambda run: run.seed)


def write_jobs(workflow, configuration: "Configuration", paths: "Paths") -> None:
    """Write what the rules would run; the program that makes the plan leaves out what is done."""
    jobs = [
        _record(workflow, "train", f"{paths.run(run)}/predictions.csv", run, configuration, paths)
        for run in trained_cells(configuration)
    ]
    jobs += [
        _record(workflow, "diagnose", paths.diagnostics(run), run, configuration, paths)
        for run in diagnosed_cells(configuration)
    ]
    content = {"results": paths.results, "config": configuration.config, "jobs": jobs}
    path = Path(paths.handover) / "jobs.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(".jobs.json.partial")
    partial.write_text(json.dumps(content, indent=1, ensure_ascii=False), encoding="utf-8")
    os.replace(partial, path)


def _active(configuration: "Configuration") -> tuple[str, ...]:
    return tuple(configuration.config["experiments"])


def _record(workflow, rule: str, target: str, run: Run, configuration, paths) -> dict:
    """A job as Snakemake itself would run it: the rule is the only place that knows its command."""
    job = workflow.async_run(workflow.dag.new_job(workflow.get_rule(rule), targetfile=target))
    # Only jobs that are about to run can tell their command themselves.
    names = ("input", "output", "params", "wildcards", "threads", "resources", "log")
    values = workflow.globals | {name: getattr(job, name) for name in names}
    words = shlex.split(format_command(job.rule.shellcmd, **values))
    start = next(at for at, word in enumerate(words) if word.endswith(f"/scripts/{rule}.py")) + 1
    method = configuration.variants[run.variant][0]

    def below(files) -> list[str]:
        return [str(file).removeprefix(f"{paths.results}/") for file in files]

    folder = target.removesuffix("/predictions.csv")
    return {
        "folder": below([folder])[0],
        "program": rule,
        # Every command ends with '> log 2>&1'.
        "words": words[start:-3],
        "code": job.params.code,
        "methods": [method],
        "gpu": configuration.methods[method]["gpu"],
        "inputs": below(job.input),
        "outputs": below(job.output),
    }
