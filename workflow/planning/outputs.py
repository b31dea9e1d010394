"""Tables and figures: which program makes them, and of which files."""

from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from workflow.planning.paths import FIGURE_FORMATS, TABLE_FORMATS, Paths
from workflow.planning.runs import Run, experiment_runs, wanted_runs

if TYPE_CHECKING:
    from workflow.planning.configuration import Configuration

# What the programs in scripts and scripts/figures are given, as options of the same names.
PROGRAMS = {
    "tables": {
        "tables": ("summaries",),
        "cohort_table": ("inclusion", "participants"),
        "dataset_table": ("inclusion", "participants", "block_lengths"),
        "site_table": ("profiles",),
        "comparison": ("summaries", "sites"),
        "site_scores": ("sites",),
        "efficiency": ("summaries",),
        "block_length_table": ("summaries", "block_lengths"),
        "ensemble_table": ("runs",),
        "preset_table": ("summaries", "runs"),
        "search_table": ("summaries", "sites", "runs"),
        "checkpoint_table": ("summaries", "runs"),
        "first_epoch_table": ("runs",),
        "roi_table": ("diagnostics",),
        "scan_length_table": ("diagnostics",),
        "stability_table": ("diagnostics",),
    },
    "figures": {
        "ablations": ("summaries", "runs"),
        "auc_by_site": ("summaries", "sites"),
        "block_length": ("block_lengths",),
        "cohort": ("inclusion", "participants"),
        "diagnostics": ("diagnostics",),
        "method": (),
        "propositions": ("diagnostics",),
        "roi_profile": ("diagnostics",),
        "scan_length": ("diagnostics",),
        "sensitivity": ("summaries", "runs"),
        "sites": ("profiles",),
        "training": ("runs",),
    },
}

# Files that are there before anything is trained.
BEFORE_TRAINING = {"inclusion", "participants", "profiles", "block_lengths"}


# What the programs of tables are told besides: their heading, and what belongs into the table.
TABLE_WORDS = {
    "tables": ("experiment", "planned"),
    "cohort_table": (),
    "dataset_table": ("experiment",),
    "site_table": ("experiment",),
    "comparison": ("experiment", "planned"),
    "site_scores": ("experiment", "planned"),
    "efficiency": ("experiment", "planned"),
    "block_length_table": ("experiment", "planned"),
    "ensemble_table": ("experiment",),
    "preset_table": ("experiment", "planned"),
    "search_table": ("experiment", "planned"),
    "checkpoint_table": ("experiment", "planned"),
    "first_epoch_table": ("experiment", "planned"),
    "roi_table": ("experiment", "planned"),
    "scan_length_table": ("experiment", "planned"),
    "stability_table": ("experiment", "planned"),
}


@lru_cache
def item(configuration: "Configuration", kind: str, name: str) -> dict:
    """A table or figure of an experiment, with what it takes over from the experiment."""
    for experiment, content in configuration.experiments.items():
        for entry in _entries(configuration, experiment, kind):
            if entry["name"] == name:
                inherited = {key: content[key] for key in ("title", "caption", "section")}
                return {**inherited, "experiment": experiment, **entry}
    raise KeyError(f"no experiment has the {kind[:-1]} {name!r}")


def _entries(configuration: "Configuration", experiment: str, kind: str) -> Iterator[dict]:
    """The tables or figures in an experiment's file; one that is drawn per cohort is several."""
    content = configuration.experiments[experiment]
    for entry in content["outputs"][kind]:
        if not entry.get("per_cohort"):
            yield entry
            continue
        for cohort, dataset in configuration.datasets.items():
            title = f"{entry.get('title', content['title'])}: {dataset.get('title', cohort)}"
            name = f"{entry['name']}-{cohort}"
            yield {**entry, "name": name, "title": title, "cohorts": [cohort]}


def takes_diagnostics(configuration: "Configuration", kind: str, name: str) -> bool:
    """Whether a table or figure shows diagnostics of runs."""
    return "diagnostics" in PROGRAMS[kind][item(configuration, kind, name)["program"]]


@lru_cache
def item_runs(configuration: "Configuration", kind: str, name: str) -> tuple[Run, ...]:
    """The runs that a table or figure is made of."""
    entry = item(configuration, kind, name)
    runs = _shown(entry, experiment_runs(configuration, entry["experiment"]))
    if takes_diagnostics(configuration, kind, name):
        runs = _diagnosable(configuration, runs)
        return tuple(run for run in runs if not _undiagnosed(configuration, run))
    return runs


def _diagnosable(configuration: "Configuration", runs: tuple[Run, ...]) -> tuple[Run, ...]:
    return tuple(run for run in runs if configuration.method_of(run.variant)["diagnose"])


def _undiagnosed(configuration: "Configuration", run: Run) -> bool:
    """Whether diagnostics would have to be made, where only what there is shall be shown."""
    if configuration.config["untrained"] == "train":
        return False
    paths = Paths(configuration.config["results"])
    return not Path(paths.diagnostics(run), "meta.json").exists()


