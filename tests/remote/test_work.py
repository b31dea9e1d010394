"""How a call ends in time, and what the next one does."""

import os
import shutil
import signal
import subprocess
import sys
import time

import pytest
from toy import DIAGNOSTICS, RUN, make_home, plan_again, train_job, work

from brio_core.remote.plan import read_plan
from brio_core.system.errors import BrioError


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
    folder = machine([train_job("gcn", epochs=3000, patience=0)])
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


def test_choice_by_patterns(worked):
    plan = read_plan(worked / "there/plan.json")
    assert len(plan.choose(["*"])) == 3
    assert [job.folder for job in plan.choose(["runs/*/gcn/seed-0"])] == [RUN]
    assert [job.folder for job in plan.choose(["gcn", "gcn-w*"])][-1] == DIAGNOSTICS
    with pytest.raises(BrioError, match="--only 'seed-1' matches no job of the plan"):
        plan.choose(["gcn*", "seed-1"])


def test_diagnostics_wait_for_their_run(places):
    there = places / "there"
    shutil.rmtree(there / "results/runs/toy/loso/gcn")
    assert work(there, only=["diagnostics"]) == []
    assert not (there / "results" / RUN).exists()
    waiting = read_plan(there / "plan.json").unfinished(there / "results")
    assert [job.folder for job in waiting] == [RUN, DIAGNOSTICS]


def test_nothing_of_earlier_diagnostics_stays(places):
    folder = places / "there/results" / DIAGNOSTICS
    (folder / "meta.json").unlink()
    (folder / "retention.csv").write_text("variant,seed,fold\nof,an,earlier\n")
    assert work(places / "there") == []
    assert (folder / "meta.json").exists() and not (folder / "retention.csv").exists()
