"""What the code of a method declares, read from its source: planning must not import torch."""

import ast
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal, NamedTuple

from brio_core.system.versions import method_module
from workflow.planning.files import ROOT, ConfigurationError, shown

Found = tuple[Path, ast.ClassDef]
TYPES = {"bool": bool, "int": int, "float": float, "str": str}


class Field(NamedTuple):
    """A hyperparameter: its type, if planning knows it, and whether it has no default."""

    type: Any
    needed: bool


def module_of(method: str) -> str:
    """The path of the module that holds a method, without ending, whether or not it is there."""
    return f"brio_core/methods/{method_module(method)}"


def has_code(method: str) -> bool:
    """Whether there is a module for the method."""
    return _file(module_of(method)) is not None


@lru_cache
def declared(method: str) -> dict[str, Field] | None:
    """The hyperparameters of a method; None if there is no class of this name."""
    kinds = [kind for one in _own_classes(method) if (kind := _kind_of(one))]
    return _fields(kinds[0]) if kinds else None


def asks_population(method: str) -> bool:
    """Whether a prediction of the method asks its training subjects."""
    return any(_value(one, "needs_population") is True for _, one in _own_classes(method))


def _own_classes(method: str) -> list[Found]:
    """The classes of a method's module that have its name; none where there is no module."""
    path = _file(module_of(method))
    classes = [_class(path, name) for name in _names(path)] if path else []
    return [one for one in classes if one and _value(one[1], "name") == method]


def _file(module: str) -> Path | None:
    path = ROOT / module
    files = (path.with_suffix(".py"), path / "method.py", path / "__init__.py")
    return next((file for file in files if file.is_file()), None)


@lru_cache
def _names(path: Path) -> dict[str, ast.ClassDef | tuple[str, str]]:
    """Classes of a module, and what it imports by name: module, and name there."""
    found: dict[str, ast.ClassDef | tuple[str, str]] = {}
    try:
        tree = ast.parse(path.read_bytes(), str(path))
    except SyntaxError as error:
        raise ConfigurationError(
            f"{shown(path)} is no valid Python (line {error.lineno}: {error.msg}); correct it"
        ) from None
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            found[node.name] = node
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {one.asname or one.name: (node.module, one.name) for one in node.names}
    return found


def _class(path: Path | None, name: str) -> Found | None:
    """The class of a name that a module defines or imports, if its code is ours."""
    found = _names(path).get(name) if path else None
    if isinstance(found, tuple):
        return _class(_file(found[0].replace(".", "/")), found[1])
    return (path, found) if found else None


def _value(node: ast.ClassDef, name: str) -> object:
    """What the body of a class assigns: a constant, or the name of another class."""
    for line in node.body:
        if isinstance(line, ast.Assign) and getattr(line.targets[0], "id", "") == name:
            return getattr(line.value, "value", getattr(line.value, "id", None))
    return None


def _bases(found: Found) -> list[Found]:
    path, node = found
    bases = [_class(path, base.id) for base in node.bases if isinstance(base, ast.Name)]
    return [base for base in bases if base]


def _kind_of(found: Found) -> Found | None:
    """The class ``Hyperparameters`` of a method, which it may have from a base."""
    name = _value(found[1], "Hyperparameters")
    if name:
        return _class(found[0], str(name))
    kinds = (_kind_of(base) for base in _bases(found))
    return next((kind for kind in kinds if kind), None)


def _fields(found: Found) -> dict[str, Field]:
    """Fields of a dataclass and its bases; one with a default needs no value."""
    fields: dict[str, Field] = {}
    for base in reversed(_bases(found)):
        fields |= _fields(base)
    for line in found[1].body:
        if isinstance(line, ast.AnnAssign) and "ClassVar" not in ast.unparse(line.annotation):
            fields[line.target.id] = Field(_type(line.annotation), line.value is None)
    return fields


def _type(annotation: ast.expr) -> Any:
    """The type that an annotation means, of those that hyperparameters have."""
    match annotation:
        case ast.Name(name):
            return TYPES.get(name)
        case ast.Subscript(ast.Name("Literal"), choices):
            return Literal[ast.literal_eval(choices)]
        case ast.Subscript(ast.Name("tuple"), ast.Tuple([ast.Name(name), *_])) if name in TYPES:
            return tuple[TYPES[name], ...]
    return None
