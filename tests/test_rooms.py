"""The house: rooms import from rooms to their left only, and no files in a circle."""

import ast
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
# From left to right. Kernels import nothing of ours, so everything may use them.
ROOMS = (
    "kernels", "system", "connectivity", "cohorts", "methods", "training", "evaluation",
    "reporting", "remote",
)  # fmt: skip
PACKAGES = {"library": ROOT / "brio_core", "planning": ROOT / "workflow" / "planning"}


@cache
def modules(package: str) -> dict[str, Path]:
    """Dotted names of all files of a package."""
    files = PACKAGES[package].rglob("*.py")
    return {_dotted(path): path for path in files}


def _dotted(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@cache
def imports(path: Path) -> list[tuple[str, str]]:
    """(module, name) of every import of ours, wherever in the file it stands."""
    found = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom):
            found += [(node.module or "", alias.name) for alias in node.names]
        elif isinstance(node, ast.Import):
            found += [(alias.name, "") for alias in node.names]
    return [pair for pair in found if pair[0].split(".")[0] in ("brio_core", "workflow")]


def targets(path: Path, known: dict[str, Path]) -> set[str]:
    """Modules of a package that a file imports."""
    whole = {f"{module}.{name}" for module, name in imports(path)}
    parts = {module for module, name in imports(path) if f"{module}.{name}" not in known}
    return (whole | parts) & known.keys()


@pytest.mark.parametrize("package", PACKAGES)
def test_no_files_import_in_a_circle(package):
    known = modules(package)
    arrows = {name: targets(path, known) - {name} for name, path in known.items()}
    try:
        TopologicalSorter(arrows).prepare()
    except CycleError as error:
        pytest.fail(f"imports in a circle: {' <- '.join(error.args[1])}")


def test_rooms_import_from_their_left_only():
    known = modules("library")
    wrong = [
        f"{name} imports {other}"
        for name, path in known.items()
        for other in targets(path, known)
        if name.count(".") and other.count(".") and _place(other) > _place(name)
    ]
    assert not wrong, "\n".join(wrong)


def _place(name: str) -> int:
    room = name.split(".")[1]
    return ROOMS.index(room) if room in ROOMS else len(ROOMS)


@pytest.mark.parametrize("package", PACKAGES)
def test_no_file_imports_a_private_name_of_another(package):
    private = [
        f"{name}: {module}.{what}"
        for name, path in modules(package).items()
        for module, what in imports(path)
        if what.startswith("_") and not what.startswith("__")
    ]
    assert not private, "\n".join(private)


def test_the_library_has_few_entries_and_small_files():
    entries = [path for path in (ROOT / "brio_core").iterdir() if path.name != "__pycache__"]
    assert len(entries) <= 12
    files = [*(ROOT / "brio_core").rglob("*.py"), *(ROOT / "workflow").rglob("*.py")]
    files += [*(ROOT / "scripts").rglob("*.py"), *(ROOT / "tests").rglob("*.py")]
    long = [str(path) for path in files if len(path.read_text().splitlines()) > 300]
    assert not long
