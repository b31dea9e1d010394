# What the rules share: the command line, code versions, and functions of their wildcards.
import hashlib
import re
import shlex
import time

from brio_core.reporting.remarks import remarks
from brio_core.system.versions import code_version, program_version
from brio_core.system.errors import BrioError
from workflow.planning.runs import (
    Run,
    experiment_runs,
    external_runs,
    resolved,
    summary_runs,
)
from workflow.planning.documents import document_files, document_templates, templates_version
from workflow.planning.files import shown
from workflow.planning.remote import prepared_files
from workflow.planning.outputs import (
    about,
    active_pairs,
    as_json,
    command_options,
    data_files,
    input_files,
    item,
    output_files,
    output_of,
    used_methods,
    whole_run_tables,
)
from workflow.planning.paths import TABLE_FORMATS
from workflow.planning.sources import DEMO, atlas_files, described, source_files, subject_tables

# PYTHONPATH is set inside the command because Snakemake removes it from conda environments.
RUN = f"PYTHONPATH={shlex.quote(str(ROOT))} python -u {shlex.quote(str(ROOT))}/scripts"
ACTIVE = tuple(CONFIG.config["experiments"])
PAPER_COHORTS = [
    "abide-aal116",
    "abide-cc200",
    "rest-meta-mdd-aal116",
    "srpbs-aal116",
    "abcd-aal116",
]


def code(*names):
    """A parameter that changes when the code of a job does; found only for jobs in the plan."""
    return lambda wildcards: code_version(*names)


def raw_data(wildcards):
    """Files that make the scans be read again when they change.

    These are the demo, which is made here, or the tables of subjects. Absent files are left out, so
    that a plan can be made before the data are there. Scans are left out too: there are too many
    files to look at in every plan.
    """
    if wildcards.cohort == DEMO:
        return rules.make_demo.output.folder
    return subject_tables(CONFIG.datasets[wildcards.cohort], CONFIG.config["data_dir"])


def dataset_json(wildcards):
    return as_json(described(CONFIG.datasets[wildcards.cohort]))


def imaging_code(script):
    """The script and the reader of the cohort's kind of source, which is imported by name."""

    def version(wildcards):
        return code_version(script, *source_files(CONFIG.datasets[wildcards.cohort]))

    return version


def trains_on(wildcards):
    """The device of a run. It is a resource and no parameter: another machine retrains nothing."""
    uses_gpu = CONFIG.method_of(wildcards.variant)["gpu"]
    return CONFIG.config["device"] if uses_gpu else "cpu"


def kept_models(path):
    """The models of a run, which are deleted after the last job that reads them if so wanted."""
    return temp(path) if CONFIG.config["model_files"] == "drop" else path


def method_code(program):
    """The script and the files of the run's method, which is imported by name."""
    return lambda wildcards: program_version(program, [CONFIG.variants[wildcards.variant][0]])


def adopted(wildcards):
    """The entry of external predictions behind a run."""
    run = (wildcards.cohort, wildcards.protocol, wildcards.external, int(wildcards.seed))
    return external_runs(CONFIG)[Run(*run)]


def summarised_runs(wildcards):
    return summary_runs(CONFIG, wildcards.experiment, wildcards.cohort, wildcards.protocol)


def active_summaries(wildcards):
    return [PATHS.summary(*one) for one in active_pairs(CONFIG)]


def true_pairs():
    """(experiment, cohort, protocol) of the active experiments without permuted labels."""
    return active_pairs(CONFIG, permuted=False)


def used_cohorts():
    """Cohorts of the active experiments, less those that are skipped."""
    return list(dict.fromkeys(cohort for _, cohort, _ in active_pairs(CONFIG)))


def active_runs(wildcards):
    return [path.removesuffix("csv") + "runs.json" for path in active_summaries(wildcards)]


def all_datasets_json(wildcards):
    return as_json({name: about(CONFIG, name) for name in CONFIG.datasets})


def resolved_version(wildcards):
    """Changes with the resolved configuration, which is written before the first job."""
    return hashlib.sha256(as_json(resolved(CONFIG)).encode()).hexdigest()


def shown_config(wildcards):
    """Changes with the configuration and the comments of methods, for tables that show these."""
    if "config" not in output_of(CONFIG, "tables", wildcards.table).files:
        return ""
    shown = [resolved(CONFIG), *map(remarks, used_methods(CONFIG).values())]
    return hashlib.sha256(as_json(shown).encode()).hexdigest()


def command_line(*targets):
    """How a page says that it was made."""
    files = [f"--configfile {shlex.quote(shown(path))}" for path in workflow.overwrite_configfiles]
    changes = [shlex.quote(one) for one in workflow.config_settings.config_args]
    changes = ["--config", *changes] if changes else []
    return " ".join(["snakemake", *targets, "--cores all", *files, *changes])


def documented_files(wildcards):
    """What the documents are made of; a mistake in a template is found before any job starts."""
    try:
        return document_files(CONFIG, PATHS, whole_run_tables(CONFIG))
    except BrioError as error:
        sys.exit(f"error: {error}")


def everything(wildcards):
    """Tables, figures and overview of all experiments of the configuration."""
    figures = output_files(CONFIG, PATHS, "figures", ACTIVE)
    return [*all_tables(), *figures, PATHS.overview, *predictions_of(ACTIVE)]


def predictions_of(experiments):
    """Predictions are asked for too: one that was deleted is made again, with what hangs on it."""
    runs = [run for name in experiments for run in experiment_runs(CONFIG, name)]
    return [f"{PATHS.run(run)}/predictions.csv" for run in dict.fromkeys(runs)]


def all_tables(*formats):
    """Tables of the active experiments, and those of the whole run."""
    common = [
        PATHS.table(name, end)
        for name in whole_run_tables(CONFIG)
        for end in formats or TABLE_FORMATS
    ]
    return [*output_files(CONFIG, PATHS, "tables", ACTIVE, *formats), *common]


def everything_with(target, cohorts, advice):
    """The same for a target that makes sense only with certain cohorts."""

    def files(wildcards):
        missing = [cohort for cohort in cohorts if cohort not in CONFIG.config["cohorts"]]
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
        if not experiment_runs(CONFIG, experiment):
            sys.exit(
                f"error: the experiment '{experiment}' has nothing to run with the cohorts and"
                " methods of the configuration; choose another --configfile"
            )
        tables = output_files(CONFIG, PATHS, "tables", (experiment,))
        figures = output_files(CONFIG, PATHS, "figures", (experiment,))
        return [*tables, *figures, *predictions_of([experiment])]

    return files
