"""Experiments as lists of runs. A run (cohort, protocol, variant, seed) is one training job."""

from collections.abc import Iterator
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from workflow.planning.configuration import Configuration


class Run(NamedTuple):
    """One training job, which holds all folds of its protocol."""

    cohort: str
    protocol: str
    variant: str
    seed: int


@lru_cache
def experiment_runs(configuration: "Configuration", experiment: str) -> tuple[Run, ...]:
    """All runs of an experiment, in the order of its file, each once.

    The experiment's file says what belongs to it; the configuration chooses from that by its
    cohorts and methods.
    """
    skipped = configuration.skipped
    return tuple(
        run
        for run in wanted_runs(configuration, experiment)
        if run.cohort not in skipped
        and configuration.variants[run.variant][0] not in skipped
        and not configuration.leaves_out(run)
    )


@lru_cache
def wanted_runs(configuration: "Configuration", experiment: str) -> tuple[Run, ...]:
    """The same with what is skipped because its data, its code or its results are not there."""
    entries = configuration.experiments[experiment]["runs"]
    runs = (run for entry in entries for run in _entry_runs(configuration, experiment, entry))
    return tuple(dict.fromkeys(runs))


def _entry_runs(configuration: "Configuration", experiment: str, entry: dict) -> Iterator[Run]:
    settings, wanted = configuration.config, entry["seeds"]
    if wanted == "all":
        wanted = settings["experiment_seeds"].get(experiment, "all")
    for cohort in _chosen(entry["cohorts"], settings["cohorts"]):
        for protocol in entry["protocols"]:
            for variant in _variants(configuration, entry["variants"]):
                for seed in _seeds(configuration, protocol, variant, wanted):
                    yield Run(cohort, protocol, variant, seed)


def _chosen(wanted: str | list, available: list) -> list:
    return [name for name in available if wanted == "all" or name in wanted]


def _variants(configuration: "Configuration", wanted: str | list) -> list[str]:
    methods = configuration.config["methods"]
    if wanted == "all":
        return methods
    if wanted == "implemented":
        return [name for name in methods if not configuration.methods[name]["planned"]]
    if wanted == "published":
        known = (published_variant(name) for name in methods)
        return [name for name in known if name in configuration.variants]
    if wanted == "searched":
        known = (searched_variant(name) for name in methods)
        known = (name for name in known if name in configuration.variants)
        return [name for name in known if canonical_variant(configuration, name) == name]
    allowed = configuration.config["variants"]
    return [
        name
        for name in wanted
        if configuration.variants[name][0] in methods
        and (allowed == "all" or name in methods or name in allowed)
        and canonical_variant(configuration, name) == name
    ]


def canonical_variant(configuration: "Configuration", variant: str) -> str:
    """The variant, or its method if that is the same already, by default or by an override."""
    method = configuration.variants[variant][0]
    own, usual = (configuration.train_params(name) for name in (variant, method))
    is_method = all(own[key] == usual[key] for key in ("hyperparameters", "search"))
    return method if is_method else variant


def published_variant(method: str) -> str:
    """The name of a method with its authors' settings."""
    return f"{method}-published"


def searched_variant(method: str) -> str:
    """The name of a method whose folds choose among the values of its ``search``."""
    return f"{method}-searched"


def _seeds(
    configuration: "Configuration", protocol: str, variant: str, wanted: str | list
) -> list[int]:
    settings = configuration.config
    if wanted == "all":
        wanted = settings["protocol_seeds"].get(protocol, "all")
    # Where no seed changes anything, all experiments share the run of the first.
    if wanted == "first" or configuration.method_of(variant)["seeds"] == "first":
        return settings["seeds"][:1]
    if isinstance(wanted, list):
        return wanted
    return [*settings["seeds"], *settings["more_seeds"].get(variant, ())]


@lru_cache
def summary_runs(
    configuration: "Configuration", experiment: str, cohort: str, protocol: str
) -> tuple[Run, ...]:
    """The runs that one summary of an experiment is made of, with predictions of external code."""
    runs = [
        run for run in experiment_runs(configuration, experiment) if run[:2] == (cohort, protocol)
    ]
    entries = configuration.experiments[experiment]["runs"]
    compares_all = any(
        entry["variants"] == "all"
        and protocol in entry["protocols"]
        and (entry["cohorts"] == "all" or cohort in entry["cohorts"])
        for entry in entries
    )
    external = external_runs(configuration) if runs and compares_all else ()
    return (*runs, *(run for run in external if run[:2] == (cohort, protocol)))


@lru_cache
def external_runs(configuration: "Configuration") -> dict[Run, dict]:
    """What external code has predicted, as runs: a file stands where a seed does otherwise."""
    return {
        Run(entry["cohort"], entry["protocol"], name, number): {**entry, "file": file}
        for name, method in configuration.config["external"].items()
        for entry in method["predictions"]
        for number, file in enumerate(entry["files"])
    }


@lru_cache
def experiment_pairs(configuration: "Configuration", experiment: str) -> tuple[tuple, ...]:
    """The (cohort, protocol) pairs of an experiment, in order."""
    return tuple(dict.fromkeys(run[:2] for run in experiment_runs(configuration, experiment)))
