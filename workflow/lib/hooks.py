"""What happens around a run: checks before the first job, the cost of a plan after a dry run."""

import atexit
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import yaml

from workflow.lib import costs
from workflow.lib.sources import missing_data

if TYPE_CHECKING:
    from workflow.lib.configuration import Configuration
    from workflow.lib.paths import Paths

RAW_DATA_RULES = ("candidates", "extract", "assemble")


def prepare_dry_run(workflow, configuration: "Configuration", paths: "Paths") -> None:
    """Let a dry run end with its cost, and without a report.

    The profile asks for a report after the run. Snakemake 9.27 takes that for dry runs too and
    then fails, because there are no results to show.
    """
    if workflow.output_settings.dryrun and workflow.is_main_process:
        workflow.create_report = lambda **settings: None
        atexit.register(costs.print_costs, workflow, configuration, paths)


def prepare_run(workflow, configuration: "Configuration", paths: "Paths") -> None:
    """Stop before the first job if something it needs is not there; record the configuration."""
    jobs = list(workflow.dag.needrun_jobs())
    planned = {
        method["label"]: None
        for job in jobs
        if job.rule.name == "train"
        for method in [configuration.method_of(job.wildcards.variant)]
        if method["planned"]
    }
    if planned:
        sys.exit(
            f"error: no code yet for {', '.join(planned)}; remove them from 'methods' in the "
            "configuration or from the experiment (a dry run can plan with them)"
        )
    cohorts = {job.wildcards.cohort: None for job in jobs if job.rule.name in RAW_DATA_RULES}
    found = (
        missing_data(configuration.datasets[cohort], configuration.settings["data_dir"])
        for cohort in cohorts
    )
    missing = [text for text in found if text]
    if missing:
        advice = "Get them, or remove the cohorts from 'cohorts' in the configuration."
        sys.exit("\n".join(["error: the data of these cohorts are missing.", *missing, advice]))
    write_run_config(configuration, paths)


def write_run_config(configuration: "Configuration", paths: "Paths") -> None:
    """Keep the resolved configuration beside the results, in one step."""
    path = Path(paths.results) / "run_config.yaml"
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(".run_config.yaml.partial")
    text = yaml.safe_dump(configuration.resolved(), sort_keys=False, allow_unicode=True, width=100)
    partial.write_text(text, encoding="utf-8")
    os.replace(partial, path)
