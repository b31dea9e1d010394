"""Find a method by its name. Adding a method is adding its file."""

import importlib
import importlib.util
import pkgutil

from brio_core.methods.interface import Method
from brio_core.system.errors import BrioError

# Modules that are no methods.
SHARED = ("hyperparameters", "interface", "layers", "linear", "registry", "stack", "train_view",
          "training_scans")  # fmt: skip


def find(name: str) -> type[Method]:
    """The class of a method: ``fc-hgnn`` lives in ``brio_core/methods/fc_hgnn.py``."""
    path = f"{__package__}.{name.replace('-', '_')}"
    found = importlib.util.find_spec(path)
    if found is None:
        raise BrioError(
            f"method {name!r} has no code ({path.replace('.', '/')}.py does not exist); "
            "take it out of the configuration"
        )
    # A method of several files has its class in method.py.
    module = f"{path}.method" if found.submodule_search_locations else path
    for value in vars(importlib.import_module(module)).values():
        if (
            isinstance(value, type)
            and issubclass(value, Method)
            and vars(value).get("name") == name
        ):
            return value
    raise BrioError(f"{path} defines no Method whose name is {name!r}")


def names() -> list[str]:
    """All methods that have code, in alphabetical order."""
    package = importlib.import_module(__package__)
    modules = (info.name for info in pkgutil.iter_modules(package.__path__))
    return sorted(name.replace("_", "-") for name in modules if name not in SHARED)
