"""Work on another machine, and the way there and back."""

import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from urllib.parse import quote

import pytest
from toy import (
    DIAGNOSTICS,
    RUN,
    WIDE,
    archive,
    diagnose_job,
    make_home,
    plan_again,
    take,
    taken,
    train_job,
    work,
    write_jobs,
)  # fmt: skip

from brio_core.remote import plan as planning
from brio_core.remote import worker
from brio_core.remote.plan import Job, read_plan
from brio_core.system.errors import BrioError
from brio_core.system.files import locked


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


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """``machine(jobs)`` is a folder with a plan of these jobs."""

    def make(jobs):
        make_home(tmp_path, jobs)
        monkeypatch.chdir(tmp_path)
        plan_again()
        return tmp_path / "results/remote"

    return make


def remote(folder, *words):
    """remote.py of the code that came with the plan, started elsewhere."""
    command = [sys.executable, folder / "scripts/remote.py", *words]
    return subprocess.Popen(
        list(map(str, command)), text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        cwd=folder.parent, env=os.environ | {"OMP_NUM_THREADS": "1"},
    )  # fmt: skip


def wait_for(folder, pattern):
    end = time.monotonic() + 60
    while not list(folder.glob(pattern)):
        assert time.monotonic() < end
        time.sleep(0.05)


def test_interrupted_training_goes_on(machine, capfd):
    folder = machine([train_job("gcn", epochs=400, patience=0)])
    process = remote(folder, "work", folder / "plan.json")
    wait_for(folder, f"results/{RUN}/.unfinished/*.pt")
    process.terminate()
    _, err = process.communicate(timeout=60)
    assert process.returncode == 128 + signal.SIGTERM
    assert err.splitlines()[-1] == "stopped by SIGTERM" and "Traceback" not in err
    # Whoever it has started is gone too.
    assert not list(folder.rglob("meta.json"))
    assert work(folder) == []
    assert "continuing after epoch" in capfd.readouterr().err
    assert not list(folder.rglob(".unfinished")) and not list(folder.rglob("*.partial"))


def test_a_call_ends_in_time(machine, capfd):
    folder = machine([train_job(f"gcn-{n}", epochs=100_000, patience=0) for n in range(2)])
    begun = time.monotonic()
    assert work(folder, 8.0) == [] and time.monotonic() - begun < 20
    assert "time is up: runs/toy/loso/gcn-0/seed-0 continues next time" in capfd.readouterr().out
    assert not (folder / "results/runs/toy/loso/gcn-1").exists()
    assert work(folder, 0.0) == []


def test_one_failure_does_not_stop_the_others(machine):
    bad = train_job("gcn-1")
    place = bad["arguments"].index("--params") + 1
    bad["arguments"][place] = bad["arguments"][place].replace('"hidden"', '"hiden"')
    folder = machine([bad, train_job("gcn-2")])
    process = remote(folder, "work", folder / "plan.json", "--pack", folder / "out.zip")
    out, err = process.communicate(timeout=200)
    assert process.returncode == 1 and "runs/toy/loso/gcn-2/seed-0: " in out
    assert "failed: runs/toy/loso/gcn-1/seed-0: exit code 1" in err
    assert err.splitlines()[-1] == "error: failed, see above: runs/toy/loso/gcn-1/seed-0"
    process = remote(folder, "work", folder / "plan.json", "--minutes", 0)
    out, _ = process.communicate(timeout=60)
    assert out.splitlines() == [
        "waiting  runs/toy/loso/gcn-1/seed-0", "finished runs/toy/loso/gcn-2/seed-0",
    ]  # fmt: skip
    assert (folder / "out.zip").is_file()


def test_calls_at_the_same_time_share_the_jobs(machine):
    folder = machine([train_job(f"gcn-{n}", epochs=40, patience=0) for n in range(6)])
    calls = [remote(folder, "work", folder / "plan.json") for _ in range(2)]
    said = [call.communicate(timeout=200) for call in calls]
    assert [call.returncode for call in calls] == [0, 0], said
    done = [line.split(": ")[0] for out, _ in said for line in out.splitlines() if ": " in line]
    assert sorted(done) == [f"runs/toy/loso/gcn-{n}/seed-0" for n in range(6)]
    assert work(folder) == [] and not list(folder.rglob(".unfinished"))


