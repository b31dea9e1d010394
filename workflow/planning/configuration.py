"""Load, check and resolve the configuration.

A configuration names cohorts, methods and experiments; each has a YAML file of its own. Keys that
are left out take the defaults of workflow/schemas. All mistakes are found here, before any job.
"""

import sys
from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from workflow.planning.assignments import merged, read_assignments
from workflow.planning.checks import (
    check_experiments,
    check_external,
    check_methods,
    check_overrides,
    check_seeds,
    check_skipped,
    check_variants,
)
from workflow.planning.files import (
    ConfigurationError,
    ending,
    find,
    folders,
    names,
    read_yaml,
    shown,
)
from workflow.planning.outputs import experiments_with_results
from workflow.planning.paths import Paths
from workflow.planning.runs import Run, experiment_runs, published_variant, searched_variant
from workflow.planning.schema import check, filled, schema, suggestion
from workflow.planning.sources import missing_data

SINGULAR = {"datasets": "dataset", "methods": "method", "experiments": "experiment"}


@dataclass(frozen=True, eq=False)
class Configuration:
    """The resolved configuration: the main settings and every file that they may name."""

    config: dict
    datasets: dict[str, dict]
    methods: dict[str, dict]
    experiments: dict[str, dict]
    skipped: frozenset[str] = frozenset()
    """Cohorts without data and methods without code, where the configuration says to skip them."""

    @cached_property
    def variants(self) -> dict[str, tuple[str, dict]]:
        """Every variant: its method and what it changes.

        A method is a variant of itself, and so is one with its authors' settings, and one whose
        folds choose among the values of its ``search``.
        """
        found = {}
        for name, method in self.methods.items():
            found[name] = (name, {"label": method["label"], "hyperparameters": {}})
            found.update({key: (name, value) for key, value in method["variants"].items()})
            published = method["presets"].get("published")
            if published:
                change = {"label": f"{method['label']} (published)", "hyperparameters": published}
                found[published_variant(name)] = (name, change)
            if method["search"]:
                change = {
                    "label": f"{method['label']} (searched)",
                    "hyperparameters": {},
                    "search": True,
                }
                found[searched_variant(name)] = (name, change)
        return found

    def leaves_out(self, run: Run) -> bool:
        """Whether a run has no results and shall not be trained now."""
        if self.config["untrained"] == "train":
            return False
        folder = Path(Paths(self.config["results"]).run(run))
        return not all((folder / name).exists() for name in ("predictions.csv", "meta.json"))

    def method_of(self, variant: str) -> dict:
        """The method file of a variant."""
        return self.methods[self.variants[variant][0]]

    def train_params(self, variant: str) -> dict:
        """What the trainer is told about a variant.

        Later ones win: preset ``common``, the chosen preset, the overrides of the configuration,
        and last the variant, because its settings are what its name stands for.
        """
        method = self.method_of(variant)
        change = self.variants[variant][1]
        overrides = self.config["overrides"]
        settings = dict(method["presets"]["common"])
        settings |= method["presets"].get(self.config["preset"], {})
        shared = overrides.get("all", {})
        settings |= {key: value for key, value in shared.items() if key in settings}
        settings |= overrides.get(method["method"], {})
        settings |= change["hyperparameters"]
        # What somebody has fixed is not searched.
        fixed = {*overrides.get(method["method"], {}), *change["hyperparameters"]}
        if self.config["preset"] != "common":
            fixed |= method["presets"].get(self.config["preset"], {}).keys()
        searched = self.config["search"] or change.get("search", False)
        search = method["search"] if searched else {}
        return {
            "method": method["method"],
            "label": change["label"],
            "group": method["group"],
            "hyperparameters": settings,
            "search": {key: values for key, values in search.items() if key not in fixed},
        }

    def resolved(self) -> dict:
        """Everything that is needed to repeat the run, for run_config.yaml."""
        active = self.config["experiments"]
        used = {run.variant for name in active for run in experiment_runs(self, name)}
        return {
            "config": self.config,
            "datasets": self.datasets,
            "experiments": {name: self.experiments[name] for name in active},
            "variants": {variant: self.train_params(variant) for variant in sorted(used)},
        }


