"""How a call ends in time, and what the next one does."""

import signal
import time
from pathlib import Path

import pytest
from handed_over import make_home, train_job

from brio_core.remote import lifetime
from brio_core.remote import work as working
from brio_core.remote.plan import prepare
from brio_core.remote.work import Worker
from brio_core.system import signals as interrupts
from brio_core.system.errors import BrioError
from brio_core.training import gradient


@pytest.fixture
def machine(programs, tmp_path):
    """``machine()`` is a worker for many jobs, of which none is done at first."""
    jobs = [train_job(f"gcn-{n}", epochs=6) for n in range(3)]
    make_home(tmp_path, jobs)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path)
        plan = prepare(Path("results/handover/jobs.json"), programs, Path("results/handover"))
    return lambda **options: Worker(plan, tmp_path / "results", programs, **options)


def test_interrupted_training_goes_on(machine, programs, monkeypatch, capfd):
    worker = machine(only=["gcn-0"])
    snapshot, epochs = gradient.GradientFit.snapshot, []

    def ring(fit):
        epochs.append(fit.epoch)
        if fit.epoch == 4:
            raise working.TimeIsUp
        return snapshot(fit)

    monkeypatch.setattr(gradient.GradientFit, "snapshot", ring)
    worker.run(300, lambda job: ["--checkpoint-seconds", "0"])
    assert "gcn-0/seed-0 continues next time" in capfd.readouterr().out
    monkeypatch.setattr(gradient.GradientFit, "snapshot", snapshot)
    machine(only=["gcn-0"]).run(300, lambda job: [])
    assert "continuing after epoch 3" in capfd.readouterr().err
    assert [job.folder for job in machine().waiting] == [
        "runs/toy/loso/gcn-1/seed-0", "runs/toy/loso/gcn-2/seed-0",
    ]  # fmt: skip


def test_the_alarm_rings_inside_a_job(machine, monkeypatch, capsys):
    worker = machine()
    main = lambda words: time.sleep(30)  # noqa: E731
    monkeypatch.setattr(worker._programs["train"], "main", main)
    begun = time.monotonic()
    worker.run(0.2, lambda job: [])
    assert time.monotonic() - begun < 10 and len(worker.waiting) == 3
    assert "time is up" in capsys.readouterr().out


def test_a_ring_that_a_library_takes_for_an_error(machine, monkeypatch, capsys):
    """The job has not failed: the next call continues it."""

    rung = []

    def main(words):
        try:
            time.sleep(30)
        except working.TimeIsUp:
            rung.append(words)
            raise TypeError("operation not defined") from None

    worker = machine()
    monkeypatch.setattr(worker._programs["train"], "main", main)
    worker.run(3, lambda job: [])
    assert rung and worker.failed == [] and len(worker.waiting) == 3
    said = capsys.readouterr()
    assert "seed-0 continues next time" in said.out and said.err == ""


def test_a_signal_that_a_library_takes_for_an_error_ends_the_call(machine, monkeypatch, capsys):
    def main(words):
        interrupts._received.append(signal.SIGTERM)
        raise TypeError("operation not defined")

    worker = machine()
    monkeypatch.setattr(interrupts, "_received", [])
    monkeypatch.setattr(worker._programs["train"], "main", main)
    with pytest.raises(KeyboardInterrupt):
        worker.run(300, lambda job: [])
    assert worker.failed == [] and "failed" not in capsys.readouterr().err


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_ring_that_python_drops_is_repeated():
    """It drops what is raised while an object is deleted; cleaning up is not disturbed again."""

    class Slow:
        def __del__(self):
            time.sleep(1)

    begun, cleaned = time.monotonic(), False
    with pytest.raises(lifetime.TimeIsUp), lifetime.alarm(0.2):
        try:
            Slow()
            time.sleep(30)
        finally:
            time.sleep(2.5)
            cleaned = True
    assert cleaned and time.monotonic() - begun < 15


def test_what_would_not_fit_is_not_begun(machine, capsys):
    machine(only=["gcn-0"]).run(300, lambda job: [])
    worker = machine()
    assert sum("waiting" in line for line in worker.describe()) == 2
    worker._seconds = dict.fromkeys(worker._seconds, 100.0)
    first = worker.waiting[0]
    assert worker._fitting(111, True)[0] == first
    assert worker._fitting(109, True) == [], "left for the next call"
    assert worker._fitting(109, False)[0] == first, "but a call that did nothing begins one"


def test_one_failure_does_not_stop_the_others(machine, monkeypatch, capsys):
    worker = machine()
    main = worker._programs["train"].main

    def fail(words):
        if "gcn-1" in words:
            raise RuntimeError("broken on purpose")
        main(words)

    monkeypatch.setattr(worker._programs["train"], "main", fail)
    worker.run(300, lambda job: [])
    assert [job.folder.split("/")[3] for job in worker.failed] == ["gcn-1"]
    assert "failed: runs/toy/loso/gcn-1/seed-0: broken on purpose" in capsys.readouterr().err
    assert len(machine().waiting) == 1


def test_a_lost_gpu_needs_a_new_process(machine, monkeypatch):
    worker, started = machine(), []
    monkeypatch.setattr(worker._programs["train"], "main", lambda words: 1 / 0)
    monkeypatch.setattr(working, "gpu_is_lost", lambda: True)

    def execute(program, words):
        started.append(words)
        raise SystemExit

    monkeypatch.setattr(lifetime.os, "execv", execute)
    with pytest.raises(SystemExit):
        worker.run(60, lambda job: [])
    assert started[0][-4:-1] == ["--call", worker.claims.call, "--minutes"]
    assert 0.5 < float(started[0][-1]) <= 1
    again = machine(call=worker.claims.call)
    assert again._claim(60, False).folder == "runs/toy/loso/gcn-1/seed-0", "without the same job"
    assert again.claims.failed(job.folder for job in again.chosen) == ["runs/toy/loso/gcn-0/seed-0"]


def test_choice_by_patterns(machine):
    assert len(machine(only=["gcn*"]).chosen) == 3
    assert len(machine(only=["gcn-[01]"], without=["gcn-0"]).chosen) == 1
    for option in ("only", "without"):
        with pytest.raises(BrioError, match=f"--{option} 'seed-1' matches no job of the plan"):
            machine(**{option: ["gcn*", "seed-1"]})
