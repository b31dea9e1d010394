# What the rules share: the command line, code versions, and functions of their wildcards.
import hashlib
import json
import re
import shlex
import time
from functools import partial

from brio_core.system.versions import code_version, program_version
from brio_core.system.errors import BrioError
from brio_core.reporting.remarks import remarks
from workflow.planning.runs import (
    Run,
    experiment_runs,
    experiment_pairs,
    external_runs,
    canonical_variant,
    summary_runs,
)
from workflow.planning.documents import document_files, document_templates, templates_version
from workflow.planning.files import ConfigurationError, find, shown
from workflow.planning.remote import prepared_files
from workflow.planning.outputs import (
    TABLE_WORDS,
    data_files,
    item,
    output_files,
    output_inputs,
    planned,
    planned_runs,
)
from workflow.planning.paths import TABLE_FORMATS
from workflow.planning.sources import DEMO, atlas_files, described, source_files, subject_tables

# PYTHONPATH is set inside the command because Snakemake removes it from conda environments.
RUN = f"PYTHONPATH={shlex.quote(str(ROOT))} python -u {shlex.quote(str(ROOT))}/scripts"
ACTIVE = tuple(CONFIG.config["experiments"])
# The paper's numbers belong to the programs that read them: no input, or moving the repository
# would make their tables again.
PAPER_TABLES = [
    f"config/paper/table_{name}.csv"
    for name in ("loso", "id", "block_length", "efficiency", "datasets")
]
COMMON_TABLES = ("paper_vs_ours", "settings", "settings-others")
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
    """What a change of should be noticed: the demo that is made here, or the tables of subjects.

    Absent files are left out, so that a plan can be made before the data are there. Scans are left
    out too: there are too many files to look at in every plan.
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


def about(cohort):
    """What tables, figures and the overview say about a cohort."""
    keys = ("title", "task", "label", "rois")
    return {key: value for key, value in CONFIG.datasets[cohort].items() if key in keys}


def datasets_json(kind, name):
    cohorts = {run.cohort: about(run.cohort) for run in planned_runs(CONFIG, kind, name)}
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
    words = {key: entry[key] for key in ("title", "caption")}
    if "reference" in entry:
        words["reference"] = canonical_variant(CONFIG, entry["reference"])
    return words


def table_options(wildcards):
    options = input_options("tables", wildcards.table)
    for name in TABLE_WORDS[item(CONFIG, "tables", wildcards.table)["program"]]:
        words = heading if name == "experiment" else partial(planned, CONFIG)
        options += f" --{name} {shlex.quote(as_json(words('tables', wildcards.table)))}"
    return options


def active_summaries(wildcards):
    return [
        PATHS.summary(name, *pair) for name in ACTIVE for pair in experiment_pairs(CONFIG, name)
    ]


def active_runs(wildcards):
    return [path.removesuffix("csv") + "runs.json" for path in active_summaries(wildcards)]


def used_cohorts():
    """Cohorts of the active experiments, less those that are skipped."""
    pairs = [pair for name in ACTIVE for pair in experiment_pairs(CONFIG, name)]
    return list(dict.fromkeys(cohort for cohort, _ in pairs))


def true_pairs():
    """(cohort, protocol) of the active experiments, those with permuted labels left out."""
    pairs = [pair for name in ACTIVE for pair in experiment_pairs(CONFIG, name)]
    return list(dict.fromkeys(pair for pair in pairs if "permuted" not in pair[1]))


def true_summaries(wildcards):
    return [path for path in active_summaries(wildcards) if "permuted" not in path]


def used_methods():
    """Files of the methods of the active experiments, whose comments the settings page shows."""
    runs = [run for name in ACTIVE for run in experiment_runs(CONFIG, name)]
    names = dict.fromkeys(CONFIG.variants[run.variant][0] for run in runs)
    return {name: shown(find("methods", name)) for name in names}


def table_code(wildcards):
    program = item(CONFIG, "tables", wildcards.table)["program"]
    every = program == "dataset_table"
    numbers = [path for path in PAPER_TABLES if every or program in path]
    return code_version(f"scripts/{program}.py", *numbers)


def all_datasets_json(wildcards):
    return as_json({name: about(name) for name in CONFIG.datasets})


def resolved_version(wildcards):
    """Changes with the resolved configuration, which is written before the first job."""
    return hashlib.sha256(as_json(CONFIG.resolved()).encode()).hexdigest()


def remarks_version(wildcards):
    """Changes with the comments that the page about settings shows."""
    found = {name: remarks(find("methods", name)) for name in used_methods()}
    return hashlib.sha256(as_json(found).encode()).hexdigest()


def command_line(*targets):
    """How a page says that it was made."""
    files = [f"--configfile {shlex.quote(shown(path))}" for path in workflow.overwrite_configfiles]
    changes = [shlex.quote(word) for word in workflow.config_settings.config_args]
    changes = ["--config", *changes] if changes else []
    return " ".join(["snakemake", *targets, "--cores all", *files, *changes])


def documented_files(wildcards):
    """What the documents are made of; a mistake in a template is found before any job starts."""
    try:
        return document_files(CONFIG, PATHS, common_tables())
    except (BrioError, ConfigurationError) as error:
        sys.exit(f"error: {error}")


def everything(wildcards):
    """Tables, figures and overview of all experiments of the configuration."""
    figures = output_files(CONFIG, PATHS, "figures", ACTIVE)
    return [*all_tables(), *figures, PATHS.overview, *predictions_of(ACTIVE)]


def predictions_of(experiments):
    """Predictions are asked for too: one that was deleted is made again, with what hangs on it."""
    runs = [run for name in experiments for run in experiment_runs(CONFIG, name)]
    return [f"{PATHS.run(run)}/predictions.csv" for run in dict.fromkeys(runs)]


def common_tables():
    """Tables of the whole run; with permuted labels alone there is nothing to compare."""
    return COMMON_TABLES if true_pairs() else COMMON_TABLES[1:]


def all_tables(*formats):
    """Tables of the active experiments, and those of the whole run."""
    common = [
        PATHS.table(name, end) for name in common_tables() for end in formats or TABLE_FORMATS
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
