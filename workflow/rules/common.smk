# What the rules share: the command line, code versions, and the files behind a target.
import json
import re
import shlex

from workflow.lib.cells import experiment_cells, summary_cells
from workflow.lib.code_version import code_version, method_files
from workflow.lib.outputs import item, item_cells, output_files, output_inputs

# PYTHONPATH is set inside the command because Snakemake removes it from conda environments.
RUN = f"PYTHONPATH={shlex.quote(str(ROOT))} python -u {shlex.quote(str(ROOT))}/scripts"
ACTIVE = tuple(CONFIG.settings["experiments"])
PAPER_COHORTS = [
    "abide-aal116",
    "abide-cc200",
    "rest-meta-mdd-aal116",
    "srpbs-aal116",
    "abcd-aal116",
]


def as_json(value):
    """Resolved configuration as one argument of a command line."""
    return json.dumps(value, sort_keys=True, ensure_ascii=False)


def code(*names):
    """A parameter that changes when the code of a job does; found only for jobs in the plan."""
    return lambda wildcards: code_version(*names)


def everything(wildcards):
    """Tables, figures and overview of all experiments of the configuration."""
    tables = output_files(CONFIG, PATHS, "tables", ACTIVE)
    return [*tables, *output_files(CONFIG, PATHS, "figures", ACTIVE), PATHS.overview]


def everything_with(target, cohorts, advice):
    """The same for a target that makes sense only with certain cohorts."""

    def files(wildcards):
        missing = [cohort for cohort in cohorts if cohort not in CONFIG.settings["cohorts"]]
        if missing:
            sys.exit(
                f"error: the target '{target}' needs the cohorts {', '.join(missing)}, which the"
                f" configuration does not have; {advice}"
            )
        return everything(wildcards)

    return files


def experiment_files(experiment):
    """Tables and figures of one experiment, whether or not the configuration lists it."""

    def files(wildcards):
        if not experiment_cells(CONFIG, experiment):
            sys.exit(
                f"error: the experiment '{experiment}' has nothing to run with the cohorts and"
                " methods of the configuration; choose another --configfile"
            )
        tables = output_files(CONFIG, PATHS, "tables", (experiment,))
        return [*tables, *output_files(CONFIG, PATHS, "figures", (experiment,))]

    return files