@lru_cache
def planned_runs(configuration: "Configuration", kind: str, name: str) -> tuple[Run, ...]:
    """The same with runs that are skipped, which a table shows as not run."""
    entry = item(configuration, kind, name)
    runs = _shown(entry, wanted_runs(configuration, entry["experiment"]))
    takes = takes_diagnostics(configuration, kind, name)
    return _diagnosable(configuration, runs) if takes else runs


def _shown(entry: dict, runs: tuple[Run, ...]) -> tuple[Run, ...]:
    """The runs that an entry asks for by ``cohorts``, ``protocols`` and ``variants``."""
    wanted = {key: entry.get(f"{key}s") for key in ("cohort", "protocol", "variant")}
    return tuple(
        run
        for run in runs
        if all(names is None or getattr(run, key) in names for key, names in wanted.items())
    )


def planned(configuration: "Configuration", kind: str, name: str) -> dict:
    """What belongs into a table: its (cohort, protocol) pairs and its variants."""
    runs = planned_runs(configuration, kind, name)
    variants = []
    for variant in dict.fromkeys(run.variant for run in runs):
        method = configuration.method_of(variant)
        label = configuration.variants[variant][1]["label"]
        words = {"method": method["method"], "label": label, "group": method["group"]}
        change = configuration.variants[variant][1]["hyperparameters"]
        variants.append({"variant": variant, **words, "change": change})
    return {"pairs": list(dict.fromkeys(run[:2] for run in runs)), "variants": variants}


def output_inputs(
    configuration: "Configuration", paths: Paths, kind: str, name: str
) -> dict[str, list[str]]:
    """The files that a table or figure is made of, by option; for ``runs`` their folders."""
    entry = item(configuration, kind, name)
    runs = item_runs(configuration, kind, name)
    cohorts = list(dict.fromkeys(run.cohort for run in runs))
    settings = list(dict.fromkeys((run.cohort, run.protocol) for run in runs))
    experiment = entry["experiment"]
    files = {
        "inclusion": [paths.cohort(cohort, "inclusion.tsv") for cohort in cohorts],
        "participants": [paths.cohort(cohort, "participants.tsv") for cohort in cohorts],
        "profiles": [paths.cohort(cohort, "site_profile.tsv") for cohort in cohorts],
        "block_lengths": [paths.block_length(*pair) for pair in settings],
        "runs": [paths.run(run) for run in runs],
        "diagnostics": [paths.diagnostics(run) for run in runs],
        "summaries": [paths.summary(experiment, *pair) for pair in settings],
        "sites": [paths.summary(experiment, *pair, sites=True) for pair in settings],
    }
    return {option: files[option] for option in PROGRAMS[kind][entry["program"]]}


def output_names(
    configuration: "Configuration", kind: str, experiments: tuple[str, ...]
) -> list[str]:
    """Names of the tables or figures of some experiments that have something to show."""
    return [
        entry["name"]
        for experiment in experiments
        for entry in _entries(configuration, experiment, kind)
        if item_runs(configuration, kind, entry["name"])
    ]


def experiments_with_results(configuration: "Configuration") -> list[str]:
    """Experiments with a table or figure to show, and runs that none before them has."""
    found: list[str] = []
    seen: set[Run] = set()
    for name in configuration.config["experiments"]:
        own = set(experiment_runs(configuration, name)) - seen
        if own and any(output_names(configuration, kind, (name,)) for kind in PROGRAMS):
            found.append(name)
            seen |= own
    return found


def table_names(configuration: "Configuration") -> list[str]:
    """Names of the tables of all experiments, whether or not they have something to show."""
    experiments = configuration.experiments.values()
    return [entry["name"] for content in experiments for entry in content["outputs"]["tables"]]


def output_files(
    configuration: "Configuration",
    paths: Paths,
    kind: str,
    experiments: tuple[str, ...],
    *formats: str,
) -> list[str]:
    """The files of the tables or figures of some experiments, in all formats or the given."""
    path = {"tables": paths.table, "figures": paths.figure}[kind]
    formats = formats or {"tables": TABLE_FORMATS, "figures": FIGURE_FORMATS}[kind]
    names = output_names(configuration, kind, experiments)
    return [path(name, suffix) for name in names for suffix in formats]


def data_files(
    configuration: "Configuration", paths: Paths, experiments: tuple[str, ...]
) -> list[str]:
    """The tables and figures that show the data and wait for no training."""
    found = []
    for kind, path, formats in (
        ("tables", paths.table, TABLE_FORMATS),
        ("figures", paths.figure, FIGURE_FORMATS),
    ):
        for name in output_names(configuration, kind, experiments):
            needs = set(PROGRAMS[kind][item(configuration, kind, name)["program"]])
            if needs and needs <= BEFORE_TRAINING:
                found += [path(name, suffix) for suffix in formats]
    return found
