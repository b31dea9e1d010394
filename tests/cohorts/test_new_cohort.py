"""``brio new-cohort`` writes what the files tell, asks for the rest, and overwrites nothing."""

import numpy as np
import pytest
import yaml

from brio_core.cohorts.new_cohort import Answers, as_yaml, describe, find_pattern
from brio_core.system.errors import BrioError


@pytest.fixture
def lab(tmp_path, monkeypatch):
    """Six sites with ten subjects, in folders of sites."""
    folder, draw = tmp_path / "data" / "mine", np.random.default_rng(0)
    rows = ["ID,Center,DX,Age,Family"]
    for site in range(6):
        (folder / "roi" / f"site{site}").mkdir(parents=True)
        for number in range(10):
            rows.append(f"s{site}{number},site{site},{('HC', 'ASD')[number % 2]},31,n/a")
            path = folder / "roi" / f"site{site}" / f"s{site}{number}_ts.npy"
            np.save(path, draw.normal(size=(70, 6)))
    (folder / "participants.csv").write_text("\n".join(rows) + "\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_what_the_files_tell(lab, run_script):
    result = run_script("brio", "new-cohort", "mine", "--yes")
    assert result.returncode == 0, result.stderr
    dataset = yaml.safe_load((lab / "config/datasets/mine.yaml").read_text())
    assert dataset == {
        "cohort": "mine",
        "source": {
            "kind": "series", "folder": "mine", "pattern": "roi/{site}/{subject}_ts.npy",
            "participants": "participants.csv",
        },
        "columns": {
            "subject": "ID", "site": "Center", "label": "DX", "age": "Age", "group": "Family",
        },
        "label": {"positive": "ASD", "negative": "HC"},
        "rois": {"expected": 6},
    }  # fmt: skip
    assert yaml.safe_load((lab / "config/mine.yaml").read_text())["results"] == "results/mine"
    assert "cohort mine: 60 of 60 candidate subjects kept" in result.stdout
    assert result.stdout.endswith("run it: brio run --configfile config/mine.yaml\n")
    again = run_script("brio", "new-cohort", "mine", "--yes")
    assert again.returncode == 1
    assert "config/datasets/mine.yaml is there already; edit it" in again.stderr


@pytest.mark.parametrize("words, said", [
    (["mine", "--label", "dx"], "the table of subjects has no column 'dx'; it has ID, Center"),
    (["mine", "--positive", "MDD"], "no subject has 'MDD' in column 'DX'; it has 'ASD', 'HC'"),
    (["ours"], "the folder data/ours does not exist; put the data there, or name --folder"),
    (["mine", "--kind", "bids"], "the files do not tell the folder of images below data/mine"),
    (["mine", "--pattern", "a/{subject}"], "ROIs (no file below data/mine fits a/{subject}); say"),
    (["mine", "--folder", "../elsewhere"], "--folder ../elsewhere is outside data; move or link"),
    (["mine", "--participants", "../a.csv"], "--participants ../a.csv is outside data/mine"),
    (["mine", "--methods", "linear-logaritm"], "error: config/mine.yaml: unknown name 'linear-log"),
    (["mine", "--age", "Alter"], "the table of subjects has no column 'Alter'; it has ID, Center"),
    (["mine", "--pattern", "roi/{participant}.tsv"], "{participant}.tsv must have {subject}, may"),
    (["mine", "--pattern", "roi/{subject.tsv"], "--pattern roi/{subject.tsv must have {subject}"),
    (["mine", "--pattern", "/etc/{subject}"], "--pattern /etc/{subject} is outside data/mine"),
    (["a b", "--folder", "mine"], "'cohort' cannot be 'a b'; it means: Name of the cohort"),
])  # fmt: skip
def test_mistakes_are_one_sentence_and_nothing_is_written(lab, run_script, words, said):
    result = run_script("brio", "new-cohort", *words, "--yes")
    assert result.returncode == 1 and said in result.stderr, result.stderr
    assert result.stderr.count("\n") == 1
    assert not (lab / "config").exists()


def test_a_folder_within_a_folder(lab):
    (lab / "data/lab").mkdir()
    (lab / "data/mine").rename(lab / "data/lab/mine")
    for folder in ("lab/mine", "lab/../lab/mine/", str(lab / "data/lab/mine")):
        found = describe("mine", lab / "data", Answers({"folder": folder}))
        assert found["source"]["folder"] == "lab/mine"


def test_a_pattern_with_its_whole_path(lab):
    pattern = str(lab / "data/mine/roi/{site}/{subject}_ts.npy")
    found = describe("mine", lab / "data", Answers({"pattern": pattern}))
    assert found["source"]["pattern"] == "roi/{site}/{subject}_ts.npy"


@pytest.mark.parametrize("classes, positive", [("01", "1"), ("12", None), (("MDD", "ASD"), None)])
def test_a_class_is_guessed_where_only_one_can_be_the_patient(lab, classes, positive):
    path = lab / "data/mine/participants.csv"
    text = path.read_text().replace("HC", classes[0]).replace("ASD", classes[1])
    path.write_text(text)
    if positive:
        assert describe("mine", lab / "data", Answers({}))["label"]["positive"] == positive
        return
    with pytest.raises(BrioError, match="the value of DX for class 1; say it with --positive"):
        describe("mine", lab / "data", Answers({}))
    found = describe("mine", lab / "data", Answers({"positive": classes[0]}))
    assert found["label"] == {"positive": classes[0], "negative": classes[1]}


def test_why_the_files_do_not_tell_the_rois(lab):
    for file in (lab / "data/mine").rglob("*.npy"):
        file.write_text("<html>404</html>")
    with pytest.raises(BrioError, match=r"\(unreadable file: s00_ts\.npy .*; say it with --rois"):
        describe("mine", lab / "data", Answers({}))
    assert describe("mine", lab / "data", Answers({"rois": 6}))["rois"] == {"expected": 6}


def test_what_is_asked(lab):
    asked = []

    def ask(question: str) -> str:
        asked.append(question)
        return "HC" if "class 1" in question else ""

    found = describe("mine", lab / "data", Answers({"rois": 7}, ask))
    assert found["label"] == {"positive": "HC", "negative": "ASD"}
    assert found["rois"] == {"expected": 7}
    assert "the column with the site [Center]: " in asked
    assert "the value of DX for class 0 [ASD]: " in asked
    assert not any("ROIs" in one for one in asked)
    assert yaml.safe_load(as_yaml(found)) == found


def test_an_id_within_a_longer_one_is_no_match(tmp_path):
    for name in ("s1.tsv", "s11.tsv", "s12.tsv", "old/s1.tsv.bak"):
        (tmp_path / "series" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "series" / name).touch()
    assert find_pattern(tmp_path, [("s1", "A"), ("s11", "A")]) == "series/{subject}.tsv"
    assert find_pattern(tmp_path, [("x", "A")]) is None
    with pytest.raises(BrioError, match="say it with --pattern"):
        Answers({})("pattern", "the file of a subject")
