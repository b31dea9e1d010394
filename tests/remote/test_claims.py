"""A job belongs to one process at a time, and what others make is waited for."""

import shutil
import threading
import time

import pytest

from brio_core.remote import claims as claiming
from brio_core.remote import work as working
from brio_core.remote.claims import Claims
from brio_core.remote.plan import read_plan
from brio_core.remote.work import Worker
from brio_core.system.errors import BrioError

CELLS = [f"runs/toy/loso/{name}/seed-0" for name in ("gcn", "gcn-wide")]
DIAGNOSTICS = "diagnostics/toy/loso/gcn/seed-0"


def test_a_claim_excludes_others_and_is_not_renewed_in_its_call(tmp_path):
    mine, same, other = (Claims(tmp_path, call) for call in ("a", "a", "b"))
    assert not other.is_held("runs/x") and mine.take("runs/x")
    assert other.is_held("runs/x") and not other.take("runs/x") and not same.take("runs/x")
    mine.release()
    assert not same.is_held("runs/x") and not same.take("runs/x"), "it was begun in this call"
    assert mine.failed(["runs/x"]) == []
    assert other.take("runs/x"), "but the next call may try"
    other.fail()
    other.release()
    assert other.failed(["runs/x", "runs/y"]) == ["runs/x"] and mine.failed(["runs/x"]) == []


def test_a_disk_without_locks_is_named(tmp_path, monkeypatch):
    def refuse(file, kind):
        raise OSError(38, "Function not implemented")

    monkeypatch.setattr(claiming.fcntl, "flock", refuse)
    with pytest.raises(BrioError, match=r"runs/x\.lock could not be locked .*--results"):
        Claims(tmp_path, "a").take("runs/x")


@pytest.fixture
def empty(worked, programs, tmp_path, monkeypatch):
    """``empty()`` is a worker on a machine where nothing is done yet."""
    monkeypatch.setattr(working, "PAUSE", 0.05)
    shutil.copytree(worked / "home/results/handover/results", tmp_path / "results")
    plan = read_plan(worked / "there/plan.json")
    return lambda **options: Worker(plan, tmp_path / "results", programs, **options)


def test_what_another_process_makes_is_waited_for_and_not_made_again(
    empty, worked, tmp_path, programs, monkeypatch
):
    other, done = Claims(tmp_path / "results", "other"), []
    assert other.take(CELLS[0])

    def finish():
        time.sleep(1.0)
        shutil.copytree(worked / "there/results" / CELLS[0], tmp_path / "results" / CELLS[0])
        other.release()

    for name, program in programs.items():
        run = lambda words, name=name, main=program.main: (done.append(name), main(words))  # noqa: E731
        monkeypatch.setattr(program, "main", run)
    thread = threading.Thread(target=finish)
    thread.start()
    worker = empty()
    worker.run(300, lambda job: [])
    thread.join()
    assert done == ["train", "diagnose"] and not worker.waiting and not worker.failed
    for name in ("folds.csv", "rois.csv"):
        path = f"results/{DIAGNOSTICS}/{name}"
        assert (tmp_path / path).read_bytes() == (worked / "there" / path).read_bytes()


def test_nobody_waits_for_what_will_never_be_ready(empty, tmp_path, monkeypatch, programs):
    killed = Claims(tmp_path / "results", "call")
    assert killed.take(CELLS[0])
    killed.release()
    worker = empty(call="call", only=[CELLS[0], DIAGNOSTICS])
    monkeypatch.setattr(programs["train"], "main", lambda words: pytest.fail("begun again"))
    begun = time.monotonic()
    worker.run(300, lambda job: [])
    assert time.monotonic() - begun < 5 and len(worker.waiting) == 2
    assert empty(only=CELLS[:1])._claim(300, False), "the next call tries it again"


def test_long_jobs_first_where_several_processes_work(empty):
    worker = empty(processes=2)
    gcn, wide, diagnostics = worker.waiting
    worker._expected = lambda job: {gcn: 1.0, wide: 2.0, diagnostics: 9.0}[job]
    assert worker._fitting(300, False) == [wide, gcn]
    worker._expected = lambda job: {gcn: float("nan"), wide: 2.0}[job]
    assert worker._fitting(300, False) == [gcn, wide], "it may be the longest"
    alone = empty()
    alone._expected = lambda job: {gcn: 1.0, wide: 2.0}[job]
    assert alone._fitting(300, False) == [gcn, wide], "in the order of the plan"
