# What the rules share: the command line, code versions, and functions of their wildcards.
import hashlib
import json
import re
import shlex

from workflow.lib.cells import experiment_cells, experiment_settings, summary_cells
from workflow.lib.code_version import code_version, method_files
from workflow.lib.files import shown
from workflow.lib.outputs import item, item_cells, output_files, output_inputs
from workflow.lib.sources import DEMO, described, source_files, table_path

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


def raw_data(wildcards):
    """What a change of should be noticed: the demo that is made here, or the list of subjects.

    Absent files are left out, so that a plan can be made before the data are there.
    """
    if wildcards.cohort == DEMO:
        return rules.make_demo.output.folder
    table = table_path(CONFIG.datasets[wildcards.cohort], CONFIG.settings["data_dir"])
    return str(table) if table.is_file() else []


def dataset_json(wildcards):
    return as_json(described(CONFIG.datasets[wildcards.cohort]))


def imaging_code(script):
    """The script and the reader of the cohort's kind of source, which is imported by name."""

    def version(wildcards):
        return code_version(script, *source_files(CONFIG.datasets[wildcards.cohort]))

    return version


def trains_on(wildcards):
    """The device of a cell. It is a resource and no parameter: another machine retrains nothing."""
    uses_gpu = CONFIG.method_of(wildcards.variant)["gpu"]
    return CONFIG.settings["device"] if uses_gpu else "cpu"


def method_code(script):
    """The script and the files of the cell's method, which is imported by name."""

    def version(wildcards):
        return code_version(script, *method_files(CONFIG.variants[wildcards.variant][0]))

    return version


def summarised_runs(wildcards):
    return summary_cells(CONFIG, wildcards.experiment, wildcards.cohort, wildcards.protocol)


def about(cohort):
    """What tables, figures and the overview say about a cohort."""
    keys = ("title", "task", "label", "paper")
    return {key: value for key, value in CONFIG.datasets[cohort].items() if key in keys}


def datasets_json(kind, name):
    cohorts = {cell.cohort: about(cell.cohort) for cell in item_cells(CONFIG, kind, name)}
    return as_json(cohorts)


def input_files(kind, name):
    """Files behind a table or figure; of a run those that are read."""
    found = output_inputs(CONFIG, PATHS, kind, name)
    runs = found.pop("runs", [])
    read = [f"{run}/{file}" for run in runs for file in ("meta.json", "history.csv")]
    return {**found, "runs": read} if runs else found


def input_options(kind, name):
    """The same as options of a command line."""
    found = output_inputs(CONFIG, PATHS, kind, name)
    return " ".join(
        " ".join([f"--{option.replace('_', '-')}", *map(shlex.quote, paths)])
        for option, paths in found.items()
    )


def heading(kind, name):
    entry = item(CONFIG, kind, name)
    return {key: entry[key] for key in ("title", "caption")}


def table_options(wildcards):
    options = input_options("tables", wildcards.table)
    if item(CONFIG, "tables", wildcards.table)["program"] == "tables":
        options += f" --experiment {shlex.quote(as_json(heading('tables', wildcards.table)))}"
    return options


def active_summaries(wildcards):
    return [
        PATHS.summary(name, *pair) for name in ACTIVE for pair in experiment_settings(CONFIG, name)
    ]


def active_cells(wildcards):
    return [path.removesuffix("csv") + "cells.json" for path in active_summaries(wildcards)]


def command_line():
    """How the page says that it was made."""
    files = [f"--configfile {shlex.quote(shown(path))}" for path in workflow.overwrite_configfiles]
    return " ".join(["snakemake --cores all", *files])


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
