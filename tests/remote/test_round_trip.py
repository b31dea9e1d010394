"""What another machine has made comes back, once, and in place of what is older."""

import shutil
import tarfile
from dataclasses import replace
from pathlib import Path

import pytest
from handed_over import archive, diagnose_job, runs_at, take, train_job

from brio_core.remote.plan import Job, prepare, read_plan
from brio_core.remote.work import Worker
from brio_core.system.errors import BrioError
from brio_core.system.files import read_json, write_json
from brio_core.training.data import RunFiles
from brio_core.training.run import Machine, Run, train_run

DIAGNOSTICS = "diagnostics/toy/loso/gcn/seed-0"


def test_plan_holds_what_is_needed_and_nothing_twice(worked):
    plan = read_plan(worked / "home/results/handover/plan.json")
    assert len(plan.jobs) == 3 and not plan.done
    assert set(plan.inputs) == set(plan.jobs[0].inputs), "results of the plan are no inputs"
    for name in plan.inputs:
        first, second = (worked / "home/results" / part / name for part in ("", "handover/results"))
        assert first.samefile(second), "no second copy"
    assert (worked / "home/results/handover/scripts/handover.py").is_file()


def test_everything_comes_back(places, programs, capsys):
    (path,) = archive(places, programs)
    take([path], programs)
    assert "3 jobs taken, 0 were here already" in capsys.readouterr().out
    home, there = places / "home/results", places / "there/results"
    for name in ("runs/toy/loso/gcn/seed-0/predictions.csv", f"{DIAGNOSTICS}/folds.csv"):
        assert (home / name).read_bytes() == (there / name).read_bytes()
    assert not list(home.rglob("models.pt")) and not list(home.glob(".handover-*"))
    plan = prepare(Path("results/handover/jobs.json"), programs, Path("results/handover"))
    assert not plan.jobs and len(plan.done) == 3, "models are not needed any more"
    take([path], programs)
    assert "0 jobs taken" in capsys.readouterr().out


def test_the_next_plan_knows_what_cells_have_taken(places, programs):
    take(archive(places, programs), programs)
    jobs, folder = Path("results/handover/jobs.json"), Path("results/handover")
    assert prepare(jobs, programs, folder).seconds == {}, "a CPU says nothing about a GPU"
    content = read_json(jobs, "jobs")
    write_json(jobs, {**content, "jobs": [{**job, "gpu": False} for job in content["jobs"]]})
    plan = prepare(jobs, programs, folder)
    taken = {name: read_json(Path("results", name, "meta.json"))["seconds"] for name in plan.done}
    longest = max(taken[name] for name in plan.done if name.startswith("runs"))
    assert plan.seconds == {
        "train toy loso gcn": longest, "diagnose toy loso gcn": taken[DIAGNOSTICS],
    }  # fmt: skip
    worker = Worker(replace(plan, jobs=(Job.of(train_job("new")),)), Path("elsewhere"), programs)
    assert f"{longest:5.0f} s" in next(worker.describe())


def test_models_are_brought_on_request(places, programs, capsys):
    def models():
        return {path.parent.parent.name for path in (places / "home/results").rglob("models.pt")}

    take(archive(places, programs), programs)
    with pytest.raises(BrioError, match="--models-of 'gnc' matches no job of the plan"):
        archive(places, programs, models=["gnc"])
    take(archive(places, programs, models=["gcn-w*"]), programs)
    assert models() == {"gcn-wide"}
    assert "0 jobs taken, 1 were here already" in capsys.readouterr().out
    assert archive(places, programs, models=["gcn-w*"]) == [], "not twice"
    take(archive(places, programs, models=["*"], everything=True), programs)
    assert models() == {"gcn-wide", "gcn"}
    assert "0 jobs taken, 3 were here already" in capsys.readouterr().out


