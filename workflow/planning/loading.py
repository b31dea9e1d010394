"""Load, check and resolve the configuration.

A configuration names cohorts, methods and experiments; each has a YAML file of its own. Keys that
are left out take the defaults of workflow/schemas. All mistakes are found here, before any job.
"""

import sys
from collections.abc import Callable, Container, Sequence
from pathlib import Path

from workflow.planning.assignments import merged, read_assignments
from workflow.planning.checks import check_files, check_runs
from workflow.planning.configuration import Configuration
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
from workflow.planning.schema import check, filled, schema, suggestion
from workflow.planning.sources import missing_data

# Keys of the configuration that name files, and the folders of these files.
FILES = {
    "cohorts": "datasets",
    "methods": "methods",
    "experiments": "experiments",
    "documents": "documents",
}


def default_configfile() -> str:
    """config.yaml beside the results if there is one, else that of the repository: the demo."""
    paths = [folder / "config.yaml" for folder in folders()]
    return str(next((path for path in paths if path.is_file()), paths[-1]))


def load_or_exit(workflow) -> Configuration:
    """:func:`load`, but a mistake ends Snakemake with one sentence and without a trace."""
    files = [Path(file) for file in workflow.configfiles]
    try:
        assigned = read_assignments(workflow.config_settings.config_args, schema("config"))
        config = merged(workflow.config, assigned)
        return load(config, files, assigned, checked=workflow.is_main_process)
    except ConfigurationError as error:
        sys.exit(f"error: {error}")


def load(
    config: dict, files: Sequence[Path] = (), assigned: Container[str] = (), checked: bool = True
) -> Configuration:
    """Resolve ``config``, as merged from ``files`` and the keys ``assigned`` by ``--config``.

    Jobs of a cluster pass ``checked=False``: the process that submitted them has checked.
    """
    where, places = _origin(files, assigned), folders(files)

    def read(kind: str, name: str) -> dict:
        return _read(find(kind, name, places), kind, checked)

    if checked:
        check(config, schema("config"), where)
    config = filled(config, schema("config"))
    for key in ("results", "data_dir"):
        config[key] = str(Path(config[key]).expanduser())
        if strange := sorted(set(config[key]) & set("{}<>")):
            raise ConfigurationError(
                f"{where(key)}: {key!r} is {config[key]!r}, but Snakemake reads {strange[0]!r} in "
                "its own way; name a folder without it"
            )
    methods = {name: read("methods", name) for name in names("methods", places)}
    if config["methods"] == "all":
        config["methods"] = list(methods)
    for key, kind in FILES.items():
        for name in config[key]:
            if find(kind, name, places) is None:
                raise ConfigurationError(
                    f"{where(key)}: unknown name {name!r} in {key!r}, there is no "
                    f"config/{kind}/{name}{ending(kind)}{suggestion(name, names(kind, places))}"
                )
    datasets = {name: read("datasets", name) for name in config["cohorts"]}
    experiments = {name: read("experiments", name) for name in names("experiments", places)}
    skipped = _skipped(config, datasets)
    configuration = Configuration(config, datasets, methods, experiments, places, skipped)
    if checked:
        check_files(configuration, where)
    if config["untrained"] == "skip":
        config["experiments"] = experiments_with_results(configuration)
        if not config["experiments"]:
            raise ConfigurationError(
                f"{where('untrained')}: with 'untrained: skip' nothing is left, "
                f"{config['results']} holds no results of the experiments; train something first"
            )
    if checked:
        check_runs(configuration, where)
    return configuration


def _skipped(config: dict, datasets: dict) -> frozenset[str]:
    if config["on_missing"] == "stop":
        return frozenset()
    data_dir = config["data_dir"]
    return frozenset(name for name in datasets if missing_data(datasets[name], data_dir))


def _origin(files: Sequence[Path], assigned: Container[str]) -> Callable[[str | None], str]:
    """A function that names the place which a top-level key comes from; the last one wins."""

    def where(key: str | None) -> str:
        for path in () if key in assigned else reversed(files):
            if key is None or key in read_yaml(path):
                return shown(path)
        return "--config"

    return where


def _read(path: Path, kind: str, checked: bool) -> dict:
    value = read_yaml(path)
    rules = schema(kind.removesuffix("s"))
    if checked:
        check(value, rules, shown(path))
    value = filled(value, rules)
    key = {"datasets": "cohort", "methods": "method"}.get(kind)
    if checked and key and value[key] != path.stem:
        raise ConfigurationError(
            f"{shown(path)}: {key!r} is {value[key]!r} but must be {path.stem!r}, like the file"
        )
    return value
