"""Experiments as lists of runs."""

from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

from brio_core.cohorts import MATCHED
from workflow.planning.configuration import Configuration, published_variant, searched_variant
from workflow.planning.files import ConfigurationError
from workflow.planning.methods import asks_population
from workflow.planning.paths import Run
from workflow.planning.schema import suggestion
from workflow.planning.sources import knows_motion


@lru_cache
def experiment_runs(configuration: Configuration, experiment: str) -> tuple[Run, ...]:
    """All runs of an experiment, in the order of its file, each once.

    The experiment's file says what belongs to it; the configuration chooses from that by its
    cohorts and methods.
    """
    return tuple(
        run
        for run in wanted_runs(configuration, experiment)
        if run.cohort not in configuration.skipped
        and (configuration.config["untrained"] == "train" or _has_results(configuration, run))
    )


@lru_cache
def wanted_runs(configuration: Configuration, experiment: str) -> tuple[Run, ...]:
    """The same with what is skipped because its data or its results are not there."""
    entries = configuration.experiments[experiment]["runs"]
    runs = (run for entry in entries for run in _entry_runs(configuration, experiment, entry))
    return tuple(dict.fromkeys(runs))


def active_runs(configuration: Configuration) -> tuple[Run, ...]:
    """The runs of all experiments that the configuration lists, each once."""
    names = configuration.config["experiments"]
    return tuple(dict.fromkeys(run for one in names for run in experiment_runs(configuration, one)))


def _has_results(configuration: Configuration, run: Run) -> bool:
    folder = Path(configuration.paths.run(run))
    return all((folder / name).exists() for name in ("predictions.csv", "meta.json"))


def _entry_runs(configuration: Configuration, experiment: str, entry: dict) -> Iterator[Run]:
    config, wanted = configuration.config, entry["seeds"]
    if wanted == "all":
        wanted = config["experiment_seeds"].get(experiment, "all")
    for cohort in config["cohorts"]:
        if not _takes_part(configuration, cohort, entry):
            continue
        for protocol in _protocols(configuration, cohort, entry["protocols"]):
            for variant in _variants(configuration, entry["variants"]):
                for seed in _seeds(configuration, protocol, variant, wanted):
                    for ring in _rings(configuration, protocol, entry["rings"]):
                        yield Run(cohort, protocol, variant, seed, ring)


def _takes_part(configuration: Configuration, cohort: str, entry: dict) -> bool:
    if entry["cohorts"] == "all":
        return not configuration.datasets[cohort]["only_where_named"]
    return cohort in entry["cohorts"]


def _rings(configuration: Configuration, protocol: str, wanted: str) -> range:
    """Numbers of the rings; under ``id`` another seed would test other folds."""
    several = wanted == "all" and protocol == "loso"
    return range(len(configuration.config["split_seeds"]) if several else 1)


def _protocols(configuration: Configuration, cohort: str, wanted: list[str]) -> Iterator[str]:
    """Protocols of an entry that fit the cohort; a learning curve is ``loso`` and its draws."""
    for protocol in wanted:
        if protocol == "learning-curve":
            curve = configuration.config["learning_curve"]
            yield "loso"
            for arm in ("sites", "subjects"):
                for number in sorted(curve["sites"]):
                    for draw in range(1, curve["draws"] + 1):
                        yield f"loso-{arm}-{number}-draw-{draw}"
        elif protocol != MATCHED or knows_motion(configuration.datasets[cohort]):
            yield protocol


def _variants(configuration: Configuration, wanted: str | list) -> list[str]:
    methods, known = configuration.config["methods"], configuration.variants
    if wanted == "learning-curve":
        wanted = configuration.config["learning_curve"]["variants"]
    allowed = configuration.config["variants"]
    if wanted == "all":
        return methods
    if wanted == "published":
        return [name for name in map(published_variant, methods) if name in known]
    if wanted == "searched":
        chosen = [name for name in map(searched_variant, methods) if name in known]
    else:
        chosen = [
            name
            for name in wanted
            if known[name][0] in methods
            and (allowed == "all" or name in methods or name in allowed)
        ]
    return [name for name in chosen if canonical_variant(configuration, name) == name]


