"""What happens around a run: checks before the first job, a report after the last one.

A dry run ends with its cost: jobs and training runs, and hours and disk once runs were timed.
"""

import atexit
import json
import os
import sys
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import chdir, contextmanager, suppress
from pathlib import Path
from statistics import mean

import yaml

from workflow.planning.configuration import Configuration
from workflow.planning.console import quieten, report_words
from workflow.planning.files import shown
from workflow.planning.locks import lock
from workflow.planning.paths import Run, runs_of
from workflow.planning.remote import write_jobs
from workflow.planning.runs import resolved, wanted_runs
from workflow.planning.sources import has_gpu, missing_data

# Said with `snakemake --lint`, which cannot be told to leave a remark out.
LINT = (
    "About 'Shell command directly uses variable RUN': it is meant so. RUN holds the place of this "
    "repository; as a parameter it would train everything again wherever the repository is moved."
)
# Of more failures than these the rest is counted.
MOST_FAILURES = 20
TRAINING_RULES = ("train", "diagnose")
RAW_DATA_RULES = ("candidates", "extract", "assemble")
# After these, what follows is planned again by what they have written: a cohort that is read again
# and comes out unchanged retrains nothing.
REPLANNED_RULES = ("assemble", "connect")
REPORTED_RULES = ("table", "figure", "index")


def prepare(workflow, configuration: Configuration) -> None:
    """Stop where results cannot be written, and let a dry run end with its cost."""
    if not workflow.is_main_process:
        return
    if any(word.startswith("--lint") for word in sys.argv):
        print(LINT, file=sys.stderr)
    paths = configuration.paths
    # Snakemake's own folder, before it makes it and fails in many lines.
    with _unwritable_in_one_sentence(Path.cwd(), "start Snakemake in another folder with '-d'"):
        Path(".snakemake").mkdir(exist_ok=True)
    # A file may stand where the results should, before Snakemake looks for them there.
    with _unwritable_in_one_sentence(paths.results), suppress(FileNotFoundError):
        os.stat(paths.run_config)
    if workflow.output_settings.dryrun:
        atexit.register(_print_costs, workflow, configuration, Path.cwd())
        return
    for idle in _idle_overrides(configuration):
        print(f"warning: {idle}", file=sys.stderr)
    quieten(workflow)


def target_of(workflow, configuration: Configuration, experiment: str) -> str:
    """The name of an experiment, which is a target and must not be called like another one."""
    if workflow.is_rule(experiment):
        path = configuration.find("experiments", experiment)
        sys.exit(f"error: {shown(path)}: {experiment!r} is the name of a rule; rename the file")
    return experiment


def write_report(workflow, configuration: Configuration) -> None:
    """Write Snakemake's report beside the results, if the run was about what it shows.

    After a single file or a document, the report of the last full run would become a part of it.
    """
    rules = {job.rule.name for job in workflow.dag.jobs}
    files = not all(map(workflow.is_rule, workflow.dag_settings.targets))
    if files or "document" in rules or rules.isdisjoint(REPORTED_RULES):
        return
    # Imported here because the jobs of a cluster do without it.
    from snakemake.report import auto_report
    from snakemake.report.html_reporter import ReportSettings
    from snakemake.settings.types import GlobalReportSettings
    from snakemake_interface_report_plugins.registry import ReportPluginRegistry

    path = Path(configuration.paths.results) / "report.html"
    settings = (ReportSettings(path=path), GlobalReportSettings())
    workflow.config.update(report_words(configuration))
    with _unwritable_in_one_sentence(path):
        html = ReportPluginRegistry().get_plugin("html")
        workflow.async_run(auto_report(workflow.dag, html, *settings))


