"""What another machine can do of a configuration: its training and diagnostics, as the rules do."""

import shlex

from snakemake.utils import format as format_command

from brio_core.system.files import write_json
from workflow.planning.configuration import Configuration
from workflow.planning.outputs import diagnosed_runs
from workflow.planning.paths import Run
from workflow.planning.runs import active_runs


def planned_jobs(configuration: Configuration) -> list[tuple[str, Run]]:
    """Training, then the diagnostics that a table or figure shows; the first seed of all first."""
    jobs = [("train", run) for run in active_runs(configuration)]
    shown = diagnosed_runs(configuration, configuration.config["experiments"])
    jobs += [("diagnose", run) for run in shown]
    return sorted(dict.fromkeys(jobs), key=lambda job: (job[0] != "train", job[1].seed))


def prepared_files(configuration: Configuration) -> list[str]:
    """Connectivity and block lengths, which are made last of what training reads."""
    paths = configuration.paths
    runs = [run for _, run in planned_jobs(configuration)]
    files = [paths.cohort(run.cohort, "fc.h5") for run in runs]
    files += [paths.block_length(run.cohort, run.protocol, run.ring) for run in runs]
    return list(dict.fromkeys(files))


def write_jobs(workflow, configuration: Configuration) -> None:
    """Write what the rules would run; the program that makes the plan marks what is done."""
    paths = configuration.paths
    jobs = [_job(workflow, *job, configuration) for job in planned_jobs(configuration)]
    content = {"results": paths.results, "config": configuration.config, "jobs": jobs, "files": {}}
    content["configfiles"] = list(map(str, workflow.configfiles))
    write_json(f"{paths.remote}/jobs.json", content)


def _job(workflow, rule: str, run: Run, configuration: Configuration) -> dict:
    """A job as Snakemake itself would run it: the rule is the only place that knows its command."""
    paths = configuration.paths
    folders = {"train": paths.run(run), "diagnose": paths.diagnostics(run)}
    target = f"{folders[rule]}/predictions.csv" if rule == "train" else folders[rule]
    job = workflow.async_run(workflow.dag.new_job(workflow.get_rule(rule), targetfile=target))
    # Only jobs that are about to run can tell their command themselves.
    names = ("input", "output", "params", "wildcards", "threads", "resources", "log")
    values = workflow.globals | {name: getattr(job, name) for name in names}
    command = format_command(job.rule.shellcmd, **values)
    # Every command is '… scripts/program.py arguments > log 2>&1'; the other machine has 'results'.
    words = shlex.split(command.partition(f"/scripts/{rule}.py ")[2])[:-3]
    start = f"{paths.results}/"
    expected = run.identity | configuration.train_params(run.variant) | {"code": job.params.code}
    if rule == "diagnose":
        del expected["search"]
        expected["diagnostics"] = configuration.config["diagnostics"]
    return {
        "folder": folders[rule].removeprefix(start),
        "program": rule,
        "arguments": [w.replace(start, "results/", 1) if w.startswith(start) else w for w in words],
        "inputs": {name: str(file).removeprefix(start) for name, file in job.input.items()},
        "expected": expected,
        "run": "" if rule == "train" else folders["train"].removeprefix(start),
    }
