"""What another machine has made comes back, once, and in place of what is older."""

import shutil
from pathlib import Path

from toy import (
    DIAGNOSTICS,
    RUN,
    WIDE,
    archive,
    diagnose_job,
    plan_again,
    take,
    taken,
    train_job,
    work,
    write_jobs,
)  # fmt: skip

from brio_core.remote.plan import read_plan


def test_the_plan_holds_what_is_needed_and_no_copies(worked):
    plan = read_plan(worked / "home/results/remote/plan.json")
    assert len(plan.jobs) == 3 and not any(job.done for job in plan.jobs)
    inputs = set(plan.jobs[0].inputs.values())
    sent = {name.removeprefix("results/") for name in plan.files if name.startswith("results/")}
    assert sent == inputs, "results of the plan are no inputs"
    for name in inputs:
        first, second = (worked / "home/results" / part / name for part in ("", "remote/results"))
        assert first.samefile(second) and second.is_symlink()
    assert (worked / "home/results/remote/scripts/remote.py").is_file()
    assert {"scripts/remote.py", "brio_core/remote/plan.py"} < plan.files.keys()


def test_everything_comes_back(places):
    path = archive(places / "there")
    assert take(path) == "3 jobs taken, 0 of the plan are left"
    home, there = places / "home/results", places / "there/results"
    for name in (f"{RUN}/predictions.csv", f"{RUN}/history.csv", f"{DIAGNOSTICS}/folds.csv"):
        assert (home / name).read_bytes() == (there / name).read_bytes()
    assert not list(home.rglob("models.pt")) and not list(home.glob(".remote-*"))
    assert all(job.done for job in plan_again().jobs), "models are not needed any more"
    assert take(path) == "0 jobs taken, 0 of the plan are left"


def test_models_are_brought_when_wanted(places):
    take(archive(places / "there"))
    path = archive(places / "there", models=True)
    assert take(path) == "2 jobs taken, 0 of the plan are left"
    assert len(list((places / "home/results/runs").rglob("models.pt"))) == 2
    assert take(archive(places / "there")) == "0 jobs taken, 0 of the plan are left"
    assert len(list((places / "home/results/runs").rglob("models.pt"))) == 2, "they stay"


def test_diagnostics_to_come_need_models(places):
    shutil.rmtree(places / "there/results/diagnostics")
    assert take(archive(places / "there")) == "2 jobs taken, 2 of the plan are left"
    left = [job.folder for job in plan_again().jobs if not job.done]
    assert left == [RUN, DIAGNOSTICS], "as Snakemake would, the run is trained again for its models"


def test_older_results_give_way_with_their_models(places):
    folder = places / "home/results" / RUN
    folder.mkdir(parents=True)
    for name in ("models.pt", "predictions.csv", "meta.json"):
        (folder / name).write_text("of other hyperparameters")
    take(archive(places / "there"))
    names = sorted(path.name for path in folder.iterdir())
    assert names == ["history.csv", "meta.json", "predictions.csv"]


def test_diagnostics_of_older_runs_give_way_too(places):
    take(archive(places / "there"))
    runs = [train_job("gcn", hidden=7), train_job("gcn-wide", hidden=9)]
    home, there = places / "home/results", places / "there"
    write_jobs(home, [*runs, diagnose_job(runs[0])])
    plan = plan_again()
    assert [job.folder for job in plan.jobs if not job.done] == [RUN, DIAGNOSTICS]
    shutil.copy(home / "remote/plan.json", there)
    assert [job.folder for job in plan.unfinished(there / "results")] == [RUN, DIAGNOSTICS]
    before = (there / "results" / WIDE / "meta.json").stat().st_mtime_ns
    assert work(there) == []
    assert (there / "results" / WIDE / "meta.json").stat().st_mtime_ns == before
    assert take(archive(there)).startswith("2 jobs taken")
    for name in ("folds.csv", "scan-length.csv"):
        path = f"{DIAGNOSTICS}/{name}"
        assert (home / path).read_bytes() == (there / "results" / path).read_bytes()


def test_an_archive_of_an_earlier_plan_can_be_taken(places):
    path = archive(places / "there")
    take(path)
    shutil.rmtree(places / "home/results" / WIDE)
    assert [job.folder for job in plan_again().jobs if not job.done] == [WIDE]
    assert take(path) == "1 jobs taken, 0 of the plan are left"


def test_nothing_is_left_on_the_way(places):
    take(archive(places / "there"))
    assert not any(Path(name).name.startswith(".") for name in taken(places))