def tell_failures(workflow) -> None:
    """Repeat at the very end what failed jobs said: others went on after them."""
    failed = [one for job in workflow.scheduler.failed for one in getattr(job, "jobs", [job])]
    lines = [f"  {log}: {_last_words(Path(log))}" for job in failed for log in job.log]
    if len(lines) > MOST_FAILURES:
        lines[MOST_FAILURES:] = [f"  and {len(lines) - MOST_FAILURES} more"]
    if lines:
        jobs = "1 job" if len(failed) == 1 else f"{len(failed)} jobs"
        report = "\n".join(["", f"error: {jobs} failed; the end of each log:", *lines])
        atexit.register(print, report, file=sys.stderr)


def _last_words(log: Path) -> str:
    """The error that a log ends with, or its last line."""
    try:
        lines = [line for line in log.read_text("utf-8", "replace").splitlines() if line.strip()]
    except OSError:
        lines = []
    errors = [line for line in lines if line.startswith("error: ")]
    return (errors or lines or ["it says nothing"])[-1]


@contextmanager
def _unwritable_in_one_sentence(
    path: str | Path, advice: str = "name another folder with '--config results=…'"
) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        # A file elsewhere, which could not be read say, is another matter.
        culprit = Path(error.filename or path)
        culprit = culprit if culprit.is_absolute() == Path(path).is_absolute() else Path(path)
        if not (culprit.is_relative_to(path) or Path(path).is_relative_to(culprit)):
            raise
        sys.exit(
            f"error: {path} could not be written: {error.strerror or error}; make it writable, or "
            f"{advice}"
        )


def prepare_run(workflow, configuration: Configuration) -> None:
    """Stop before the first job if something it needs is not there; record the configuration."""
    problems = list(_problems(workflow, configuration))
    if problems and not workflow.touch:
        sys.exit("\n".join(f"error: {problem}" for problem in problems))
    # Not from the beginning: with checkpoints every plan would be made twice.
    for name in REPLANNED_RULES:
        workflow.get_rule(name).is_checkpoint = True
    with _unwritable_in_one_sentence(configuration.paths.results):
        if owned := lock(configuration.paths.results):
            sys.exit(f"error: {owned}")
        _write_run_config(configuration)
        bring_back_times(configuration.paths.results)
        if any(job.rule.name == "remote" for job in workflow.dag.needrun_jobs()):
            write_jobs(workflow, configuration)


def _problems(workflow, configuration: Configuration) -> Iterator[str]:
    """What the jobs of a plan need and this machine does not have."""
    jobs = list(workflow.dag.needrun_jobs(exclude_finished=False))
    cohorts = {job.wildcards.cohort for job in jobs if job.rule.name in RAW_DATA_RULES}
    variants = {job.wildcards.variant for job in jobs if job.rule.name in TRAINING_RULES}
    yield from _missing_data(configuration, cohorts)
    # Other executors send jobs to machines that this one knows nothing about.
    if workflow.local_exec:
        yield from _missing_gpu(configuration, variants)


def _missing_data(configuration: Configuration, cohorts: set[str]) -> Iterator[str]:
    datasets, data_dir = configuration.datasets, configuration.config["data_dir"]
    found = [missing_data(datasets[name], data_dir) for name in datasets if name in cohorts]
    missing = [text for text in found if text]
    if missing:
        advice = (
            "Get them, or remove these cohorts from 'cohorts' in the configuration, or run the "
            "others with '--config on_missing=skip'."
        )
        yield "\n".join(["the data of some cohorts are missing.", *missing, advice])


def _missing_gpu(configuration: Configuration, variants: set[str]) -> Iterator[str]:
    config = configuration.config
    if config["device"] == "cpu" or (config["device"] == "auto" and config["allow_cpu"]):
        return
    count = sum(configuration.method_of(variant)["gpu"] for variant in variants)
    if count and not has_gpu():
        yield (
            f"{count} of {len(variants)} variants train on a GPU, and this machine shows none.\n"
            "Jobs that a cluster sends to its nodes find their own (docs/cluster.md). Otherwise "
            "run where there is one, or set 'device: cpu' in the configuration, which can take "
            "days."
        )


