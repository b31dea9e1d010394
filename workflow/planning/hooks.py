"""What happens around a run: checks before the first job, the cost of a plan after a dry run."""

import atexit
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import yaml

from workflow.planning import costs
from workflow.planning.remote import planned_jobs, write_jobs
from workflow.planning.sources import missing_data

if TYPE_CHECKING:
    from workflow.planning.configuration import Configuration
    from workflow.planning.paths import Paths

RAW_DATA_RULES = ("candidates", "extract", "assemble")
REPORTED_RULES = ("table", "figure", "index")
# What the profiles ask for, which cannot know the 'results' of the configuration.
USUAL_REPORT = Path("results/report.html")


def prepare(workflow, configuration: "Configuration", paths: "Paths") -> None:
    """Let a dry run end with its cost, and write a report only where there is something to show.

    The profile asks for a report after the run. Snakemake 9.27 then also reports on dry runs, where
    it fails because there are no results, and on single files and documents, where it would replace
    the report of the last full run by an empty one or by a part of it.
    """
    if not workflow.is_main_process:
        return
    _check_results(paths)
    create_report = workflow.create_report

    def create_report_of_results(*, report_settings=None, **others) -> None:
        after_run = workflow.scheduler is not None
        if after_run and (workflow.dryrun or not _shows_something(workflow)):
            return
        # Other reporters than Snakemake's own need no path.
        asked = getattr(report_settings, "path", None)
        if asked is None:
            create_report(report_settings=report_settings, **others)
            return
        report = _report_path(Path(asked), paths)
        with _unwritable_in_one_sentence(report):
            report.parent.mkdir(parents=True, exist_ok=True)
            create_report(report_settings=replace(report_settings, path=report), **others)

    workflow.create_report = create_report_of_results
    if workflow.output_settings.dryrun:
        # Snakemake leaves the folder of --directory before Python exits.
        results = Path(paths.results).absolute()
        atexit.register(costs.print_costs, workflow, configuration, results)


def _check_results(paths: "Paths") -> None:
    """Stop if a file stands where the results should, before Snakemake looks for them there."""
    with _unwritable_in_one_sentence(paths.results), suppress(FileNotFoundError):
        os.stat(paths.run_config)


def _report_path(asked: Path, paths: "Paths") -> Path:
    """The report lies beside the results that it shows, unless the user wants it elsewhere."""
    return Path(paths.results) / asked.name if asked == USUAL_REPORT else asked


@contextmanager
def _unwritable_in_one_sentence(path: str | Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        # A file elsewhere, which could not be read say, is another matter.
        culprit = Path(error.filename or path)
        if not (culprit.is_relative_to(path) or Path(path).is_relative_to(culprit)):
            raise
        sys.exit(
            f"error: {path} could not be written: {error.strerror or error}; make it writable, or "
            "name another folder with '--config results=…'"
        )


def _shows_something(workflow) -> bool:
    rules = {job.rule.name for job in workflow.dag.jobs}
    return "document" not in rules and not rules.isdisjoint(REPORTED_RULES)


def prepare_run(workflow, configuration: "Configuration", paths: "Paths") -> None:
    """Stop before the first job if something it needs is not there; record the configuration."""
    jobs = [(job.rule.name, job.wildcards) for job in workflow.dag.needrun_jobs()]
    cohorts = {wildcards.cohort for rule, wildcards in jobs if rule in RAW_DATA_RULES}
    variants = {wildcards.variant for rule, wildcards in jobs if rule == "train"}
    plans_remote = any(rule == "remote" for rule, _ in jobs)
    if plans_remote:
        variants |= {run.variant for _, run in planned_jobs(configuration)}
    problems = _missing_data(configuration, cohorts) + _missing_code(configuration, variants)
    if problems and not workflow.touch:
        sys.exit("\n".join(problems))
    with _unwritable_in_one_sentence(paths.results):
        write_run_config(configuration, paths)
        if plans_remote:
            write_jobs(workflow, configuration, paths)


def _missing_data(configuration: "Configuration", cohorts: set[str]) -> list[str]:
    data_dir = configuration.config["data_dir"]
    found = [
        missing_data(dataset, data_dir)
        for cohort, dataset in configuration.datasets.items()
        if cohort in cohorts
    ]
    missing = [text for text in found if text]
    if not missing:
        return []
    advice = (
        "Get them, or remove these cohorts from 'cohorts' in the configuration, or run the others "
        "with '--config on_missing=skip'."
    )
    return ["error: the data of some cohorts are missing.", *missing, advice]


def _missing_code(configuration: "Configuration", variants: set[str]) -> list[str]:
    needed = {configuration.variants[variant][0] for variant in variants}
    planned = [name for name in sorted(needed) if configuration.methods[name]["planned"]]
    if not planned:
        return []
    return [
        f"error: some methods are planned but have no code yet: {', '.join(planned)}.",
        "Remove them from 'methods' in the configuration or from the experiment.",
    ]


def write_run_config(configuration: "Configuration", paths: "Paths") -> None:
    """Keep the resolved configuration beside the results, in one step."""
    path = Path(paths.run_config)
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(".run_config.yaml.partial")
    options = {"sort_keys": False, "allow_unicode": True, "width": 100, "default_flow_style": None}
    text = yaml.safe_dump(configuration.resolved(), **options)
    partial.write_text(text, encoding="utf-8")
    os.replace(partial, path)
