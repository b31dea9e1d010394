"""Mistakes that a schema cannot see, because they lie between two files.

Every check yields sentences; the first one of all is told.
"""

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from brio_core.methods.hyperparameters import check_ranges, typed
from brio_core.reporting.catalogue import catalogue
from brio_core.system.errors import BrioError
from workflow.planning.configuration import Configuration, published_variant, searched_variant
from workflow.planning.files import ConfigurationError, names, shown
from workflow.planning.methods import declared, has_code, module_of
from workflow.planning.paths import Run
from workflow.planning.runs import canonical_variant, experiment_runs, wanted_runs
from workflow.planning.schema import HYPERPARAMETERS, suggestion

Where = Callable[[str], str]


def check_files(configuration: Configuration, where: Where) -> None:
    """Raise the first mistake; ``where`` names the place which a key comes from."""
    for check in (_names, _external, _hyperparameters, _variants, _experiments, _code):
        for problem in check(configuration, where):
            raise ConfigurationError(problem)


def check_runs(configuration: Configuration, where: Where) -> None:
    """Something must be left to run, in all and in every experiment."""
    cohorts = configuration.config["cohorts"]
    if configuration.skipped.issuperset(cohorts):
        raise ConfigurationError(
            f"{where('on_missing')}: with 'on_missing: skip' no cohort is left, the data of "
            f"{', '.join(cohorts)} are not there; get some of them (docs/data-access.md)"
        )
    active, reference = configuration.config["experiments"], configuration.config["reference"]
    if reference in configuration.variants:
        reference = canonical_variant(configuration, reference)
    runs = [run for name in active for run in wanted_runs(configuration, name)]
    compared = dict.fromkeys(run.variant for run in runs)
    if reference and reference not in compared:
        raise ConfigurationError(
            f"{where('reference')}: 'reference' is {reference!r}, which no experiment of this "
            f"configuration runs{suggestion(reference, compared)}"
        )
    for problem in late_checkpoints(configuration, runs):
        raise ConfigurationError(f"{where('overrides')}: {problem}")
    for name in active:
        if not experiment_runs(configuration, name):
            raise ConfigurationError(
                f"{where('experiments')}: experiment {name!r} has nothing to run with these cohorts"
                " and methods; take it out of 'experiments'"
            )


def _unknown(words: str | Iterable[str], known: Iterable[str], what: str, place: str) -> Iterator:
    """A sentence for every word of a list that is not known; a single word, as 'all', is."""
    for word in () if isinstance(words, str) else words:
        if word not in known:
            yield f"{place}: unknown {what} {word!r}{suggestion(word, known)}"


def _names(configuration: Configuration, where: Where) -> Iterator[str]:
    """Methods, variants and experiments that the configuration names must exist."""
    config, variants = configuration.config, configuration.variants
    for key, known, what in (
        ("overrides", ["all", *configuration.methods], "method"),
        ("variants", variants, "variant"),
        ("more_seeds", variants, "variant"),
        ("experiment_seeds", configuration.experiments, "experiment"),
    ):
        yield from _unknown(config[key], known, what, f"{where(key)}: {key!r}")
    curve = config["learning_curve"]["variants"]
    place = f"{where('learning_curve')}: 'learning_curve.variants'"
    yield from _unknown(curve, variants, "variant", place)
    for variant, seeds in config["more_seeds"].items():
        for seed in seeds:
            if seed in config["seeds"]:
                yield (
                    f"{where('more_seeds')}: 'more_seeds.{variant}' repeats {seed}, which is one "
                    "of 'seeds'; take it out"
                )


def _external(configuration: Configuration, where: Where) -> Iterator[str]:
    """External predictions need names and cohorts that fit the rest."""
    for name, method in configuration.config["external"].items():
        place = f"{where('external')}: 'external.{name}'"
        if name in configuration.variants:
            yield f"{place} is called like a variant of config/methods; rename it"
        entries = method["predictions"]
        cohorts = [entry["cohort"] for entry in entries]
        yield from _unknown(cohorts, configuration.datasets, "cohort", place)
        pairs = [(entry["cohort"], entry["protocol"]) for entry in entries]
        for cohort, protocol in pairs:
            if pairs.count((cohort, protocol)) > 1:
                once = "list all files in one entry"
                yield f"{place} names {cohort!r} with {protocol!r} twice; {once}"
        # Without its file a run that was taken over earlier would stay in the tables.
        for file in (file for entry in entries for file in entry["files"]):
            if not Path(file).is_file():
                yield f"{place}: the file {file} does not exist; correct its path, or take it out"


def _hyperparameters(configuration: Configuration, where: Where) -> Iterator[str]:
    """Only what ``presets.common`` of a method states may be changed, to values like those."""
    commons = {name: method["presets"]["common"] for name, method in configuration.methods.items()}
    for name, method in configuration.methods.items():
        place, common = shown(configuration.find("methods", name)), commons[name]
        yield from _types(name, common, f"{place}: presets.common")
        for preset, values in method["presets"].items():
            yield from _changes(values, common, f"{place}: presets.{preset}")
        yield from _tries(method["search"], common, f"{place}: search")
    everything = {key: value for common in commons.values() for key, value in common.items()}
    for method, values in configuration.config["overrides"].items():
        common = everything if method == "all" else commons[method]
        yield from _changes(values, common, f"{where('overrides')}: overrides.{method}")


def _tries(search: dict, common: dict, place: str) -> Iterator[str]:
    for key, values in search.items():
        for value in values:
            yield from _changes({key: value}, common, place)


