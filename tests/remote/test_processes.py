"""Several processes work one plan off: each job once, and all of them end together."""

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from handed_over import make_home, take, train_job

from brio_core.remote.claims import Claims
from brio_core.remote.plan import prepare, read_plan
from brio_core.remote.processes import describe_ends
from brio_core.remote.work import Worker
from brio_core.system.files import read_json

ROOT = Path(__file__).resolve().parents[2]


def start(folder, *words):
    """``handover.py work`` with two processes on a machine, by the code that came with the plan."""
    command = [sys.executable, "scripts/handover.py", "work", "plan.json"]
    command += ["--processes", "2", "--device", "cpu", *words]
    return subprocess.Popen(
        list(map(str, command)), cwd=folder, text=True, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, env=os.environ | {"PYTHONPATH": ".", "OMP_NUM_THREADS": "1"},
    )  # fmt: skip


def work(folder, *words):
    process = start(folder, *words)
    out, err = process.communicate(timeout=200)
    return process.returncode, out, err


def finished(text):
    """Names of cells and diagnostics in the lines that report them."""
    return sorted(re.findall(r"^\[[12]\] (\S+): [\d.]+ s, \d+ jobs left$", text, re.MULTILINE))


@pytest.fixture
def machine(programs, tmp_path, monkeypatch):
    """``machine(jobs)`` is a folder with a plan of these jobs."""

    def make(jobs):
        make_home(tmp_path, jobs)
        monkeypatch.chdir(tmp_path)
        prepare(Path("results/handover/jobs.json"), programs, Path("results/handover"))
        return tmp_path / "results/handover"

    return make


def test_two_processes_do_what_one_does(places, programs):
    folder = places / "two"
    shutil.copytree(places / "home/results/handover", folder)
    code, out, err = work(folder, "--pack", "back.tar", "--models")
    assert code == 0, err
    names = [f"runs/toy/loso/{name}/seed-0" for name in ("gcn", "gcn-wide")]
    assert finished(out) == sorted(["diagnostics/toy/loso/gcn/seed-0", *names]), "each once"
    assert re.findall(r"^(.*)back\.tar: ", out, re.MULTILINE) == [""], "packed once, by the parent"
    assert all(line.startswith(("[1] ", "[2] ")) for line in err.splitlines()), err
    alone = places / "there/results"
    for path in [*alone.glob("runs/**/*.csv"), *alone.glob("diagnostics/**/*.csv")]:
        assert (folder / "results" / path.relative_to(alone)).read_bytes() == path.read_bytes()
    assert all(read_json(folder / "results" / n / "meta.json")["beside"] == 1 for n in names)
    assert read_json(alone / names[0] / "meta.json")["beside"] == 0
    take([folder / "back.tar"], programs)
    assert (places / "home/results" / names[1] / "models.pt").exists()
    code, out, err = work(folder)
    assert (code, out, err) == (0, "", ""), "nothing is left"


def test_other_calls_on_the_machine_count_too(machine, programs, monkeypatch):
    folder = machine([train_job(f"gcn-{n}") for n in range(4)])
    root, names = folder / "results", [f"runs/toy/loso/gcn-{n}/seed-0" for n in range(4)]
    other, train = Claims(root, "another call"), programs["train"].main

    def main(words):
        if names[0] in " ".join(words):
            assert other.take(names[3]), "the other call begins while the first job is at work"
        if names[2] in " ".join(words):
            other.release()
        train(words)

    monkeypatch.setattr(programs["train"], "main", main)
    worker = Worker(read_plan(folder / "plan.json"), root, programs, without=["gcn-3"])
    worker.run(100, lambda job: [])
    assert not worker.failed
    found = [read_json(root / name / "meta.json")["beside"] for name in names[:3]]
    assert found == [1, 1, 1]
    alone = Worker(read_plan(folder / "plan.json"), root, programs)
    alone.run(100, lambda job: [])
    assert read_json(root / names[3] / "meta.json")["beside"] == 0


def test_a_failure_does_not_stop_the_others(machine):
    bad = train_job("gcn-1")
    place = bad["words"].index("--params") + 1
    bad["words"][place] = bad["words"][place].replace('"hidden"', '"hiden"')
    folder = machine([train_job("gcn-0"), bad, train_job("gcn-2")])
    code, out, err = work(folder)
    names = [f"runs/toy/loso/gcn-{n}/seed-0" for n in range(3)]
    assert code == 1 and finished(out) == [names[0], names[2]], err
    assert err.count(f"failed: {names[1]}") == 1, "tried once"
    assert err.splitlines()[-1] == f"error: 1 jobs have failed, see above; the first is {names[1]}"


