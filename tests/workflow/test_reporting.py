"""Tables of the whole run, what is skipped, and predictions of other code, in the workflow."""

import csv
from pathlib import Path

import pandas as pd
import pytest
import yaml

from brio_core.reporting.catalogue import Given, catalogue
from brio_core.reporting.results import GROUPS
from brio_core.reporting.tables.results import scores_table
from workflow.planning.files import ConfigurationError
from workflow.planning.loading import load
from workflow.planning.outputs import items
from workflow.planning.paths import Run
from workflow.planning.runs import experiment_runs, summary_runs

ROOT = Path(__file__).resolve().parents[2]
EXTERNAL = {
    "theirs": {
        "label": "Their method",
        "predictions": [
            {
                "cohort": "demo",
                "protocol": "loso",
                "split_checksum": "0123456789",
                "files": ["theirs-0.csv", "theirs-1.csv"],
            }
        ],
    }
}


def configuration(**words):
    return load({"cohorts": ["demo"], "methods": ["gcn", "brio"], "seeds": [0], **words})


def rules_of(jobs):
    return {job[0] for job in jobs}


def test_absent_cohorts_are_skipped_and_stay_in_the_tables():
    cohorts = ["demo", "abcd-aal116"]
    skipping = configuration(cohorts=cohorts, on_missing="skip", data_dir="nowhere")
    assert {run.cohort for run in experiment_runs(skipping, "main")} == {"demo"}
    words = items(skipping, "tables")["main-loso"].planned
    assert words["pairs"] == [("demo", "loso"), ("abcd-aal116", "loso")]
    stopping = configuration(cohorts=cohorts, data_dir="nowhere")
    assert {run.cohort for run in experiment_runs(stopping, "main")} == set(cohorts)
    with pytest.raises(ConfigurationError, match=r"no cohort is left.*; get some of them"):
        configuration(cohorts=cohorts[1:], on_missing="skip", data_dir="nowhere")


def test_the_tables_of_the_paper_have_its_methods_in_its_order():
    """17 methods and the linear rows, five cohorts, also where nothing of them was run."""
    paper = load(yaml.safe_load((ROOT / "config/paper.yaml").read_text()))
    for protocol in ("loso", "id"):
        words = items(paper, "tables")[f"main-{protocol}"].planned
        with open(ROOT / "config/paper/numbers.csv", newline="") as stream:
            numbers = [row for row in csv.DictReader(stream) if row["table"] == protocol]
        assert [cohort for cohort, _ in words["pairs"]] == list(
            dict.fromkeys(row["cohort"] for row in numbers)
        )
        gcn = next(one for one in words["variants"] if one["variant"] == "gcn")
        done = {"cohort": "abide-cc200", "protocol": protocol, "auc_mean": 0.6, "auc_sd": 0.1,
                "acc_mean": 0.5, "acc_sd": 0.1, "seeds": 1, "folds": 20, "left_out": 0,
                "subjects": 1000, "sites": 20, "rings": 1, "acc_threshold_mean": None,
                **gcn}  # fmt: skip
        given = Given(catalogue("tables")["results"], planned=words)
        table = scores_table(pd.DataFrame([done]), given, False, [])
        rows = [row.cells for row in table.rows if not row.heading]
        names = [cells[0].text.removesuffix(" (reimplemented)") for cells in rows]
        assert names[:17] == list(dict.fromkeys(row["method"] for row in numbers))
        assert len(names) == 23 and all(name.startswith("Linear") for name in names[17:])
        groups = [row.cells[0].text for row in table.rows if row.heading]
        assert groups == list(GROUPS)
        texts = [cell.text for cells in rows for cell in cells[1:]]
        assert len(texts) == 23 * 10 and texts.count("not run") == 23 * 10 - 2


def test_missing_data_say_that_they_can_be_skipped(project):
    done = project.snakemake("--cores", "1", "--configfile", "config/abide.yaml")
    assert "on_missing=skip" in done.stdout


def test_external_predictions_join_the_comparison_of_all_methods(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigurationError, match=r"'external\.theirs': the file theirs-0\.csv"):
        configuration(external=EXTERNAL)
    for number in (0, 1):
        (tmp_path / f"theirs-{number}.csv").touch()
    resolved = configuration(external=EXTERNAL)
    assert resolved.config["external"]["theirs"]["group"] == "External predictions"
    theirs = [run for run in summary_runs(resolved, "main", "demo", "loso") if "th" in run[2]]
    assert theirs == [Run("demo", "loso", "theirs", 0), Run("demo", "loso", "theirs", 1)]
    assert len(summary_runs(resolved, "main", "demo", "id")) == 2
    assert len(summary_runs(resolved, "ablations", "demo", "loso")) == 5, "BRIO's variants only"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"gcn": EXTERNAL["theirs"]}, "'external.gcn' is called like a variant"),
        ({"x": {"label": "X", "predictions": EXTERNAL["theirs"]["predictions"] * 2}}, "twice"),
        ({"x": {"label": "X", "predictions": []}}, "is empty"),
        ({"x": {"label": "X"}}, "'external.x.predictions' is missing"),
        (
            {"x": {"label": "X", "predictions": [
                EXTERNAL["theirs"]["predictions"][0] | {"cohort": "demoo"}]}},
            "unknown cohort 'demoo'",
        ),
        (
            {"x": {"label": "X", "predictions": [
                EXTERNAL["theirs"]["predictions"][0] | {"split_checksum": "abc"}]}},
            "split_checksum",
        ),
    ],
)  # fmt: skip
def test_mistakes_in_external_predictions_are_named(change, words):
    with pytest.raises(ConfigurationError) as error:
        configuration(external=change)
    assert words in str(error.value)


def test_external_predictions_are_adopted_and_followed(after_demo):
    for number in (0, 1):
        (after_demo.folder / f"theirs-{number}.csv").write_text("subject,fold,logit\n")
    path = after_demo.folder / "config/config.yaml"
    path.write_text(path.read_text() + yaml.safe_dump({"external": EXTERNAL}))
    jobs = after_demo.plan()
    assert {job for job in jobs if job[0] == "adopt"} == {
        ("adopt", "demo", "loso", "theirs", "0"), ("adopt", "demo", "loso", "theirs", "1"),
    }  # fmt: skip
    assert "train" not in rules_of(jobs) and ("summarise", "main", "demo", "loso") in jobs
    assert ("table", "main-loso") in jobs and ("table", "comparison") in jobs
    assert after_demo.snakemake("--cores", "2").returncode == 0
    with open(after_demo.folder / "theirs-1.csv", "a") as stream:
        stream.write("a,b,0.5\n")
    jobs = after_demo.plan()
    assert {job for job in jobs if job[0] == "adopt"} == {("adopt", "demo", "loso", "theirs", "1")}
    (after_demo.folder / "theirs-1.csv").unlink()
    done = after_demo.snakemake("--cores", "2")
    assert done.returncode == 1, "the row that was taken over before must not stay silently"
    assert "the file theirs-1.csv does not exist" in done.stdout.splitlines()[-1]


def test_the_papers_numbers_and_the_settings_are_part_of_every_run(finished):
    for name in ("claims", "paper_vs_ours", "settings", "settings-others"):
        for ending in ("csv", "md", "tex", "json"):
            assert (finished.folder / f"results/tables/{name}.{ending}").exists()
