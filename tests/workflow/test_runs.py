"""What a real run checks first, leaves behind, and says when something is wrong."""

import json
import shutil
import subprocess
import sys

import pandas as pd
import pytest
import yaml

from tests.tiny import DATASET, EXPERIMENT, ROOT, make_lab

NOISE = ("Traceback", "WorkflowError", "Exception")


def sentence(done) -> str:
    """The message of a run that had to stop, which comes last and without a trace."""
    assert done.returncode == 1
    assert not any(word in done.stdout for word in NOISE), done.stdout
    return done.stdout[done.stdout.index("error: ") :]


def test_a_mistake_in_the_configuration(project):
    project.edit("config/config.yaml", "cohorts: [demo]", "cohort: [demo]")
    for words in (["-n"], ["--cores", "1"]):
        said = sentence(project.snakemake(*words))
        assert said == "error: config/config.yaml: unknown key 'cohort'; did you mean 'cohorts'?\n"
    assert not (project.folder / "results").exists()


def test_missing_data_are_named_before_any_job(project):
    done = project.snakemake("--cores", "1", "--configfile", "config/abide.yaml")
    said = sentence(done)
    for cohort in ("abide-aal116", "abide-cc200"):
        assert f"{cohort}: the folder data/abide does not exist." in said
    assert "brio fetch config/datasets/abide-cc200.yaml" in said
    assert not (project.folder / "results").exists()
    (project.folder / "data/abide").mkdir(parents=True)
    said = sentence(project.snakemake("--cores", "1", "--configfile", "config/abide.yaml"))
    assert "the file data/abide/ABIDE_pcp/Phenotypic_V1_0b_preprocessed1.csv does not" in said


def test_a_plan_warns_of_what_would_stop_a_run(project):
    """Plans are made on login nodes and before data are there."""
    words = ("--configfile", "config/abide.yaml")
    planned = project.snakemake("-n", *words, CUDA_VISIBLE_DEVICES="")
    assert planned.returncode == 0
    last = planned.stdout[planned.stdout.index("What it will cost") :]
    assert "\nwarning: the data of some cohorts are missing.\nabide-aal116: the folder" in last
    assert "\nwarning: 36 of 42 variants train on a GPU, and this machine shows none." in last
    assert "error: " not in planned.stdout


def test_no_gpu_is_said_before_any_job(project):
    words = ("--cores", "1", "--config", "methods=[gcn, linear-correlation]", "experiments=[main]")
    said = sentence(project.snakemake(*words, "device=auto", CUDA_VISIBLE_DEVICES=""))
    assert said.startswith("error: 1 of 2 variants train on a GPU, and this machine shows none.")
    assert "set 'device: cpu' in the configuration" in said
    assert not (project.folder / "results").exists()
    # What the driver of a machine with a GPU says, and a configuration that needs none.
    driver = project.bin / "nvidia-smi"
    driver.write_text("#!/bin/sh\necho 'GPU 0: (UUID: GPU-0)'\n")
    driver.chmod(0o755)
    allowed = (("device=auto", "allow_cpu=true"), ("device=cpu",))
    for choice, seen in ((("device=auto",), "0"), *((one, "") for one in allowed)):
        done = project.snakemake("-n", *words[2:], *choice, CUDA_VISIBLE_DEVICES=seen)
        assert done.returncode == 0 and "on a GPU" not in done.stdout, done.stdout
        warning = "\nwarning: 'overrides' of methods that are not run: gat, gin, core, fc-hgnn, "
        assert warning in done.stdout[done.stdout.index("What it will cost") :]


def test_a_plan_for_another_directory_looks_for_data_there(tmp_path):
    done = make_lab(tmp_path).snakemake("-n")
    assert done.returncode == 0 and "warning" not in done.stdout, done.stdout


@pytest.mark.slow
def test_six_sites_of_ten_subjects_reach_a_page(tmp_path):
    """Their folds were of one class; now each fold tests three of either."""
    lab = make_lab(tmp_path, sites=6, per_class=5, experiments=["main"])
    done = lab.snakemake("--cores", "2")
    assert done.returncode == 0, done.stdout
    assert (lab.results / "index.html").exists()
    folds = pd.read_csv(lab.results / "summaries/main/tiny/id-sites.csv")
    assert len(folds) == 2 * 10 and (folds["n"] == 6).all() and (folds["positives"] == 3).all()
    assert folds["auc"].notna().all()


def test_data_are_not_needed_once_they_are_extracted(project):
    table = project.folder / "data/abide/ABIDE_pcp/Phenotypic_V1_0b_preprocessed1.csv"
    table.parent.mkdir(parents=True)
    table.write_text("")
    words = (
        "results/splits/abide-cc200/loso.json",
        "--configfile",
        "config/abide.yaml",
        "--cores",
        "1",
    )
    assert project.snakemake(*words).returncode == 0
    table.unlink()
    other = ("results/splits/abide-cc200/id.json", *words[1:])
    done = project.snakemake(*other, "--rerun-triggers", "mtime")
    assert done.returncode == 0, done.stdout