def _types(method: str, values: dict, place: str) -> Iterator[str]:
    """Values that the class of a method would refuse: found here, no finished run is lost."""
    known = declared(method) or {}
    for key, value in values.items():
        kind = known[key].type if key in known else None
        try:
            if kind:
                typed(value, kind, f"{place}.{key}")
        except BrioError as error:
            yield str(error)


def _changes(values: dict, common: dict, place: str) -> Iterator[str]:
    for key, value in values.items():
        if key in HYPERPARAMETERS:
            yield f"{place}: {key!r} was renamed to {HYPERPARAMETERS[key]!r}"
        if key not in common:
            yield f"{place}: unknown hyperparameter {key!r}{suggestion(key, common)}"
            continue
        wanted = type(common[key])
        if type(value) is not wanted and not (wanted is float and type(value) is int):
            hint = "; with an exponent it needs a point: 1.0e-4" if wanted is float else ""
            yield f"{place}: {key!r} must be like {common[key]!r}, not {value!r}{hint}"
    try:
        check_ranges(values, place)
    except BrioError as error:
        yield str(error)


def _code(configuration: Configuration, where: Where) -> Iterator[str]:
    """The code of a method must be there, and must know the hyperparameters of its file."""
    for name in configuration.config["methods"]:
        method, place = configuration.methods[name], shown(configuration.find("methods", name))
        if not has_code(name):
            yield (
                f"{place}: method {name!r} has no code, {module_of(name)}.py does not exist; write "
                "it, or take the method out of 'methods'"
            )
            continue
        common, known = method["presets"]["common"], declared(name)
        if known is None:
            yield (
                f"{module_of(name)} has no class with name = {name!r} and Hyperparameters; "
                "see docs/adding-a-method.md"
            )
            continue
        yield from _unknown(common, known, "hyperparameter", f"{place}: presets.common")
        for key, field in known.items():
            if field.needed and key not in common:
                yield (
                    f"{place}: presets.common has no {key!r}, which {module_of(name)} needs; add it"
                )


def late_checkpoints(configuration: Configuration, runs: Iterable[Run]) -> Iterator[str]:
    """Trainings that would end before a checkpoint may be chosen."""
    for variant in dict.fromkeys(run.variant for run in runs):
        values = configuration.train_params(variant)["hyperparameters"]
        epochs, first = values.get("epochs"), values.get("first_epoch")
        if epochs and first and first > epochs:
            yield (
                f"variant {variant!r} would be trained for {epochs} epochs, but its checkpoint is "
                f"chosen from epoch {first} on (first_epoch); lower first_epoch too, for instance "
                f"under overrides.{configuration.variants[variant][0]}"
            )


def _variants(configuration: Configuration, where: Where) -> Iterator[str]:
    """Variants of methods and experiments need names of their own, and a method that exists."""
    own_names = (str, published_variant, searched_variant)
    owner = {own(name): f"method {name!r}" for name in configuration.methods for own in own_names}
    definitions = {"methods": configuration.methods, "experiments": configuration.experiments}
    for kind, files in definitions.items():
        for name, content in files.items():
            place = shown(configuration.find(kind, name))
            for variant, change in content["variants"].items():
                method = change.get("method", name)
                yield from _unknown([method], configuration.methods, "method", place)
                if variant in owner:
                    also = f"is also defined by {owner[variant]}; rename one"
                    yield f"{place}: variant {variant!r} {also}"
                owner[variant] = f"{kind[:-1]} {name!r}"
                common = configuration.methods[method]["presets"]["common"]
                at = f"{place}: variants.{variant}"
                yield from _changes(change["hyperparameters"], common, f"{at}.hyperparameters")
                yield from _tries(change.get("search", {}), common, f"{at}.search")


def _experiments(configuration: Configuration, where: Where) -> Iterator[str]:
    """Experiments must name known things and have outputs of their own."""
    owner: dict[tuple[str, str], str] = {}
    variants, cohorts = configuration.variants, names("datasets", configuration.folders)
    for name, experiment in configuration.experiments.items():
        place = shown(configuration.find("experiments", name))
        for entry in experiment["runs"]:
            yield from _unknown(entry["variants"], variants, "variant", place)
            yield from _unknown(entry["cohorts"], cohorts, "cohort", place)
        for ensemble, one in experiment["ensembles"].items():
            yield from _unknown(one["members"], variants, "variant", f"{place}: {ensemble!r}")
            if ensemble in variants:
                yield f"{place}: the ensemble {ensemble!r} is called like a variant; rename it"
        for kind, items in experiment["outputs"].items():
            for item in items:
                other = owner.setdefault((kind, item["name"]), name)
                if other != name:
                    yield (
                        f"{place}: {item['name']!r} in outputs.{kind} is also an output of "
                        f"experiment {other!r}; rename one"
                    )
                named = [*item.get("variants", ()), *filter(None, [item.get("reference")])]
                yield from _output(item, kind, place)
                yield from _unknown(named, variants, "variant", place)


def _output(item: dict, kind: str, place: str) -> Iterator[str]:
    """A table or figure must be one of the catalogue, and its options must be those it takes."""
    singular = kind.removesuffix("s")
    name, known = item[singular], catalogue(kind)
    yield from _unknown([name], known, singular, place)
    options = {option for output in known.values() for option in output.options}
    for option in sorted(item.keys() & options - set(known[name].options)):
        yield (
            f"{place}: {singular} {item['name']!r} has the option {option!r}, which {name!r} does "
            "not take; take it out"
        )
