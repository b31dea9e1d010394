"""Find a method by its name. Adding a method is adding its file."""

import importlib
import importlib.util
import pkgutil
from types import ModuleType

from brio_core.methods.interface import Method
from brio_core.system.errors import BrioError, nearest
from brio_core.system.versions import method_module

# Modules that are no methods.
SHARED = ("hyperparameters", "interface", "layers", "registry", "stack", "training_scans")


def find(name: str) -> type[Method]:
    """The class of a method: ``fc-hgnn`` lives in ``brio_core/methods/fc_hgnn.py``."""
    path = f"{__package__}.{method_module(name)}"
    found = _methods(path).get(name) if importlib.util.find_spec(path) else None
    if found is None:
        place = path.replace(".", "/")
        raise BrioError(f"method {name!r} has no code in {place}{nearest(name, names())}")
    return found


def names() -> list[str]:
    """All methods that have code, in alphabetical order."""
    package = importlib.import_module(__package__)
    modules = (info.name for info in pkgutil.iter_modules(package.__path__))
    found = (_methods(f"{__package__}.{name}") for name in modules if name not in SHARED)
    return sorted(name for methods in found for name in methods)


def _methods(path: str) -> dict[str, type[Method]]:
    """The methods of a module by name; a method of several files has its class in method.py."""
    package = importlib.util.find_spec(path).submodule_search_locations
    module: ModuleType = importlib.import_module(f"{path}.method" if package else path)
    classes = [value for value in vars(module).values() if isinstance(value, type)]
    own = [one for one in classes if issubclass(one, Method) and one.__module__ == module.__name__]
    return {one.name: one for one in own if "name" in vars(one)}