def test_a_changed_label_file_names_the_regions_again_and_extracts_nothing(project):
    dataset = project.folder / "config/datasets/abide-cc200.yaml"
    old = "\nrois: {expected: 200, hemispheres: cc200}"
    new = "\nrois: {expected: 200, labels: labels.txt}"
    assert old in dataset.read_text()
    dataset.write_text(dataset.read_text().replace(old, new))
    table = project.folder / "data/abide/ABIDE_pcp/Phenotypic_V1_0b_preprocessed1.csv"
    table.parent.mkdir(parents=True)
    table.write_text("")
    labels = project.folder / "data/abide/labels.txt"
    labels.write_text("one\n")
    words = ("results/cohorts/abide-cc200/series.h5", "--configfile", "config/abide.yaml")
    assert project.snakemake(*words, "--cores", "1").returncode == 0
    assert project.plan(*words) == set()
    labels.write_text("two\n")
    assert {job[0] for job in project.plan(*words)} == {"assemble"}


def test_a_changed_table_that_is_joined_extracts_again(project):
    dataset = project.folder / "config/datasets/mine.yaml"
    dataset.write_text(
        "cohort: mine\n"
        "source:\n"
        "  kind: series\n"
        "  folder: mine\n"
        "  pattern: 'series/{subject}.tsv'\n"
        "  tables:\n"
        "    - {file: tables/diagnoses.csv, subject: id, columns: [diagnosis]}\n"
        "    - {file: tables/not-there-yet.csv, subject: id, columns: [age]}\n"
        "columns: {subject: id, site: site, label: diagnosis}\n"
        "label: {positive: patient, negative: control}\n"
        "rois: {expected: 100}\n"
    )
    further = project.folder / "data/mine/tables/diagnoses.csv"
    further.parent.mkdir(parents=True)
    (project.folder / "data/mine/participants.tsv").write_text("")
    further.write_text("one\n")
    words = ("results/cohorts/mine/series.h5", "--config", "cohorts=[mine]", "experiments=[main]")
    done = project.snakemake(*words, "--cores", "1")
    assert done.returncode == 0, done.stdout
    assert project.plan(*words) == set()
    further.write_text("two\n")
    assert {job[0] for job in project.plan(*words)} == {"candidates", "extract", "assemble"}


def test_repetition_times_of_sites_that_are_spelt_differently(tmp_path):
    lab = make_lab(tmp_path / "lab")
    dataset = lab.folder / "config/datasets/tiny.yaml"
    check = [sys.executable, "-m", "brio_core", "check", dataset, "--data-dir"]
    check = [*map(str, check), str(lab.folder / "data")]
    for site, code in (("Site_1", 1), ("site1", 0)):
        times = {"site0": 2.0, site: 2.5, "a site of the whole study": 3.0}
        dataset.write_text(yaml.safe_dump({**DATASET, "tr": times}))
        done = lab.snakemake("results/cohorts/tiny/candidates.tsv", "--cores", "1")
        assert done.returncode == code, done.stdout
        checked = subprocess.run(check, cwd=ROOT, capture_output=True, text=True)
        assert checked.returncode == code, checked.stderr
        for said in (done.stdout, checked.stdout):
            assert ("tiny names 'Site_1', which is 'site1' in column 'site'" in said) == bool(code)


def test_targets_that_need_another_configuration(project):
    said = sentence(project.snakemake("paper", "-n"))
    assert "write --configfile config/paper.yaml instead" in said
    said = sentence(project.snakemake("demo", "-n", "--configfile", "config/paper.yaml"))
    assert "leave out the target, and --configfile too" in said
    words = ("--config", "methods=[gcn]", "experiments=[main]")
    said = sentence(project.snakemake("lambda-sweep", "-n", *words))
    assert "'lambda-sweep' has nothing to run" in said
    words = ("--config", "overrides={gcn: {first_epoch: 31}}", "experiments=[ablations]")
    said = sentence(project.snakemake("main", "-n", *words))
    assert "error: variant 'gcn' would be trained for 14 epochs" in said


def test_the_resolved_configuration_is_kept(finished):
    kept = yaml.safe_load((finished.folder / "results/run_config.yaml").read_text())
    assert kept["config"]["split_seeds"] == [0], "defaults are written out"
    assert kept["variants"]["brio"]["hyperparameters"]["warmup_epochs"] == 5
    assert kept["datasets"]["demo"]["inclusion"]["min_frames"] == 60