def canonical_variant(configuration: Configuration, variant: str) -> str:
    """The variant, or its method if that is the same already, by default or by an override."""
    method = configuration.variants[variant][0]
    own, usual = (configuration.train_params(name) for name in (variant, method))
    is_method = all(own[key] == usual[key] for key in ("hyperparameters", "search"))
    return method if is_method else variant


def _seeds(
    configuration: Configuration, protocol: str, variant: str, wanted: str | list
) -> list[int]:
    config = configuration.config
    if wanted == "all":
        wanted = config["protocol_seeds"].get(protocol, "all")
    # Where no seed changes anything, all experiments share the run of the first.
    if wanted == "first" or configuration.method_of(variant)["seeds"] == "first":
        return config["seeds"][:1]
    if isinstance(wanted, list):
        return wanted
    return [*config["seeds"], *config["more_seeds"].get(variant, ())]


def model_runs(configuration: Configuration, cohort: str, variant: str) -> list[Run]:
    """The leave-one-site-out runs that tell what to expect of a model, one per seed."""
    seeds = _seeds(configuration, "loso", variant, "all")
    return [Run(cohort, "loso", variant, seed) for seed in seeds]


def model_files(configuration: Configuration) -> list[str]:
    """The bundles of the variant that ``method`` names, one per cohort."""
    variant, known = configuration.config["method"], configuration.variants
    if variant is None:
        raise ConfigurationError(
            "which model is not said; write --config method=linear-logarithm, or another variant"
        )
    if variant not in known:
        raise ConfigurationError(
            f"'method' is {variant!r}, which is no variant{suggestion(variant, known)}"
        )
    if asks_population(known[variant][0]):
        raise ConfigurationError(
            f"{variant} cannot predict without the scans of its training subjects, which a bundle "
            "must not hold; choose another method"
        )
    named = canonical_variant(configuration, variant)
    return [configuration.paths.model(cohort, named) for cohort in configuration.config["cohorts"]]


@lru_cache
def summary_runs(
    configuration: Configuration, experiment: str, cohort: str, protocol: str
) -> tuple[Run, ...]:
    """The runs that one summary of an experiment is made of, with predictions of external code."""
    pair = (cohort, protocol)
    runs = [run for run in experiment_runs(configuration, experiment) if run[:2] == pair]
    compares_all = any(
        entry["variants"] == "all"
        and protocol in entry["protocols"]
        and _takes_part(configuration, cohort, entry)
        for entry in configuration.experiments[experiment]["runs"]
    )
    external = external_runs(configuration) if runs and compares_all else ()
    return (*runs, *(run for run in external if run[:2] == pair))


def ensembles(configuration: Configuration, experiment: str) -> dict[str, dict]:
    """The ensembles of an experiment, with their members as they are run."""
    return {
        name: {
            "label": one["label"],
            "members": [canonical_variant(configuration, member) for member in one["members"]],
        }
        for name, one in configuration.experiments[experiment]["ensembles"].items()
    }


@lru_cache
def external_runs(configuration: Configuration) -> dict[Run, dict]:
    """What external code has predicted, as runs: a file stands where a seed does otherwise."""
    return {
        Run(entry["cohort"], entry["protocol"], name, number): {**entry, "file": file}
        for name, method in configuration.config["external"].items()
        for entry in method["predictions"]
        for number, file in enumerate(entry["files"])
    }


def resolved(configuration: Configuration) -> dict:
    """Everything that is needed to repeat what the configuration asks for (run_config.yaml)."""
    active = configuration.config["experiments"]
    used = {run.variant for run in active_runs(configuration)}
    return {
        "config": configuration.config,
        "datasets": configuration.datasets,
        "experiments": {name: configuration.experiments[name] for name in active},
        "variants": {variant: configuration.train_params(variant) for variant in sorted(used)},
    }
