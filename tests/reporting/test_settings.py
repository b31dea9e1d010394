"""The settings page: what the paper does not state, from the YAML files and nowhere else."""

import re

import pandas as pd
import pytest
import yaml

from brio_core.reporting.catalogue import Given, catalogue, remarks
from brio_core.reporting.tables.settings import COLUMNS, choices_table
from brio_core.system.errors import BrioError
from tests.reporting.standins import ROOT, make_table, write_run_config

METHODS = ROOT / "config" / "methods"


def make(root, methods=("brio", "gcn", "linear-correlation"), **changes):
    config = write_run_config(root, methods, **changes)
    files = {"config": [config], "methods": [METHODS / f"{name}.yaml" for name in methods]}
    make_table("settings", root / "settings", **files)
    make_table("settings", root / "others", {"other_methods": True}, **files)
    return pd.read_csv(root / "settings.csv", dtype=str, keep_default_na=False)


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    root = tmp_path_factory.mktemp("results")
    return make(root), root


def test_all_that_the_paper_leaves_open_is_listed(rows):
    table, root = rows
    method = yaml.safe_load((METHODS / "brio.yaml").read_text())
    common = method["presets"]["common"]
    found = table[table["part"] == "BRIO"].set_index("choice")["value"]
    assert set(found.index) == set(common) - set(method["stated"])
    assert set(method["stated"]) <= set(common)
    for key, value in found.items():
        assert value == str(common[key]), key
    # What the paper leaves open by the project's own reading of it.
    assert {"reestimates", "refresh_interval", "warmup_epochs", "epochs", "epsilon", "lambda_env",
            "sinkhorn_iterations", "subjects_per_site_class"} <= set(found.index)  # fmt: skip
    others = pd.read_csv(root / "others.csv", dtype=str)
    assert set(others["part"]) == {"GCN"}, "linear rows are not in the paper"
    assert {"seeds", "split_seeds", "inclusion.min_frames"} <= set(table["choice"])


def test_the_value_is_that_of_the_run(tmp_path):
    table = make(tmp_path, overrides={"brio": {"epochs": 7}})
    row = table[(table["part"] == "BRIO") & (table["choice"] == "epochs")].iloc[0]
    assert row["value"] == "7" and row["key"] == "overrides.brio.epochs"
    assert row["file"] == "config/methods/brio.yaml"


def test_what_folds_choose_is_listed_also_where_the_paper_states_a_value(tmp_path):
    make(tmp_path, search=True)
    others = pd.read_csv(tmp_path / "others.csv", dtype=str).set_index("choice")
    tried = others.loc["learning_rate", "value"]
    assert tried == "in every fold the best on validation of 0.0003, 0.001, 0.003"
    assert "weight_decay" not in others.index


def test_other_seeds_are_listed_where_there_are_some(rows, tmp_path):
    assert not {"more_seeds", "protocol_seeds"} & set(rows[0]["choice"])
    table = make(tmp_path, more_seeds={"brio": [3, 4]}, protocol_seeds={"id": "first"})
    values = table.set_index("choice")["value"]
    assert values["more_seeds"] == "brio: 3, 4" and values["protocol_seeds"] == "id: first"


def test_remarks_are_the_comments_of_the_file(tmp_path):
    path = tmp_path / "x.yaml"
    lines = ["presets:", "  common:", "    # Above", "    a: 1 # first", "    b: '#2'"]
    path.write_text("\n".join([*lines, "    c: [1, 2] # list # x"]) + "\n")
    assert remarks(path) == {"a": "first", "c": "list # x"}
    assert remarks(METHODS / "brio.yaml")["reestimates"].startswith("K")


def test_a_missing_file_is_named(tmp_path):
    files = {"config": [tmp_path / "none.yaml"], "methods": [METHODS / "gcn.yaml"]}
    with pytest.raises(BrioError, match=r"none\.yaml"):
        make_table("settings", tmp_path / "a", **files)


def test_choices_without_a_key_are_named_with_their_files():
    rows = pd.DataFrame([("BRIO", "BRIO", "f", "a", "1", "k", "")], columns=list(COLUMNS))
    table = choices_table(rows, Given(catalogue("tables")["settings"]))
    files = re.findall(r"brio_core/[\w/]+\.py", " ".join(table.notes))
    assert len(files) == 3 and all((ROOT / file).is_file() for file in files)
