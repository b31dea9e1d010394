"""What happens around a run: checks before the first job, the cost of a plan after a dry run."""

import atexit
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import yaml

from workflow.lib import costs
from workflow.lib.handover import trained_cells, write_jobs
from workflow.lib.sources import missing_data

if TYPE_CHECKING:
    from workflow.lib.configuration import Configuration
    from workflow.lib.paths import Paths

RAW_DATA_RULES = ("candidates", "extract", "assemble")
REPORTED_RULES = ("table", "figure", "index")


def prepare(workflow, configuration: "Configuration", paths: "Paths") -> None:
    """Let a dry run end with its cost, and write a report only where there is something to show.

    The profile asks for a report after the run. Snakemake 9.27 then also reports on dry runs, where
    it fails because there are no results, and on single files and documents, where it would replace
    the report of the last full run by an empty one or by a part of it.
    """
    if not workflow.is_main_process:
        return
    create_report = workflow.create_report

    def create_report_of_results(**settings) -> None:
        after_run = workflow.scheduler is not None
        if after_run and (workflow.dryrun or not _shows_something(workflow)):
            return
        create_report(**settings)

    workflow.create_report = create_report_of_results
    if workflow.output_settings.dryrun:
        # Snakemake leaves the folder of --directory before Python exits.
        results = Path(paths.results).absolute()
        atexit.register(costs.print_costs, workflow, configuration, results)


def _shows_something(workflow) -> bool:
    rules = {job.rule.name for job in workflow.dag.jobs}
    return "document" not in rules and not rules.isdisjoint(REPORTED_RULES)


def prepare_run(workflow, configuration: "Configuration", paths: "Paths") -> None:
    """Stop before the first job if something it needs is not there; record the configuration."""
    jobs = [(job.rule.name, job.wildcards) for job in workflow.dag.needrun_jobs()]
    cohorts = {wildcards.cohort for rule, wildcards in jobs if rule in RAW_DATA_RULES}
    variants = {wildcards.variant for rule, wildcards in jobs if rule == "train"}
    hands_over = any(rule == "handover" for rule, _ in jobs)
    if hands_over:
        variants |= {cell.variant for cell in trained_cells(configuration)}
    problems = _missing_data(configuration, cohorts) + _missing_code(configuration, variants)
    if problems and not workflow.touch:
        sys.exit("\n".join(problems))
    write_run_config(configuration, paths)
    if hands_over:
        write_jobs(workflow, configuration, paths)


def _missing_data(configuration: "Configuration", cohorts: set[str]) -> list[str]:
    data_dir = configuration.settings["data_dir"]
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