def test_diagnostics_to_come_need_models(places, programs, capsys):
    shutil.rmtree(places / "there/results/diagnostics")
    take(archive(places, programs), programs)
    assert (
        "diagnostics need models of 1 cells that were not brought back" in capsys.readouterr().out
    )
    plan = prepare(Path("results/handover/jobs.json"), programs, Path("results/handover"))
    assert [job.folder for job in plan.jobs] == ["runs/toy/loso/gcn/seed-0", DIAGNOSTICS], (
        "as Snakemake would, the cell is trained again for its models"
    )


def test_only_new_results_are_packed(places, programs):
    assert len(archive(places, programs)) == 1
    assert archive(places, programs) == []
    there = places / "there/results/runs/toy/loso/gcn/seed-0"
    meta = read_json(there / "meta.json")
    write_json(there / "meta.json", meta)
    (path,) = archive(places, programs)
    with tarfile.open(path) as tar:
        assert {name.split("/")[3] for name in tar.getnames()[1:]} == {"gcn"}


def test_parts_can_be_taken_alone(places, programs):
    parts = archive(places, programs, part_megabytes=0.0235)
    assert [path.name for path in parts] == ["out-1.tar", "out-2.tar", "out-3.tar"]
    assert all(path.stat().st_size <= 23_500 for path in parts)
    take(parts[1:2], programs)
    assert {Path(path).parts[-3] for path in runs_at(places)} == {"gcn-wide"}
    take([parts[2], parts[0]], programs)
    assert (places / "home/results" / DIAGNOSTICS / "folds.csv").exists()


def test_older_results_give_way_with_their_models(places, programs):
    folder = places / "home/results/runs/toy/loso/gcn/seed-0"
    folder.mkdir(parents=True)
    for name in ("models.pt", "predictions.csv", "meta.json"):
        (folder / name).write_text("of other settings")
    take(archive(places, programs), programs)
    assert sorted(path.name for path in folder.iterdir()) == [
        "history.csv", "meta.json", "predictions.csv",
    ]  # fmt: skip


def test_diagnostics_of_older_cells_give_way_too(places, programs):
    take(archive(places, programs), programs)
    cells = [train_job("gcn", hidden=7), train_job("gcn-wide", hidden=9)]
    home, there = places / "home/results", places / "there"
    content = {"results": "results", "config": {}, "jobs": [*cells, diagnose_job(cells[0])]}
    write_json(home / "handover/jobs.json", content)
    plan = prepare(Path("results/handover/jobs.json"), programs, Path("results/handover"))
    shutil.copy(home / "handover/plan.json", there)
    worker = Worker(plan, there / "results", programs)
    assert len(worker.waiting) == 2, "the other cell is still valid there, and so are its models"
    worker.run(300, lambda job: [])
    take(archive(places, programs), programs)
    for name in ("folds.csv", "scan-length.csv"):
        path = f"{DIAGNOSTICS}/{name}"
        assert (home / path).read_bytes() == (there / "results" / path).read_bytes()


def test_nothing_of_earlier_diagnostics_stays(places, programs):
    folder = places / "there/results" / DIAGNOSTICS
    (folder / "meta.json").unlink()
    (folder / "retention.csv").write_text("variant,seed,fold\nof,an,earlier\n")
    worker = Worker(read_plan(places / "there/plan.json"), places / "there/results", programs)
    worker.run(300, lambda job: [])
    assert (folder / "meta.json").exists() and not (folder / "retention.csv").exists()


def test_jobs_in_one_process_are_like_jobs_alone(worked, programs, tmp_path):
    job = read_plan(worked / "there/plan.json").jobs[1]
    wanted = programs["train"].parse(
        [word.replace("results/", f"{worked}/home/results/", 1) for word in job.words]
    )
    files = RunFiles(wanted.cohort_dir, wanted.split, wanted.block_length)
    run = Run(files, wanted.variant, wanted.params, wanted.seed)
    train_run(run, Machine("cpu"), tmp_path)
    for name in ("predictions.csv", "history.csv"):
        there = worked / "there/results" / job.folder / name
        assert there.read_bytes() == (tmp_path / name).read_bytes()
