"""Tables and figures: which program makes them, and of which files."""

from functools import lru_cache
from typing import TYPE_CHECKING

from workflow.lib.cells import Cell, experiment_cells
from workflow.lib.paths import FIGURE_FORMATS, TABLE_FORMATS, Paths

if TYPE_CHECKING:
    from workflow.lib.configuration import Configuration

# What the programs in scripts and scripts/figures are given, as options of the same names.
PROGRAMS = {
    "tables": {"tables": ("summaries",), "cohort_table": ("inclusion", "participants")},
    "figures": {
        "auc_by_site": ("summaries", "sites"),
        "block_length": ("block_lengths",),
        "cohort": ("inclusion", "participants"),
        "diagnostics": ("diagnostics", "summaries"),
        "training": ("runs",),
    },
}


@lru_cache
def item(configuration: "Configuration", kind: str, name: str) -> dict:
    """A table or figure of an experiment, with what it takes over from the experiment."""
    for experiment, content in configuration.experiments.items():
        for entry in content["outputs"][kind]:
            if entry["name"] == name:
                inherited = {key: content[key] for key in ("title", "caption", "section")}
                return {**inherited, "experiment": experiment, **entry}
    raise KeyError(f"no experiment has the {kind[:-1]} {name!r}")


@lru_cache
def item_cells(configuration: "Configuration", kind: str, name: str) -> tuple[Cell, ...]:
    """The cells that a table or figure shows."""
    entry = item(configuration, kind, name)
    cells = experiment_cells(configuration, entry["experiment"])
    wanted = entry.get("protocols")
    return tuple(cell for cell in cells if wanted is None or cell.protocol in wanted)


def output_inputs(
    configuration: "Configuration", paths: Paths, kind: str, name: str
) -> dict[str, list[str]]:
    """The files that a table or figure is made of, by option; for ``runs`` their folders."""
    entry = item(configuration, kind, name)
    cells = item_cells(configuration, kind, name)
    cohorts = list(dict.fromkeys(cell.cohort for cell in cells))
    settings = list(dict.fromkeys((cell.cohort, cell.protocol) for cell in cells))
    diagnosed = [cell for cell in cells if configuration.method_of(cell.variant)["diagnose"]]
    experiment = entry["experiment"]
    files = {
        "inclusion": [paths.cohort(cohort, "inclusion.tsv") for cohort in cohorts],
        "participants": [paths.cohort(cohort, "participants.tsv") for cohort in cohorts],
        "block_lengths": [paths.block_length(*pair) for pair in settings],
        "runs": [paths.run(cell) for cell in cells],
        "diagnostics": [paths.diagnostics(cell) for cell in diagnosed],
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
        for entry in configuration.experiments[experiment]["outputs"][kind]
        if item_cells(configuration, kind, entry["name"])
    ]


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