def test_choice_by_patterns(worked):
    plan = read_plan(worked / "there/plan.json")
    assert len(plan.choose(["*"])) == 3
    assert [job.folder for job in plan.choose(["runs/*/gcn/seed-0"])] == [RUN]
    # Slow jobs may be named first.
    wide = RUN.replace("gcn", "gcn-wide")
    assert [job.folder for job in plan.choose(["gcn-w*", "gcn"])] == [wide, RUN, DIAGNOSTICS]
    assert [job.folder for job in plan.choose(["gcn", "*"])] == [RUN, DIAGNOSTICS, wide]
    assert [job.folder for job in plan.choose(["diagnostics", "runs"])] == [RUN, DIAGNOSTICS, wide]
    with pytest.raises(
        BrioError, match="--only 'seed-1' matches no job of the plan; '--minutes 0'"
    ):
        plan.choose(["gcn*", "seed-1"])


def test_diagnostics_wait_for_their_run(places):
    there = places / "there"
    shutil.rmtree(there / "results/runs/toy/loso/gcn")
    assert work(there, only=["diagnostics"]) == []
    assert not (there / "results" / RUN).exists()
    waiting = read_plan(there / "plan.json").unfinished(there / "results")
    assert [job.folder for job in waiting] == [RUN, DIAGNOSTICS]


def test_a_run_that_is_trained_again_is_diagnosed_again(places):
    there = places / "there"
    folder = there / "results" / DIAGNOSTICS
    before = (folder / "meta.json").stat().st_mtime_ns
    shutil.rmtree(there / "results" / RUN)
    assert work(there) == []
    assert (folder / "meta.json").stat().st_mtime_ns > before


@pytest.mark.parametrize("outcome", [None, KeyboardInterrupt()], ids=["time is up", "Ctrl-C"])
def test_nobody_begins_a_job_before_its_worker_has_ended(machine, monkeypatch, outcome):
    folder, free = machine([train_job("gcn-0")]), []

    class Working(worker.Worker):
        def do(self, *given):
            if outcome:
                raise outcome

        def end(self):
            with open(folder / "claims" / quote("runs/toy/loso/gcn-0/seed-0", safe="")) as file:
                free.append(locked(file.fileno()))

    monkeypatch.setattr(planning, "Worker", Working)
    with suppress(KeyboardInterrupt):
        work(folder)
    assert free == [False, False, True], "before the job, after it, and with nothing left to end"


def test_nothing_of_earlier_diagnostics_stays(places):
    folder = places / "there/results" / DIAGNOSTICS
    (folder / "meta.json").unlink()
    (folder / "retention.csv").write_text("variant,seed,fold\nof,an,earlier\n")
    assert work(places / "there") == []
    assert (folder / "meta.json").exists() and not (folder / "retention.csv").exists()


def test_jobs_on_a_gpu_share_a_process_until_one_fails(machine, monkeypatch):
    bad = train_job("gcn-2")
    place = bad["arguments"].index("--params") + 1
    bad["arguments"][place] = bad["arguments"][place].replace('"hidden"', '"hiden"')
    folder = machine([train_job("gcn-0"), train_job("gcn-1"), bad, train_job("gcn-3")])
    started, start = [], subprocess.Popen
    monkeypatch.setattr(
        worker.subprocess,
        "Popen",
        lambda *given, **options: started.append(1) or start(*given, **options),
    )
    monkeypatch.setattr(Job, "on_gpu", True)
    assert work(folder) == ["runs/toy/loso/gcn-2/seed-0"]
    assert len(started) == 2
    assert len(list(folder.glob("results/runs/toy/loso/*/seed-0/meta.json"))) == 3


def test_time_that_is_up_as_a_job_begins_ends_it(tmp_path):
    """A process that has done a job before is importing the next one when it is told to end."""
    (tmp_path / "scripts").mkdir()
    (tmp_path / "scripts/quick.py").write_text("def main(): pass")
    (tmp_path / "scripts/slow.py").write_text(
        "import time; time.sleep(2)\ndef main(): time.sleep(60)"
    )
    one = worker.Worker(tmp_path)
    assert one.do("quick", [], 60) == 0
    begun = time.monotonic()
    assert one.do("slow", [], 0.5) is None
    one.end()
    assert time.monotonic() - begun < 30
