# What the rules share: the command line, code versions, and functions of their wildcards.
import re
import shlex
import time
from functools import lru_cache

from brio_core.reporting.catalogue import remarks
from brio_core.system.versions import code_version, program_version, value_version
from brio_core.system.errors import BrioError
from workflow.planning import documents, outputs, remote, sources
from workflow.planning.checks import late_checkpoints
from workflow.planning.files import shown
from workflow.planning.outputs import as_json
from workflow.planning.paths import ring_of, runs_of
from workflow.planning.records import Unrecorded
from workflow.planning.runs import (
    Run,
    ensembles,
    experiment_runs,
    external_runs,
    model_files,
    model_runs,
    resolved,
    summary_runs,
)
from workflow.planning.seeds import Diagnosed, Trained

# PYTHONPATH is set inside the command because Snakemake removes it from conda environments. RUN is no
# parameter, though `snakemake --lint` wants one: a repository that moves would train everything again.
RUN = f"PYTHONPATH={shlex.quote(str(ROOT))} python -u {shlex.quote(str(ROOT))}/scripts"
ACTIVE = tuple(CONFIG.config["experiments"])
UNRECORDED = Unrecorded(workflow, CONFIG)


def code(*names):
    """A parameter that changes when the code of a job does; found only for jobs in the plan."""
    return lambda wildcards: code_version(*names)


def raw_data(wildcards):
    """The demo, which is made here; `raw_version` follows the files of other cohorts."""
    UNRECORDED.cohort(wildcards)
    return rules.make_demo.output.folder if wildcards.cohort == sources.DEMO else []


def raw_version(wildcards):
    """A parameter that changes when a table of subjects or a scan does.

    The process that plans looks at the files. The jobs that it starts know that they must run.
    """
    if wildcards.cohort == sources.DEMO or not workflow.is_main_process:
        return ""
    return looked_at(wildcards.cohort)


@lru_cache
def looked_at(cohort):
    return sources.raw_version(CONFIG.datasets[cohort], CONFIG.config["data_dir"])


def checked(compare):
    """checksums.json of a cohort; a result that Snakemake has no record of is compared first."""

    def file(wildcards):
        compare(wildcards)
        return PATHS.cohort(wildcards.cohort, "checksums.json")

    return file


def item_of(wildcards):
    """The table or figure of a job."""
    ((word, name),) = wildcards.items()
    return outputs.items(CONFIG, f"{word}s")[name]


def made_of(wildcards):
    """What a table or figure is made of."""
    item = item_of(wildcards)
    UNRECORDED.make_again(*PATHS.outputs(item.kind, [item.name]))
    return item.inputs


def in_report(path):
    """A table or figure that Snakemake's report shows."""
    return report(
        path,
        caption="../report/output.rst",
        category=lambda wildcards: item_of(wildcards).output.category,
        labels=lambda wildcards: {
            "Kind": item_of(wildcards).kind.removesuffix("s"),
            "Title": item_of(wildcards).heading["title"],
        },
    )


def cohort_version(wildcards):
    """A parameter that changes with the subjects and series of a cohort; empty before they are."""
    return sources.content(PATHS.cohort(wildcards.cohort, "checksums.json"))


def connected_version(wildcards):
    """The same for what follows connectivity, which is the same for equal series."""
    return [cohort_version(wildcards), code_version("scripts/connect.py")]


def tables_version(wildcards):
    """A parameter that changes with the tables of cohorts that a table or figure reads."""
    files = item_of(wildcards).inputs
    read = [file for one in ("inclusion", "participants", "regions") for file in files.get(one, ())]
    return [sources.content(file) for file in read]


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
    return CONFIG.device_of(wildcards.variant)


def kept_models(path):
    """The models of a run, which are deleted after the last job that reads them if so wanted."""
    return temp(path) if CONFIG.config["model_files"] == "drop" else path


def method_code(program):
    """The script and the files of the run's method, which is imported by name."""
    return lambda wildcards: program_version(program, [CONFIG.variants[wildcards.variant][0]])


def run_folders(wildcards):
    """The folders of the runs of a job, which may have several seeds."""
    return [PATHS.run(run) for run in runs_of(**dict(wildcards.items()))]


def per_seed(number):
    """A resource that grows with the seeds of a job, and is larger at every further attempt."""
    return lambda wildcards, attempt: number * attempt * len(run_folders(wildcards))


def of_ring(path):
    """The path of a file that every ring of validation sites has, for the ring of a run."""
    return lambda wildcards: path(wildcards.cohort, wildcards.protocol, ring_of(wildcards.seed))


def adopted(wildcards):
    """The entry of external predictions behind a run."""
    run = Run(wildcards.cohort, wildcards.protocol, wildcards.external, int(wildcards.seed))
    UNRECORDED.make_again(f"{PATHS.run(run)}/meta.json")
    UNRECORDED.lost(PATHS.run(run), "predictions.csv")
    return external_runs(CONFIG)[run]


def summarised_runs(wildcards):
    """The folders of the runs that a summary is made of."""
    named = (wildcards.experiment, wildcards.cohort, wildcards.protocol)
    UNRECORDED.make_again(PATHS.summary(*named))
    return [PATHS.run(run) for run in summary_runs(CONFIG, *named)]


def expected_by(wildcards):
    """The folders of the runs that tell what to expect of a model."""
    return [PATHS.run(run) for run in model_runs(CONFIG, wildcards.cohort, wildcards.variant)]


def or_exit(files):
    """Files that a target is made of; a mistake of the user ends Snakemake with one sentence."""

    def found(wildcards):
        try:
            return files(CONFIG)
        except BrioError as error:
            sys.exit(f"error: {error}")

    return found


def active_summaries(end):
    """Files of this ending for every pair of cohort and protocol of the active experiments."""

    def files(wildcards):
        UNRECORDED.make_again(PATHS.overview)
        return [PATHS.summary(*one, end) for one in outputs.active_pairs(CONFIG)]

    return files


def shown_config(wildcards):
    """Changes with the configuration and the comments of methods, for tables that show these."""
    if "config" not in item_of(wildcards).output.files:
        return ""
    return value_version([resolved(CONFIG), *map(remarks, outputs.used_methods(CONFIG))])


def command_line(*targets):
    """How a page says that it was made."""
    files = [f"--configfile {shlex.quote(shown(path))}" for path in workflow.overwrite_configfiles]
    changes = [shlex.quote(one) for one in workflow.config_settings.config_args]
    changes = ["--config", *changes] if changes else []
    return " ".join(["snakemake", *targets, "--cores all", *files, *changes])


def results_of(experiments):
    """Tables, figures, runs and cohorts of some experiments.

    What was deleted of the last two is made again, with what hangs on it.
    """
    made = [outputs.output_files(CONFIG, kind, experiments) for kind in ("tables", "figures")]
    runs = dict.fromkeys(run for name in experiments for run in experiment_runs(CONFIG, name))
    made += [
        [PATHS.cohort(cohort, "checksums.json"), PATHS.cohort(cohort, "fc.h5")]
        for cohort in dict.fromkeys(run.cohort for run in runs)
    ]
    return [*sum(made, []), *(f"{PATHS.run(run)}/meta.json" for run in runs)]


def subject_pages():
    """The page of every cohort with one line per subject."""
    cohorts = dict.fromkeys(cohort for _, cohort, _ in outputs.active_pairs(CONFIG))
    return [PATHS.cohort(cohort, "subjects.html") for cohort in cohorts]


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
