"""A signal ends a program, whatever becomes of what its handler raises."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tiny import ROOT

BOTH = pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
PROGRAM = """
import atexit, signal, sys
from brio_core.system.cli import run
from brio_core.system.errors import BrioError
from brio_core.system.files import atomic, write_text

number = int(sys.argv[1])

class Deleted:
    def __del__(self):
        signal.raise_signal(number)

def main():
    write_text("before.txt", "complete")
    {what}
    write_text("after.txt", "complete")

run(main)
"""
TAKEN_FOR_AN_ERROR = """
    try:
        signal.raise_signal(number)
    except KeyboardInterrupt:
        {}
"""
CASES = {
    "simply": "signal.raise_signal(number)",
    # As HDF5 does with what is raised inside of one of its callbacks.
    "replaced": TAKEN_FOR_AN_ERROR.format("raise TypeError('operation not defined')"),
    "named": TAKEN_FOR_AN_ERROR.format("raise BrioError('series.h5 is damaged')"),
    "passed over": TAKEN_FOR_AN_ERROR.format("pass"),
    "dropped": "Deleted()",
    # When a file is written and its block not yet left.
    "between": """
    block = atomic("half.txt")
    block.__enter__().write_text("not in its place")
    signal.raise_signal(number)
""",
}


def run(
    folder: Path, what: str, number: signal.Signals, before: object = signal.SIG_DFL
) -> subprocess.CompletedProcess:
    """Run the program with a handler that it inherits; tests may themselves ignore Ctrl-C."""
    return subprocess.run(
        [sys.executable, "-c", PROGRAM.format(what=what), str(int(number))],
        cwd=folder, env={"PYTHONPATH": str(ROOT)}, capture_output=True, text=True, timeout=60,
        preexec_fn=lambda: signal.signal(number, before),
    )  # fmt: skip


@BOTH
@pytest.mark.parametrize("case", CASES)
def test_it_ends_and_leaves_nothing_half(case, number, tmp_path):
    done = run(tmp_path, CASES[case], number)
    assert done.returncode == 128 + number
    assert done.stderr == f"stopped by {number.name}\n"
    assert [path.name for path in tmp_path.iterdir()] == ["before.txt"]


@BOTH
def test_what_is_done_is_done(number, tmp_path):
    """While Python tidies up after a program, a signal changes nothing any more."""
    done = run(tmp_path, "atexit.register(signal.raise_signal, number)", number)
    assert (done.returncode, done.stderr) == (0, "")
    assert (tmp_path / "after.txt").exists()


def test_ctrl_c_is_not_meant_for_background_jobs(tmp_path):
    """Their shell lets them ignore it."""
    done = run(tmp_path, "signal.raise_signal(number)", signal.SIGINT, before=signal.SIG_IGN)
    assert (done.returncode, done.stderr) == (0, "")
    assert (tmp_path / "after.txt").exists()


def test_sigterm_ends_a_program_whatever_it_inherits(tmp_path):
    done = run(tmp_path, "signal.raise_signal(number)", signal.SIGTERM, before=signal.SIG_IGN)
    assert done.returncode == 128 + signal.SIGTERM


def test_other_dropped_errors_are_reported(tmp_path):
    done = run(tmp_path, "Deleted.__del__ = lambda _: 1 / 0; Deleted()", signal.SIGTERM)
    assert done.returncode == 0 and "ZeroDivisionError" in done.stderr


def test_an_unexpected_error_names_its_place():
    program = "from brio_core.system import cli, errors; cli.run(lambda: errors.one_line(3))"
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 1
    assert "\nerror: AttributeError in brio_core/system/errors.py, line " in done.stderr


LEAVING = """
import atexit, sys
from brio_core.system import cli

class Kept:
    def __del__(self):
        print("taken apart")

kept = Kept()

def main():
    atexit.register(print, "registered")
    print("done")
    {last}

cli.run(main)
"""


def leave(last: str = "pass") -> subprocess.CompletedProcess:
    command = [sys.executable, "-c", LEAVING.format(last=last)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True)


def test_a_program_that_is_done_leaves_at_once_with_all_it_printed():
    ended = leave()
    assert (ended.returncode, ended.stdout) == (0, "done\nregistered\n")


def test_other_exit_codes_stay_after_a_program_that_was_done():
    assert leave("cli.run(lambda: sys.exit(2))").returncode == 2
