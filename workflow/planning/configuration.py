"""The resolved configuration: what the user wrote, with every default and every file it names."""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from workflow.planning.files import find
from workflow.planning.paths import Paths


@dataclass(frozen=True, eq=False)
class Configuration:
    """The main configuration and every file that it may name."""

    config: dict
    datasets: dict[str, dict]
    methods: dict[str, dict]
    experiments: dict[str, dict]
    folders: tuple[Path, ...]
    """Where these files are looked for; see :func:`workflow.planning.files.folders`."""
    skipped: frozenset[str] = frozenset()
    """Cohorts without data, where the configuration says to skip them."""

    @cached_property
    def paths(self) -> Paths:
        """Where the results are."""
        return Paths(self.config["results"])

    @cached_property
    def variants(self) -> dict[str, tuple[str, dict]]:
        """Every variant: its method and what it changes.

        A method is a variant of itself, and so is one with its authors' hyperparameters, and one
        whose folds choose among the values of its ``search``. An experiment may define further
        ones.
        """
        found = {}
        for name, method in self.methods.items():
            label = method["label"]
            found[name] = (name, {"label": label, "hyperparameters": {}})
            found |= {key: (name, value) for key, value in method["variants"].items()}
            published = method["presets"].get("published")
            if published:
                change = {"label": f"{label} (published)", "hyperparameters": published}
                found[published_variant(name)] = (name, change)
            if method["search"]:
                change = {"label": f"{label} (searched)", "hyperparameters": {}}
                change["search"] = method["search"]
                found[searched_variant(name)] = (name, change)
        for experiment in self.experiments.values():
            found |= {name: (one["method"], one) for name, one in experiment["variants"].items()}
        return found

    def find(self, kind: str, name: str) -> Path:
        """The file of a dataset, method, experiment or document of this configuration."""
        return find(kind, name, self.folders)

    def method_of(self, variant: str) -> dict:
        """The method file of a variant."""
        return self.methods[self.variants[variant][0]]

    def device_of(self, variant: str) -> str:
        """What trains a variant; linear ones need no GPU."""
        return self.config["device"] if self.method_of(variant)["gpu"] else "cpu"

    def train_params(self, variant: str) -> dict:
        """What the trainer is told about a variant.

        Later ones win: preset ``common``, the chosen preset, the overrides of the configuration,
        and last the variant, because its hyperparameters are what its name stands for.
        """
        method, change = self.method_of(variant), self.variants[variant][1]
        preset = self.config["preset"]
        overrides = self.config["overrides"]
        shared, own = overrides.get("all", {}), overrides.get(method["method"], {})
        values = method["presets"]["common"] | method["presets"].get(preset, {})
        values |= {key: value for key, value in shared.items() if key in values}
        values |= own | change["hyperparameters"]
        # What somebody has fixed is not searched.
        fixed = {*own, *change["hyperparameters"]}
        if preset != "common":
            fixed |= method["presets"].get(preset, {}).keys()
        search = method["search"] if self.config["search"] else change.get("search", {})
        return {
            "method": method["method"],
            "label": change["label"],
            "group": method["group"],
            "hyperparameters": values,
            "search": {key: values for key, values in search.items() if key not in fixed},
        }


def published_variant(method: str) -> str:
    """The name of a method with its authors' hyperparameters."""
    return f"{method}-published"


def searched_variant(method: str) -> str:
    """The name of a method whose folds choose among the values of its ``search``."""
    return f"{method}-searched"