def default_configfile() -> str:
    """config.yaml beside the results if there is one, else that of the repository: the demo."""
    paths = [folder / "config.yaml" for folder in folders()]
    return str(next((path for path in paths if path.is_file()), paths[-1]))


def load_or_exit(workflow) -> Configuration:
    """:func:`load`, but a mistake ends Snakemake with one sentence and without a trace."""
    files = [Path(file) for file in workflow.configfiles]
    try:
        words = read_assignments(workflow.config_settings.config_args, schema("config"))
        config = merged(workflow.config, words)
        return load(config, files, words, checked=workflow.is_main_process)
    except ConfigurationError as error:
        sys.exit(f"error: {error}")


def load(
    config: dict, files: Sequence[Path] = (), words: Container[str] = (), checked: bool = True
) -> Configuration:
    """Resolve ``config``, as merged from ``files`` and the keys ``words`` of the command line.

    Jobs of a cluster pass ``checked=False``: the process that submitted them has checked.
    """
    where = _origin(files, words)
    if checked:
        check(config, schema("config"), where)
    settings = filled(config, schema("config"))
    for key in ("results", "data_dir"):
        settings[key] = str(Path(settings[key]))
    methods = {name: _read("methods", name, checked) for name in names("methods")}
    coded = [name for name, method in methods.items() if not method["planned"]]
    named = {"all": list(methods), "implemented": coded}
    settings["methods"] = named.get(str(settings["methods"]), settings["methods"])
    for key, kind in (
        ("cohorts", "datasets"),
        ("methods", "methods"),
        ("experiments", "experiments"),
        ("documents", "documents"),
    ):
        _require_files(settings[key], key, kind, where)
    datasets = {name: _read("datasets", name, checked) for name in settings["cohorts"]}
    configuration = Configuration(
        settings,
        datasets,
        methods,
        {name: _read("experiments", name, checked) for name in names("experiments")},
        _skipped(settings, datasets, methods),
    )
    if settings["untrained"] == "skip":
        settings["experiments"] = experiments_with_results(configuration)
        if not settings["experiments"]:
            raise ConfigurationError(
                f"{where('untrained')}: with 'untrained: skip' nothing is left, "
                f"{settings['results']} holds no results of the experiments; train something first"
            )
    if checked:
        check_skipped(configuration, where("on_missing"))
        check_external(configuration, where("external"))
        check_methods(configuration)
        check_overrides(configuration, where("overrides"))
        check_variants(configuration, where("variants"))
        check_seeds(configuration, where("more_seeds"))
        check_experiments(configuration, where("experiments"))
    return configuration


def _skipped(settings: dict, datasets: dict, methods: dict) -> frozenset[str]:
    if settings["on_missing"] == "stop":
        return frozenset()
    data_dir = settings["data_dir"]
    absent = [name for name, dataset in datasets.items() if missing_data(dataset, data_dir)]
    return frozenset([*absent, *(name for name, method in methods.items() if method["planned"])])


def _origin(files: Sequence[Path], words: Container[str]) -> Callable[[str | None], str]:
    """A function that names the place which a top-level key comes from; the last one wins."""

    def where(key: str | None) -> str:
        for path in () if key in words else reversed(files):
            if key is None or key in read_yaml(path):
                return shown(path)
        return "--config"

    return where


def _require_files(wanted: Sequence[str], key: str, kind: str, where: Callable) -> None:
    for name in wanted:
        if find(kind, name) is None:
            raise ConfigurationError(
                f"{where(key)}: unknown name {name!r} in {key!r}, "
                f"there is no config/{kind}/{name}{ending(kind)}{suggestion(name, names(kind))}"
            )


def _read(kind: str, name: str, checked: bool) -> dict:
    path = find(kind, name)
    value = read_yaml(path)
    rules = schema(SINGULAR[kind])
    if checked:
        check(value, rules, shown(path))
    value = filled(value, rules)
    key = {"datasets": "cohort", "methods": "method"}.get(kind)
    if checked and key and value[key] != name:
        raise ConfigurationError(
            f"{shown(path)}: {key!r} is {value[key]!r} but must be {name!r}, like the file"
        )
    return value
