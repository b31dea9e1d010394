"""What each target plans, and what a dry run says about it."""

import re

import pytest

DEMO_JOBS = {
    "all": {"train": 15, "diagnose": 6, "table": 23, "figure": 13, "index": 1},
    "tables": {"train": 15, "table": 23, "figure": 0, "index": 0, "diagnose": 6},
    "figures": {"train": 14, "table": 0, "figure": 13, "diagnose": 6},
    "data": {"train": 0, "table": 3, "figure": 3, "site_profile": 1, "diagnose": 0},
    "diagnostics": {"train": 6, "table": 3, "figure": 4, "diagnose": 6},
    "ablations": {"train": 5, "table": 2, "figure": 1, "diagnose": 0},
    "permuted": {"train": 15, "split": 5, "summarise": 5, "table": 1},
}


def cost(text: str) -> dict[str, int]:
    """The numbers under 'What it will cost'."""
    lines = text.split("What it will cost")[1]
    jobs = re.search(r"jobs +([\d,]+)", lines)[1]
    runs = re.search(r"training runs +([\d,]+) to train, ([\d,]+) of ([\d,]+) done", lines)
    numbers = [jobs, *runs.groups()]
    keys = ("jobs", "to_train", "trained", "runs")
    return {key: int(number.replace(",", "")) for key, number in zip(keys, numbers)}


@pytest.mark.parametrize("target", DEMO_JOBS)
def test_targets_of_the_demo(project, target):
    jobs = [job[0] for job in project.plan(target)]
    for rule, number in DEMO_JOBS[target].items():
        assert jobs.count(rule) == number, rule


def test_a_plan_leaves_nothing_behind(project):
    done = project.snakemake("-n", "-q", "all")
    assert done.returncode == 0, "the dry run writes no report and does not fail"
    assert cost(done.stdout)["to_train"] == 15, "quiet plans tell the cost too"
    assert not (project.folder / "results").exists()
    assert not (project.folder / "data").exists()


def test_the_whole_paper_is_at_most_2500_jobs(project):
    done = project.snakemake("paper", "--configfile", "config/paper.yaml", "-n", "-q")
    assert done.returncode == 0, done.stdout
    numbers = cost(done.stdout)
    # Main table, ablations, K and J, block length, strength of alignment.
    assert numbers["to_train"] == 890 + 100 + 200 + 50 + 125
    assert numbers["jobs"] <= 2500
    assert "not known before the first runs have been trained" in done.stdout


def test_known_times_are_told(after_demo):
    after_demo.edit("config/methods/gcn.yaml", "dropout: 0.5", "dropout: 0.4")
    done = after_demo.snakemake("-n", "-q")
    numbers = cost(done.stdout)
    assert numbers.pop("jobs") > 2, "and what hangs on them"
    assert numbers == {"to_train": 2, "trained": 13, "runs": 15}
    # The stand-in reports half an hour per run.
    assert "training time   about 60.0 minutes one after the other\n" in done.stdout


def test_times_of_another_cohort_serve_until_there_are_own(after_demo):
    words = ("--configfile", "config/abide.yaml", "-n", "-q")
    done = after_demo.snakemake(*words, "--config", "methods=[brio,gat]", "experiments=[main]")
    assert "about 10.0 hours" in done.stdout
    assert "and 20 runs of methods that were never timed" in done.stdout


def test_a_failed_plan_has_no_cost(project):
    done = project.snakemake("no-such-target", "-n")
    assert done.returncode == 1
    assert "What it will cost" not in done.stdout


def test_other_entry_and_other_directory(project, tmp_path):
    jobs = project.plan()
    assert ("all",) in jobs, "the default target is everything"
    assert project.plan("--snakefile", "workflow/Snakefile") == jobs
    words = ("--snakefile", str(project.folder / "Snakefile"), "--directory", str(tmp_path / "out"))
    (tmp_path / "out").mkdir()
    done = project.snakemake(*words, "--cores", "2", cwd=tmp_path)
    assert done.returncode == 0, done.stdout
    assert (tmp_path / "out/results/index.html").exists()
    assert not (project.folder / "results").exists()


def test_own_files_in_the_working_directory(project, tmp_path):
    folder = tmp_path / "lab"
    (folder / "config/datasets").mkdir(parents=True)
    (folder / "config/config.yaml").write_text("cohorts: [mine]\nmethods: [gcn]\nseeds: [7]\n")
    (folder / "config/datasets/mine.yaml").write_text(
        "cohort: mine\n"
        "source: {kind: series, folder: mine, pattern: 'series/{subject}.tsv'}\n"
        "columns: {subject: id, site: site, label: diagnosis}\n"
        "label: {positive: patient, negative: control}\n"
        "rois: {expected: 100}\n"
    )
    jobs = project.plan("--directory", str(folder))
    assert ("train", "mine", "loso", "gcn", "7") in jobs
    assert not any(job[0] == "make_demo" for job in jobs)
