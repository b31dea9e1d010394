"""Experiments as lists of cells. A cell (cohort, protocol, variant, seed) is one training job."""

from collections.abc import Iterator
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from workflow.lib.configuration import Configuration


class Cell(NamedTuple):
    """One training job, which holds all folds of its protocol."""

    cohort: str
    protocol: str
    variant: str
    seed: int


@lru_cache
def experiment_cells(configuration: "Configuration", experiment: str) -> tuple[Cell, ...]:
    """All cells of an experiment, in the order of its file, each once.

    The experiment's file says what belongs to it; the configuration chooses from that by its
    cohorts and methods.
    """
    entries = configuration.experiments[experiment]["cells"]
    cells = (cell for entry in entries for cell in _entry_cells(configuration, entry))
    return tuple(dict.fromkeys(cells))


def _entry_cells(configuration: "Configuration", entry: dict) -> Iterator[Cell]:
    settings = configuration.settings
    for cohort in _chosen(entry["cohorts"], settings["cohorts"]):
        for protocol in entry["protocols"]:
            for variant in _variants(configuration, entry["variants"]):
                for seed in _seeds(configuration, variant, entry["seeds"]):
                    yield Cell(cohort, protocol, variant, seed)


def _chosen(wanted: str | list, available: list) -> list:
    return [name for name in available if wanted == "all" or name in wanted]


def _variants(configuration: "Configuration", wanted: str | list) -> list[str]:
    methods = configuration.settings["methods"]
    if wanted == "all":
        return methods
    if wanted == "implemented":
        return [name for name in methods if not configuration.methods[name]["planned"]]
    return [name for name in wanted if configuration.variants[name][0] in methods]


def _seeds(configuration: "Configuration", variant: str, wanted: str | list) -> list[int]:
    seeds = wanted if isinstance(wanted, list) else configuration.settings["seeds"]
    deterministic = configuration.method_of(variant)["seeds"] == "first"
    return seeds[:1] if wanted == "first" or deterministic else seeds


@lru_cache
def summary_cells(
    configuration: "Configuration", experiment: str, cohort: str, protocol: str
) -> tuple[Cell, ...]:
    """The cells that one summary of an experiment is made of."""
    cells = experiment_cells(configuration, experiment)
    return tuple(cell for cell in cells if cell[:2] == (cohort, protocol))


@lru_cache
def experiment_settings(configuration: "Configuration", experiment: str) -> tuple[tuple, ...]:
    """The (cohort, protocol) pairs of an experiment, in order."""
    return tuple(dict.fromkeys(cell[:2] for cell in experiment_cells(configuration, experiment)))
