"""Mistakes that a schema cannot see, because they lie between two files."""

from typing import TYPE_CHECKING

from brio_core.methods.hyperparameters import check_ranges
from brio_core.system.errors import BrioError
from workflow.planning.files import ConfigurationError, find, names, shown
from workflow.planning.runs import experiment_runs, published_variant, searched_variant
from workflow.planning.schema import suggestion

if TYPE_CHECKING:
    from workflow.planning.configuration import Configuration

# Targets and rules that an experiment, which is a target itself, must not be called like.
RESERVED = frozenset({
    "all", "demo", "paper", "tables", "figures", "overview", "make_demo", "candidates", "extract",
    "assemble", "connect", "site_profile", "data", "split", "blocklength", "train", "diagnose",
    "summarise", "table", "figure", "index", "export", "adopt", "settings", "paper_vs_ours",
    "remote", "document",
})  # fmt: skip


def check_methods(configuration: "Configuration") -> None:
    """Presets and variants may change only what ``presets.common`` states."""
    own_names = (str, published_variant, searched_variant)
    owner = {own(name): name for name in configuration.methods for own in own_names}
    for name, method in configuration.methods.items():
        where = shown(find("methods", name))
        common = method["presets"]["common"]
        for preset, values in method["presets"].items():
            _check_hyperparameters(values, common, f"{where}: presets.{preset}")
        for key, values in method["search"].items():
            for value in values:
                _check_hyperparameters({key: value}, common, f"{where}: search")
        for variant, change in method["variants"].items():
            _check_hyperparameters(
                change["hyperparameters"], common, f"{where}: variants.{variant}.hyperparameters"
            )
            if variant in owner:
                raise ConfigurationError(
                    f"{where}: variant {variant!r} is also defined by method {owner[variant]!r}"
                )
            owner[variant] = name


def check_overrides(configuration: "Configuration", where: str) -> None:
    """Overrides must name a method and settings that it has."""
    commons = {name: method["presets"]["common"] for name, method in configuration.methods.items()}
    for method, values in configuration.config["overrides"].items():
        if method == "all":
            common = {key: value for each in commons.values() for key, value in each.items()}
        elif method in commons:
            common = commons[method]
        else:
            raise ConfigurationError(
                f"{where}: unknown method {method!r} in 'overrides'{suggestion(method, commons)}"
            )
        _check_hyperparameters(values, common, f"{where}: overrides.{method}")


def check_skipped(configuration: "Configuration", where: str) -> None:
    """Something must be left when what is missing is skipped."""
    cohorts = configuration.config["cohorts"]
    if configuration.skipped.issuperset(cohorts):
        raise ConfigurationError(
            f"{where}: with 'on_missing: skip' no cohort is left, the data of "
            f"{', '.join(cohorts)} are not there"
        )


def check_external(configuration: "Configuration", where: str) -> None:
    """External predictions need names and cohorts that fit the rest."""
    for name, method in configuration.config["external"].items():
        if name in configuration.variants:
            raise ConfigurationError(
                f"{where}: 'external.{name}' is called like a variant of config/methods; rename it"
            )
        seen = set()
        for entry in method["predictions"]:
            cohort, pair = entry["cohort"], (entry["cohort"], entry["protocol"])
            if cohort not in configuration.datasets:
                raise ConfigurationError(
                    f"{where}: unknown cohort {cohort!r} in 'external.{name}'"
                    f"{suggestion(cohort, configuration.datasets)}"
                )
            if pair in seen:
                raise ConfigurationError(
                    f"{where}: 'external.{name}' names {cohort!r} with {entry['protocol']!r} twice"
                    "; list all files in one entry"
                )
            seen.add(pair)


def _check_hyperparameters(values: dict, common: dict, where: str) -> None:
    for key, value in values.items():
        if key not in common:
            raise ConfigurationError(
                f"{where}: unknown hyperparameter {key!r}{suggestion(key, common)}"
            )
        wanted = type(common[key])
        if type(value) is not wanted and not (wanted is float and type(value) is int):
            hint = "; with an exponent it needs a point: 1.0e-4" if wanted is float else ""
            raise ConfigurationError(
                f"{where}: {key!r} must be like {common[key]!r}, not {value!r}{hint}"
            )
    try:
        check_ranges(values, where)
    except BrioError as error:
        raise ConfigurationError(str(error)) from None


def check_variants(configuration: "Configuration", where: str) -> None:
    """The configuration may allow only variants that there are."""
    words = configuration.config["variants"]
    for word in words if isinstance(words, list) else ():
        if word not in configuration.variants:
            raise ConfigurationError(
                f"{where}: unknown variant {word!r} in 'variants'"
                f"{suggestion(word, configuration.variants)}"
            )


def check_seeds(configuration: "Configuration", where: str) -> None:
    """Seeds belong to variants and experiments that there are; further ones must be others."""
    settings = configuration.config
    known, what = configuration.experiments, "'experiment_seeds': unknown experiment"
    _check_words(list(settings["experiment_seeds"]), known, f"{where}: {what}")
    for variant, seeds in settings["more_seeds"].items():
        _check_words([variant], configuration.variants, f"{where}: 'more_seeds': unknown variant")
        for seed in seeds:
            if seed in settings["seeds"]:
                raise ConfigurationError(
                    f"{where}: 'more_seeds.{variant}' repeats {seed}, which is one of 'seeds'"
                )


def check_experiments(configuration: "Configuration", where: str) -> None:
    """Experiments must name known things, have outputs of their own, and something to run."""
    owner: dict[tuple[str, str], str] = {}
    for name, experiment in configuration.experiments.items():
        place = shown(find("experiments", name))
        if name in RESERVED:
            raise ConfigurationError(f"{place}: {name!r} is the name of a rule; rename the file")
        for entry in experiment["runs"]:
            _check_words(entry["variants"], configuration.variants, f"{place}: unknown variant")
            _check_words(entry["cohorts"], names("datasets"), f"{place}: unknown cohort")
        for kind, items in experiment["outputs"].items():
            for item in items:
                other = owner.setdefault((kind, item["name"]), name)
                if other != name:
                    raise ConfigurationError(
                        f"{place}: {item['name']!r} in outputs.{kind} is also an output of "
                        f"experiment {other!r}"
                    )
                named = [*item.get("variants", []), *_reference(item, place)]
                _check_words(named, configuration.variants, f"{place}: unknown variant")
    for name in configuration.config["experiments"]:
        if not experiment_runs(configuration, name):
            raise ConfigurationError(
                f"{where}: experiment {name!r} has nothing to run with these cohorts and methods; "
                "take it out of 'experiments'"
            )


def _reference(item: dict, place: str) -> list[str]:
    """The variant that a table compares others with, if it names one."""
    if "reference" in item and item["program"] != "checkpoint_table":
        raise ConfigurationError(
            f"{place}: table {item['name']!r} has a 'reference', which only checkpoint_table "
            "takes; take it out"
        )
    return [item["reference"]] if "reference" in item else []


def _check_words(words: str | list, known, problem: str) -> None:
    for word in words if isinstance(words, list) else ():
        if word not in known:
            raise ConfigurationError(f"{problem} {word!r}{suggestion(word, known)}")
