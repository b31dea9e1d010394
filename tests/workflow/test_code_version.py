"""The version of a job's code: what it covers, and what it ignores."""

import pytest

from brio_core.methods.registry import SHARED
from brio_core.system.versions import ROOT, code_version, examined, imported, method_files


@pytest.fixture
def repository(tmp_path):
    """A script, a package with two modules, and a module that nobody imports."""
    files = {
        "scripts/run.py": "from pack.used import value\nprint(value)\n",
        "pack/__init__.py": "",
        "pack/used.py": "def value():\n    from . import deep\n    return deep.x\n",
        "pack/deep.py": "import json\nx = 1\n",
        "pack/other.py": "y = 1\n",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)

    def version():
        for cached in (code_version, examined):
            cached.cache_clear()
        return code_version("scripts/run.py", root=tmp_path)

    return tmp_path, version


@pytest.mark.parametrize(
    "file", ["scripts/run.py", "pack/__init__.py", "pack/used.py", "pack/deep.py"]
)
def test_what_is_imported_counts(repository, file):
    folder, version = repository
    before = version()
    with open(folder / file, "a") as stream:
        stream.write("CHANGED = 1\n")
    assert version() != before


@pytest.mark.parametrize(
    "text",
    [
        "# a remark\nfrom pack.used import value\n\n\nprint( value )\n",
        '"""Words."""\nfrom pack.used import value\nprint(value)\n',
    ],
    ids=["comment and layout", "docstring"],
)
def test_what_does_not_run_does_not_count(repository, text):
    folder, version = repository
    before = version()
    (folder / "scripts/run.py").write_text(text)
    assert version() == before


def test_what_is_not_imported_does_not_count(repository):
    folder, version = repository
    before = version()
    (folder / "pack/other.py").write_text("y = 2\n")
    assert version() == before


def test_other_files_count_by_their_bytes(repository):
    folder, _ = repository
    (folder / "page.html.j2").write_text("<p>")
    first = code_version("page.html.j2", root=folder)
    (folder / "other.html.j2").write_text("<p>")
    assert first != code_version("other.html.j2", root=folder)


def test_a_method_is_a_module_or_a_package():
    assert method_files("gcn") == ("brio_core/methods/gcn.py",)
    assert method_files("linear-correlation") == ("brio_core/methods/linear_correlation.py",)
    assert "brio_core/methods/brio/factors.py" in method_files("brio")
    assert method_files("no-such-method") == ()


def test_training_imports_no_method():
    """Else a change of one method would retrain all."""
    found = imported([ROOT / "scripts/train.py"])
    methods = {path.name for path in found if path.parent.name == "methods"}
    shared = {f"{name}.py" for name in SHARED if name not in ("layers", "linear")}
    assert methods == {"__init__.py", *shared}
