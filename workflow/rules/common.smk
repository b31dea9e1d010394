# What the rules share: the command line, code versions, and functions of their wildcards.
import hashlib
import re
import shlex
import time

from brio_core.reporting.remarks import remarks
from brio_core.system.versions import code_version, program_version
from brio_core.system.errors import BrioError
from workflow.planning import documents, outputs, remote, sources
from workflow.planning.checks import late_checkpoints
from workflow.planning.files import shown
from workflow.planning.outputs import as_json
from workflow.planning.runs import (
    Run,
    ensembles,
    experiment_runs,
    external_runs,
    resolved,
    summary_runs,
)

# PYTHONPATH is set inside the command because Snakemake removes it from conda environments. RUN is no
# parameter, though `snakemake --lint` wants one: a repository that moves would train everything again.
RUN = f"PYTHONPATH={shlex.quote(str(ROOT))} python -u {shlex.quote(str(ROOT))}/scripts"
ACTIVE = tuple(CONFIG.config["experiments"])


def code(*names):
    """A parameter that changes when the code of a job does; found only for jobs in the plan."""
    return lambda wildcards: code_version(*names)


def raw_data(wildcards):
    """Files that make the scans be read again when they change.

    These are the demo, which is made here, or the tables of subjects. Absent files are left out, so
    that a plan can be made before the data are there. Scans are left out too: there are too many
    files to look at in every plan.
    """
    if wildcards.cohort == sources.DEMO:
        return rules.make_demo.output.folder
    return sources.subject_tables(CONFIG.datasets[wildcards.cohort], CONFIG.config["data_dir"])


def dataset_json(wildcards):
    return as_json(sources.described(CONFIG.datasets[wildcards.cohort]))


def imaging_code(script):
    """The script and the reader of the cohort's kind of source, which is imported by name."""

    def version(wildcards):
        kind = CONFIG.datasets[wildcards.cohort]["source"]["kind"]
        return code_version(script, f"brio_core/cohorts/readers/{kind}.py")

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


def ring_of(name):
    """The number of the ring of validation sites that the name of a split or a run ends with."""
    return int(name.partition("-ring-")[2] or 0)


def of_ring(path):
    """The path of a file that every ring of validation sites has, for the ring of a run."""
    return lambda wildcards: path(wildcards.cohort, wildcards.protocol, ring_of(wildcards.seed))


def adopted(wildcards):
    """The entry of external predictions behind a run."""
    run = (wildcards.cohort, wildcards.protocol, wildcards.external, int(wildcards.seed))
    return external_runs(CONFIG)[Run(*run)]


def summarised_runs(wildcards):
    """The folders of the runs that a summary is made of."""
    named = (wildcards.experiment, wildcards.cohort, wildcards.protocol)
    return [PATHS.run(run) for run in summary_runs(CONFIG, *named)]


def active_summaries(end):
    """Files of this ending for every pair of cohort and protocol of the active experiments."""
    return lambda wildcards: [PATHS.summary(*one, end) for one in outputs.active_pairs(CONFIG)]


def version_of(value):
    """A text that changes with ``value``."""
    return hashlib.sha256(as_json(value).encode()).hexdigest()


def shown_config(wildcards):
    """Changes with the configuration and the comments of methods, for tables that show these."""
    if "config" not in outputs.output_of(CONFIG, "tables", wildcards.table).files:
        return ""
    return version_of([resolved(CONFIG), *map(remarks, outputs.used_methods(CONFIG))])


def command_line(*targets):
    """How a page says that it was made."""
    files = [f"--configfile {shlex.quote(shown(path))}" for path in workflow.overwrite_configfiles]
    changes = [shlex.quote(one) for one in workflow.config_settings.config_args]
    changes = ["--config", *changes] if changes else []
    return " ".join(["snakemake", *targets, "--cores all", *files, *changes])


def documented_files(wildcards):
    """What the documents are made of; a mistake in a template is found before any job starts."""
    try:
        return documents.document_files(CONFIG)
    except BrioError as error:
        sys.exit(f"error: {error}")


def results_of(experiments):
    """Tables, figures and predictions of some experiments.

    Predictions are asked for too: one that was deleted is made again, with what hangs on it.
    """
    made = [outputs.output_files(CONFIG, kind, experiments) for kind in ("tables", "figures")]
    runs = [run for name in experiments for run in experiment_runs(CONFIG, name)]
    return [*sum(made, []), *(f"{PATHS.run(run)}/predictions.csv" for run in dict.fromkeys(runs))]


def whole_run_tables(*formats):
    """Tables of all active experiments together."""
    return PATHS.outputs("tables", outputs.whole_run_tables(CONFIG), *formats)


def experiment_files(experiment):
    """Tables and figures of one experiment, whether or not the configuration lists it."""

    def files(wildcards):
        if not experiment_runs(CONFIG, experiment):
            sys.exit(
                f"error: the experiment '{experiment}' has nothing to run with the cohorts and"
                " methods of the configuration; choose another --configfile"
            )
        for problem in late_checkpoints(CONFIG, experiment_runs(CONFIG, experiment)):
            sys.exit(f"error: {problem}")
        return results_of([experiment])

    return files
