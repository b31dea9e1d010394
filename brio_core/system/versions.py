"""Which code does a job run? A hash that changes when, and only when, that code changes.

The hash covers a script and every file of this repository that it imports, directly or not.
Comments, docstrings and layout do not count, because files are hashed as syntax trees.
"""

import ast
import hashlib
import json
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

from brio_core.system.files import ROOT


@cache
def code_version(*names: str, root: Path = ROOT) -> str:
    """The version of the files ``names`` (relative to ``root``) and of all that they import.

    Every version of Python writes syntax trees in its own way, so only one machine compares them.
    """
    digest = hashlib.sha256()
    for path in sorted(imported([root / name for name in names], root)):
        digest.update(f"{path.relative_to(root)}\0{examined(path, root)[0]}\0".encode())
    return digest.hexdigest()[:16]


def value_version(value: object) -> str:
    """A text that changes with a value of plain lists, mappings, texts and numbers."""
    text = json.dumps(value, sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()


def imported(waiting: list[Path], root: Path = ROOT) -> set[Path]:
    """These files and all that they import, directly or not."""
    files: set[Path] = set()
    while waiting:
        path = waiting.pop()
        if path not in files:
            files.add(path)
            waiting += examined(path, root)[1]
    return files


def method_module(method: str) -> str:
    """The name of the module that holds a method; all linear rows are in one."""
    return "linear" if method.startswith("linear-") else method.replace("-", "_")


@cache
def method_files(method: str) -> tuple[str, ...]:
    """The files of a method: one module, or all modules of its package."""
    module = ROOT / "brio_core" / "methods" / method_module(method)
    files = sorted(module.glob("**/*.py")) or [module.with_suffix(".py")]
    return tuple(str(path.relative_to(ROOT)) for path in files if path.exists())


def program_version(program: str, methods: Iterable[str]) -> str:
    """The version of scripts/<program>.py together with methods, which it imports by name."""
    files = [file for method in sorted(set(methods)) for file in method_files(method)]
    return code_version(f"scripts/{program}.py", *files)


@cache
def examined(path: Path, root: Path = ROOT) -> tuple[str, tuple[Path, ...]]:
    """What a file does, as a hash, and the files that it imports, at the top or in a function.

    The syntax tree is not kept: thousands of its nodes would slow down all that comes later.
    """
    if path.suffix != ".py":
        return hashlib.sha256(path.read_bytes()).hexdigest(), ()
    tree = ast.parse(path.read_bytes(), str(path))
    names: set[str] = set()
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    for node in _statements([tree]):
        if isinstance(node, documented) and ast.get_docstring(node, clean=False) is not None:
            del node.body[0]
        elif isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            module = _absolute(node, path, root)
            names.add(module)
            # ``from package import name`` may import a module or a value of the package.
            names.update(f"{module}.{alias.name}" for alias in node.names)
    # A program, unlike a module of a package, also finds what lies beside it.
    is_program = not (path.parent / "__init__.py").exists()
    folders = (root, path.parent) if is_program else (root,)
    files = tuple(file for name in names for file in _module_files(name, folders))
    return hashlib.sha256(ast.dump(tree).encode()).hexdigest(), files


def _statements(nodes: Iterable[ast.AST]) -> Iterator[ast.AST]:
    """Statements and those within them. Expressions hold none; leaving them out saves most time."""
    for node in nodes:
        yield node
        for part in ("body", "orelse", "finalbody", "handlers", "cases"):
            yield from _statements(getattr(node, part, ()))


def _absolute(node: ast.ImportFrom, path: Path, root: Path) -> str:
    if node.level == 0:
        return node.module or ""
    package = path.relative_to(root).parent.parts
    package = package[: len(package) - (node.level - 1)]
    return ".".join([*package, node.module] if node.module else package)


@cache
def _module_files(name: str, folders: tuple[Path, ...]) -> list[Path]:
    """The file of a dotted name and the ``__init__`` files of the packages around it."""
    parts = name.split(".")
    files = []
    for folder in folders:
        for depth in range(1, len(parts) + 1):
            module = folder.joinpath(*parts[:depth])
            files += [module.with_suffix(".py"), module / "__init__.py"]
    return [file for file in files if file.is_file()]
