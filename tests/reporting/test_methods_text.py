"""The methods section of a paper: its numbers are those of the files, its keys have entries."""

import re
from pathlib import Path

import pandas as pd
import pytest
import yaml

from brio_core.reporting.cohorts import CohortTables
from brio_core.reporting.methods_text import methods_text, read_references
from brio_core.system.errors import BrioError

ROOT = Path(__file__).resolve().parents[2]
SHIPPED = read_references([ROOT / "config" / "references.bib"])
NETWORK = {"connectivity": "fisher-z", "shrinkage": 0.6, "epochs": 200, "learning_rate": 3e-4}


@pytest.fixture(scope="module")
def cohort() -> CohortTables:
    people = pd.DataFrame({"site": list("aaabbb"), "label": [0, 1, 1, 0, 0, 1]})
    inclusion = pd.DataFrame(
        {
            "kept": ["yes"] * 6 + ["no"] * 3,
            "reason": [""] * 6 + ["too few frames: 3 of at least 60"] * 2 + ["no scan: lost"],
            "frames_after": [100.0] * 5 + [160.0] + [float("nan")] * 3,
        }
    )
    return CohortTables("abide-cc200", people, inclusion)


def written(cohort, variants: dict, **runs):
    config = {"config": {"margin": 0.02}, "variants": variants}
    config["datasets"] = {
        "abide-cc200": {
            "title": "ABIDE (CC200)",
            "label": {"positive": "autism", "negative": "control"},
            "rois": {"expected": 200},
            "inclusion": {"min_frames": 60, "max_constant_rois": 0.5, "max_mean_fd": 0.3},
        }
    }
    records = [
        {"variant": name, "seed": seed, "protocol": protocol, "device": "CPU", "versions": versions}
        for name in variants
        for seed in ((0, 1) if "epochs" in variants[name]["hyperparameters"] else (0,))
        for protocol in ("loso", "loso-permuted-1", "loso-permuted-2")
        for versions in ({"brio": "0.2.0", "torch": "2.13.0"},)
    ]
    return methods_text(config, [*records, *runs.get("more", [])], [cohort], {}, SHIPPED)


def variant(method: str, label: str, **values) -> dict:
    return {"method": method, "label": label, "hyperparameters": values}


def test_numbers_of_subjects_exclusions_and_hyperparameters_are_those_of_the_run(cohort):
    variants = {
        "gcn": variant("gcn", "GCN", **NETWORK, layers=2),
        "gat": variant("gat", "GAT", **NETWORK, heads=4),
        "brio": variant("brio", "BRIO", **{**NETWORK, "epochs": 30}),
        "brio-k2": variant("brio", "BRIO (K = 2)", **{**NETWORK, "epochs": 30}, reestimates=2),
        "linear-logarithm": variant(
            "linear-logarithm", "Linear", connectivity="logarithm", shrinkage=0.6,
            penalties=[10.0, 1.0], selection="sources",
        ),
    }  # fmt: skip
    text, bibtex = written(cohort, variants)
    assert "6 subjects of ABIDE (CC200) [@dimartino2014abide; @craddock2012parcellation]" in text
    assert "3 autism, 3 control, from 2 sites. Of 9 candidates, 3 were excluded" in text
    assert "too few frames (2), no scan (1)." in text
    assert "at most 0.3 mm" in text and "200 regions had 100 to 160 frames (mean 110.0" in text
    assert "for Linear, the matrix logarithm of shrunk correlations (shrinkage 0.6)" in text
    assert "The next two on a ring of sites drawn with seed 0 served for validation" in text
    assert "Checks: 2 permutations of labels." in text and "within 2 points of AUC" in text
    assert "BRIO 0.2.0, PyTorch 2.13.0" in text
    assert "unless stated: epochs = 200, learning_rate = 0.0003." in text
    assert "- GCN [@kipf2017gcn]. Hyperparameters: layers = 2. Seeds 0 and 1." in text
    assert "- BRIO [@wang2026brio]. Hyperparameters: epochs = 30. Seeds 0 and 1." in text
    assert "- BRIO (K = 2): BRIO but reestimates = 2. Seeds 0 and 1." in text
    assert "penalties = 10/1. All source sites trained" in text
    keys = set(re.findall(r"^@\w+\{(.*),", bibtex, re.M))
    assert keys == set(re.findall(r"@([\w-]+)[;\]]", text))


def test_what_was_not_run_is_not_described_and_external_code_is_named(cohort):
    more = [{"variant": "theirs", "protocol": "loso", "device": "external code", "seed": 0}]
    text, _ = written(cohort, {"gcn": variant("gcn", "GCN", **NETWORK)}, more=more)
    assert "external code, evaluated alike: theirs." in text
    assert "unless stated" not in text and "id" not in re.findall(r"ten folds|BRIO \(K", text)


def test_every_shipped_entry_belongs_to_something_and_every_method_but_one_has_its_entry():
    names = {kind: {path.stem for path in (ROOT / "config" / kind).glob("*.yaml")} for kind in (
        "methods", "datasets")}  # fmt: skip
    about = [name for one in SHIPPED for name in one.about]
    assert all(one.about for one in SHIPPED)
    assert set(about) <= names["methods"] | names["datasets"] | {"all"}
    published = set()
    for name in names["methods"]:
        method = yaml.safe_load((ROOT / "config" / "methods" / f"{name}.yaml").read_text())
        if re.search(r"\b20\d\d\b", method["citation"]):
            published.add(name)
    # Nobody here could read CEPG.
    assert published - set(about) == {"cepg"}
    for one in SHIPPED:
        assert re.search(r"^  title = ", one.text, re.M) and re.search("author = ", one.text)


def test_an_own_entry_comes_before_the_shipped_one_and_a_broken_one_is_named(tmp_path):
    own = tmp_path / "references.bib"
    own.write_text("@misc{kipf2017gcn,\n  title = {Mine},\n  keywords = {gcn, mine}\n}\n% end\n")
    (first,) = read_references([own])
    assert first.about == ("gcn", "mine") and first.text.endswith("\n}")
    both = read_references([own, ROOT / "config" / "references.bib"])
    assert len(both) == len(SHIPPED) and "Mine" in both[0].text
    own.write_text("@misc{key\n  title = {{Mine}\n}\n")
    with pytest.raises(BrioError, match=r"references\.bib: the entry '@misc{key' is no BibTeX"):
        read_references([own])
    with pytest.raises(BrioError, match=r"absent\.bib cannot be read"):
        read_references([tmp_path / "absent.bib"])