def test_the_report_has_captions_categories_and_rules(finished):
    page = (finished.folder / "results/report.html").read_text()
    for text in (
        "01 Results",
        "08 Diagnostics",
        "Each site is tested by models that were trained and selected on other sites.",
        "in the order of the categories",
        "make_demo",
    ):
        assert text in page, text


def test_a_single_file_does_not_replace_the_report(after_demo):
    report = after_demo.folder / "results/report.html"
    before = report.read_bytes()
    for file in ("splits/demo/loso.json", "tables/datasets.md"):
        done = after_demo.snakemake(f"results/{file}", "--cores", "1", "--force")
        assert done.returncode == 0, done.stdout
        assert report.read_bytes() == before


def test_the_report_lies_beside_the_results_that_it_shows(after_demo):
    usual = after_demo.folder / "results/report.html"
    usual.unlink()
    (after_demo.folder / "results").rename(after_demo.folder / "my results")
    words = ("--cores", "2", "--forcerun", "index", "--config", "results=my results")
    done = after_demo.snakemake(*words)
    assert done.returncode == 0, done.stdout
    report = after_demo.folder / "my results/report.html"
    assert "01 Results" in report.read_text()
    assert not usual.parent.exists()
    done = after_demo.snakemake("--report", "page.html", *words)
    assert done.returncode == 0, done.stdout
    assert (after_demo.folder / "page.html").exists(), "Snakemake's own way"
    report.unlink()
    report.mkdir()
    said = sentence(after_demo.snakemake(*words))
    assert said.startswith("error: my results/report.html could not be written: Is a directory;")


def test_results_that_cannot_be_written(project):
    (project.folder / "plain").write_text("")
    # In /proc nobody can make a folder, root included; a plan does not try.
    for results, modes in (("plain", "n1"), ("plain/below", "n1"), ("/proc/brio", "1")):
        for mode in modes:
            words = ("-n",) if mode == "n" else ("--cores", mode)
            said = sentence(project.snakemake(*words, "--config", f"results={results}"))
            assert said.startswith(f"error: {results} could not be written: ")
            assert said.endswith("name another folder with '--config results=…'\n")


def test_a_failed_job_leaves_no_report_and_can_be_repeated(project):
    done = project.snakemake("--cores", "2", FAIL="connect")
    assert done.returncode == 1
    assert "error: asked to fail" in done.stdout, "the profile shows the log of a failed job"
    last = done.stdout.splitlines()[-2:]
    assert last[0] == "error: 1 job failed; the end of each log:"
    assert last[1] == "  results/logs/connect/demo.log: error: asked to fail"
    assert (project.folder / "results/splits/demo/id.json").exists(), "the rest goes on"
    assert not (project.folder / "results/report.html").exists()
    assert project.snakemake("--cores", "2").returncode == 0
    assert (project.folder / "results/report.html").exists()


def test_gpus_are_asked_for_only_where_they_are_used(project):
    done = project.snakemake("-n", "--config", "device=auto", "experiments=[main]")
    asked = {}
    for block in done.stdout.split("\n["):
        if "rule train:" in block:
            variant = block.split("variant=")[1].split(",")[0]
            asked[variant] = ("gpu=1" in block, block.split("device=")[1].split(",")[0])
    assert asked == {
        "gcn": (True, "auto"),
        "brio": (True, "auto"),
        "linear-correlation": (False, "cpu"),
    }


@pytest.mark.slow
def test_rings_count_like_seeds_and_are_not_made_again(tmp_path):
    """Two rings of validation sites, also where Snakemake has lost its records."""
    lab = make_lab(tmp_path / "lab", split_seeds=[0, 1])
    entry = EXPERIMENT | {"runs": [{"protocols": ["loso"], "rings": "all"}]}
    (lab.folder / "config/experiments/tiny.yaml").write_text(yaml.safe_dump(entry))
    target = "results/tables/tiny.csv"
    done = lab.snakemake("--cores", 2, target)
    assert done.returncode == 0, done.stdout
    rows = pd.read_csv(lab.folder / target).set_index("variant")
    assert rows["rings"].tolist() == [2, 2] and rows.loc["gcn", "seeds"] == 2
    first, second = (
        json.loads((lab.results / f"splits/tiny/loso{end}.json").read_text())
        for end in ("", "-ring-1")
    )
    assert [fold["test"] for fold in first["folds"]] == [fold["test"] for fold in second["folds"]]
    assert first["checksum"] != second["checksum"]
    assert "Nothing to be done" in lab.snakemake("--cores", 2, target).stdout
    shutil.rmtree(lab.folder / ".snakemake")
    again = lab.snakemake("-n", target)
    assert again.returncode == 0 and "rule train" not in again.stdout, again.stdout