def _write_run_config(configuration: Configuration) -> None:
    """Keep the resolved configuration beside the results, in one step."""
    path = Path(configuration.paths.run_config)
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(".run_config.yaml.partial")
    options = {"sort_keys": False, "allow_unicode": True, "width": 100, "default_flow_style": None}
    text = yaml.safe_dump(resolved(configuration), **options)
    partial.write_text(text, encoding="utf-8")
    os.replace(partial, path)


def bring_back_times(results: str) -> None:
    """Let no result be younger than now, which Snakemake would take for a mistake of the clock."""
    now = time.time()
    for folder, _, files in os.walk(results):
        for path in (os.path.join(folder, name) for name in files):
            with suppress(OSError):
                if os.stat(path).st_mtime > now:
                    os.utime(path, (now, now))


def _print_costs(workflow, configuration: Configuration, folder: Path) -> None:
    """Print the cost of the plan that a dry run has made, and what the jobs would miss here.

    Snakemake leaves ``folder``, that of --directory, before Python exits.
    """
    # There is no scheduler if the plan has failed.
    jobs = workflow.scheduler and list(workflow.dag.needrun_jobs(exclude_finished=False))
    if not jobs:
        return
    planned = len(_trained(workflow.dag.jobs))
    runs = [(run.cohort, configuration.variants[run.variant][0]) for run in _trained(jobs)]
    with chdir(folder):
        print("\n".join(_costs(len(jobs), planned, runs, Path(configuration.paths.results))))
        folders = [Path(configuration.paths.run(run)) for run in _trained(jobs)]
        finished = sum((folder / "meta.json").exists() for folder in folders)
        if finished and any(job.rule.name == "extract" for job in jobs):
            print(f"  finished runs   {finished:,} stay if their scans turn out to be the same")
        for problem in (*_idle_overrides(configuration), *_problems(workflow, configuration)):
            print(f"\nwarning: {problem}")


def _trained(jobs: Iterable) -> list[Run]:
    """The runs that jobs train."""
    training = [job.wildcards_dict for job in jobs if job.rule.name == "train"]
    return [run for wildcards in training for run in runs_of(**wildcards)]


def _idle_overrides(configuration: Configuration) -> Iterator[str]:
    """A sentence on overrides of methods that are not run."""
    active = configuration.config["experiments"]
    runs = [run for name in active for run in wanted_runs(configuration, name)]
    used = {"all", *(configuration.variants[run.variant][0] for run in runs)}
    idle = [name for name in configuration.config["overrides"] if name not in used]
    if idle:
        yield f"'overrides' of methods that are not run: {', '.join(idle)}"


def _costs(jobs: int, planned: int, runs: list[tuple[str, str]], results: Path) -> list[str]:
    """Lines on a plan of ``jobs`` jobs, among them the training ``runs`` (cohort, method)."""
    lines = [
        "",
        "What it will cost",
        f"  jobs            {jobs:,}",
        f"  training runs   {len(runs):,} to train, {planned - len(runs):,} of {planned:,} done",
    ]
    if not runs:
        return lines
    means = _measured(results)
    # From the same method on the same cohort, else from the method on other cohorts.
    known = [means.get(run, means.get(run[1])) for run in runs]
    known = [cost for cost in known if cost]
    if not known:
        return [*lines, "  time, disk      not known, since none of these methods was timed here"]
    unknown = len(runs) - len(known)
    rest = f", and {unknown:,} runs of methods that were never timed" if unknown else ""
    took, disk = map(sum, zip(*known))
    length = f"{took / 3600:,.1f} hours" if took >= 5400 else f"{took / 60:,.1f} minutes"
    return [
        *lines,
        f"  training time   about {length} one after the other{rest}",
        f"  disk            about {disk / 1e6:,.0f} MB of training results{rest}",
    ]


def _measured(results: Path) -> dict[str | tuple[str, str], tuple[float, float]]:
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
