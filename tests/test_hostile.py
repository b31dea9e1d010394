"""Files that somebody else has written cannot run code, leave their folder, or become formulas."""

import ast
import json
from pathlib import Path

import numpy as np
import pytest
from tiny import DATASET, make_lab

from brio_core.cohorts.candidates import find_candidates
from brio_core.cohorts.extraction import extract_batch
from brio_core.cohorts.readers.reader import open_reader
from brio_core.cohorts.tables import refuse_formula
from brio_core.system.errors import BrioError

ROOT = Path(__file__).resolve().parents[1]
CODE = [
    path
    for folder in ("brio_core", "scripts", "workflow")
    for path in sorted((ROOT / folder).rglob("*.py"))
]
PICKLES = {"pickle", "cPickle", "dill", "cloudpickle", "joblib", "shelve", "marshal"}


def calls(tree: ast.AST) -> list[tuple[str, dict]]:
    """Every call by its dotted name, with its keyword arguments."""
    return [
        (ast.unparse(node.func), {word.arg: ast.unparse(word.value) for word in node.keywords})
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
    ]


@pytest.mark.parametrize("path", CODE, ids=lambda path: str(path.relative_to(ROOT)))
def test_nothing_that_is_read_can_run_code(path):
    tree = ast.parse(path.read_text(encoding="utf-8"))
    imported = {
        name.split(".")[0]
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in [*(alias.name for alias in node.names), getattr(node, "module", None) or ""]
    }
    assert not imported & PICKLES
    for name, words in calls(tree):
        assert name not in ("eval", "exec", "os.system", "pd.read_pickle", "yaml.unsafe_load")
        assert "shell" not in words
        if name == "torch.load":
            assert words["weights_only"] == "True"
        if name == "np.load":
            assert words["allow_pickle"] == "False"
        if name == "yaml.load":
            assert path.name == "files.py", "there the loader is a safe one"


def test_yaml_makes_no_objects(tmp_path):
    from workflow.planning.files import ConfigurationError, read_yaml

    path = tmp_path / "x.yaml"
    path.write_text(f"a: !!python/object/apply:os.mkdir ['{tmp_path}/harm']\n")
    with pytest.raises(ConfigurationError, match="not valid YAML"):
        read_yaml(path)
    assert not (tmp_path / "harm").exists()


@pytest.mark.parametrize("text", ["=1+1", "@SUM(A1)", "+cmd|' /C calc'!A0", "-2+3", "=HYPERLINK()"])
def test_formulas(text):
    with pytest.raises(BrioError, match="takes for a formula; rename it"):
        refuse_formula(text, "the site of a subject")


@pytest.mark.parametrize("text", ["-1", "+2.5", "-", "1=1", "n/a", "a@b", "-1e-3"])
def test_what_is_no_formula(text):
    refuse_formula(text, "anything")


@pytest.fixture
def lab(tmp_path):
    return make_lab(tmp_path / "lab")


def edit(lab, old: str, new: str) -> None:
    table = lab.folder / "data/tiny/participants.tsv"
    table.write_text(table.read_text().replace(old, new))


@pytest.mark.parametrize(
    "old, new, message",
    [
        ("s03\tsite0", "s03\t=cmd()", "the site of a subject is '=cmd()'"),
        ("s03\t", "@s03\t", "the subject of a subject is '@s03'"),
        ("s03\t", "../../s03\t", "cannot be part of a file name"),
        ("s03\t", "/etc/passwd\t", "cannot be part of a file name"),
    ],
)
def test_names_in_a_table(lab, old, new, message):
    edit(lab, old, new)
    with pytest.raises(BrioError) as error:
        find_candidates(open_reader(DATASET, lab.folder / "data"))
    assert message in str(error.value)


@pytest.mark.parametrize("path", ["../config/tiny.yaml", "/etc/passwd", "tiny/../../x.tsv"])
def test_candidates_cannot_point_elsewhere(lab, path):
    source = open_reader(DATASET, lab.folder / "data")
    candidate = find_candidates(source)[0] | {"source": path}
    with pytest.raises(BrioError, match="outside"):
        list(extract_batch(source, [candidate]))


def test_names_of_regions(lab, run_cohort):
    for path in (lab.folder / "data/tiny/series").glob("*.tsv"):
        header = "\t".join(["=1+1", *(f"r{number}" for number in range(1, 8))])
        path.write_text(f"{header}\n{path.read_text()}")
    done = run_cohort(DATASET, lab.folder / "data", lab.results)
    assert done.returncode == 1
    assert "the name of a region of cohort tiny is '=1+1'" in done.stderr
    assert not (lab.results / "series.h5").exists()


def test_arrays_of_objects_are_refused(lab, run_cohort):
    path = lab.folder / "data/tiny/series/s00.tsv"
    np.save(path.with_suffix(".npy"), np.array([object()]), allow_pickle=True)
    dataset = json.loads(json.dumps(DATASET))
    dataset["source"]["pattern"] = "series/{subject}.npy"
    source = open_reader(dataset, lab.folder / "data")
    (result,) = [
        result
        for subject, result in extract_batch(source, find_candidates(source))
        if subject == "s00"
    ]
    assert "unreadable file: s00.npy" in str(result)