def open_files(process):
    """What a process has open; descriptors come and go while they are looked at."""
    found, folder = [], f"/proc/{process}/fd"
    with contextlib.suppress(FileNotFoundError):
        for link in os.listdir(folder):
            with contextlib.suppress(FileNotFoundError):
                found.append(Path(os.readlink(f"{folder}/{link}")))
    return found


def holder(process, name):
    """The child of a process that has claimed a job."""
    end = time.monotonic() + 60
    while time.monotonic() < end and process.poll() is None:
        path = Path(f"/proc/{process.pid}/task/{process.pid}/children")
        for child in path.read_text().split():
            for path in open_files(child):
                if str(path).endswith(name) and path.read_text().endswith("begun"):
                    return int(child)
        time.sleep(0.02)
    raise AssertionError("nobody has claimed it")


def test_what_a_killed_process_had_is_done_by_the_next_call(machine):
    folder = machine([train_job(f"gcn-{n}") for n in range(2)])
    process = start(folder)
    os.kill(holder(process, "gcn-1/seed-0.lock"), signal.SIGKILL)
    out, err = process.communicate(timeout=100)
    assert process.returncode == 1 and "was killed by SIGKILL" in err.splitlines()[-1]
    assert finished(out) == ["runs/toy/loso/gcn-0/seed-0"], out + err
    assert out.splitlines()[-1] == "1 jobs are left for the next call"
    code, out, err = work(folder)
    assert code == 0 and "runs/toy/loso/gcn-1/seed-0: " in out, err


def test_all_end_in_time(machine):
    folder = machine([train_job(f"gcn-{n}", epochs=100_000, patience=0) for n in range(3)])
    begun = time.monotonic()
    code, out, err = work(folder, "--minutes", 0.15)
    assert code == 0 and time.monotonic() - begun < 60, err
    # On a busy machine the time may be up before a job is begun.
    assert len(re.findall(r"^\[[12]\] time is up", out, re.MULTILINE)) == 2
    begun = re.findall(r"time is up: (\S+) continues next time", out)
    assert len(begun) == len(set(begun))
    assert out.splitlines()[-1] == "3 jobs are left for the next call"


PARENT = """
import sys
from brio_core.system.cli import run
from brio_core.remote.processes import run_together
child = '''
import os, time
from brio_core.system.cli import run
def main():
    print(os.getpid(), "x" * 5000, flush=True)
    time.sleep(60)
run(main)
'''
run(lambda: run_together([[sys.executable, "-c", child]] * 3))
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_signals_are_passed_on(number):
    def reraise() -> None:
        # Tests that run under nohup inherit a SIGHUP that is ignored.
        signal.signal(number, signal.SIG_DFL)

    process = subprocess.Popen(
        [sys.executable, "-c", PARENT], text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        cwd=ROOT, preexec_fn=reraise,
    )  # fmt: skip
    lines = [process.stdout.readline().split() for _ in range(3)]
    assert sorted(line[0] for line in lines) == ["[1]", "[2]", "[3]"]
    assert all(line[2:] == ["x" * 5000] for line in lines), "lines stay whole"
    process.send_signal(number)
    _, err = process.communicate(timeout=30)
    assert process.returncode == 128 + number
    assert err.splitlines()[-1] == f"stopped by {number.name}"
    assert not any(Path(f"/proc/{line[1]}").exists() for line in lines)


def test_a_signal_leaves_what_the_next_call_continues(machine):
    folder = machine([train_job(f"gcn-{n}", epochs=100_000, patience=0) for n in range(2)])
    process = start(folder, "--checkpoint-seconds", 0.1)
    children = [holder(process, f"gcn-{n}/seed-0.lock") for n in range(2)]
    end = time.monotonic() + 60
    while len(list(folder.glob("results/runs/**/.unfinished/*.pt"))) < 2:
        assert time.monotonic() < end
        time.sleep(0.05)
    process.terminate()
    _, err = process.communicate(timeout=60)
    assert process.returncode == 128 + signal.SIGTERM
    assert err.splitlines()[-1] == "stopped by SIGTERM" and "Traceback" not in err
    assert not any(Path(f"/proc/{child}").exists() for child in children)
    assert not list(folder.rglob("*.partial"))


def test_the_list_is_the_same_for_any_number(machine):
    code, out, _ = work(machine([train_job("gcn")]), "--list")
    assert code == 0 and out == "waiting   GPU        ?  runs/toy/loso/gcn/seed-0\n"


def test_ends_in_words():
    assert describe_ends([0, 1, -9]) == [
        "process 2 ended with exit code 1", "process 3 was killed by SIGKILL",
    ]  # fmt: skip
