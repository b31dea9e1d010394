"""Ctrl-C and SIGTERM, two runs in one folder, and clocks that are wrong."""

import os
import random
import shutil
import signal
import time

import pytest

pytestmark = pytest.mark.faults


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("name", ["extract", "connect", "train-gcn", "figure"])
def test_a_program_cleans_up(name, number, lab, stages):
    stage, generator = stages[name], random.Random(name)
    # At once when it writes, soon after, and perhaps when it is done.
    for longest in (0, 0.02, 0.2):
        stage.remove_outputs(lab)
        (lab.folder / stage.log).unlink()
        process = stage.start(lab)
        stage.wait_until_it_writes(process, lab, 60)
        time.sleep(generator.uniform(0, longest))
        process.send(number, everyone=False)
        process.wait(60)
        said = (lab.folder / stage.log).read_text()
        assert "Traceback" not in said, said
        assert not [name for name in lab.leftovers() if name.endswith(".partial")]
        if process.returncode:
            assert process.returncode == 128 + number, said
            assert said.splitlines()[-1] == f"stopped by {number.name}"
    assert stage.run(lab)[0] == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_snakemake_cleans_up(number, finished, lab, start_snakemake, tmp_path):
    cell = lab.results / "runs/tiny/loso/gcn/seed-0"
    shutil.rmtree(cell)
    process = start_snakemake(lab, "tiny", "--cores", "2", log=tmp_path / "said.txt")
    end = time.monotonic() + 120
    while not list(cell.glob(".unfinished/*.pt")) and not (cell / "meta.json").exists():
        assert process.poll() is None and time.monotonic() < end
        time.sleep(0.05)
    # A terminal sends Ctrl-C to all processes of the group, kill only to one.
    process.send(number, everyone=number == signal.SIGINT)
    process.wait(timeout=120)
    assert lab.locks() == []
    assert not [name for name in lab.leftovers() if name.endswith(".partial")]
    done = lab.snakemake("tiny", "--cores", "2")
    assert done.returncode == 0, done.stdout
    assert lab.checksums() == finished.checksums()
    assert lab.leftovers() == []


def test_two_runs_in_one_folder(finished, lab, start_snakemake, tmp_path):
    shutil.rmtree(lab.results / "runs/tiny/loso/gcn")
    first = start_snakemake(lab, "tiny", "--cores", "1", log=tmp_path / "said.txt")
    end = time.monotonic() + 60
    while not lab.locks():
        assert first.poll() is None and time.monotonic() < end
        time.sleep(0.05)
    second = lab.snakemake("tiny", "--cores", "1")
    assert second.returncode == 1
    assert "Directory cannot be locked" in second.stdout
    assert first.wait(timeout=120) == 0, (tmp_path / "said.txt").read_text()
    assert lab.checksums() == finished.checksums() and lab.locks() == []


def test_clocks_that_are_wrong(finished, lab):
    """Times do not matter, neither that of a table from tomorrow nor those among the results."""
    table, made = lab.folder / "data/tiny/participants.tsv", "results/cohorts/tiny/candidates.tsv"
    tomorrow = time.time() + 86400
    os.utime(table, (tomorrow, tomorrow))
    (lab.folder / made).unlink()
    done = lab.snakemake(made, "--cores", "2")
    assert done.returncode == 0 and (lab.folder / made).exists(), done.stdout
    done = lab.snakemake("tiny", "--cores", "2")
    assert done.returncode == 0, done.stdout
    assert lab.checksums() == finished.checksums()
    for number, path in enumerate(sorted(lab.results.rglob("*.*"))):
        when = time.time() + (-7200, 7200)[number % 2]
        os.utime(path, (when, when))
    done = lab.snakemake("tiny", "--cores", "2")
    assert done.returncode == 0 and "Nothing to be done" in done.stdout, done.stdout


def test_the_title_of_the_cohort_is_no_script(finished):
    page = (finished.results / "report.html").read_text()
    assert "script>alert(1)" in page and "<script>alert(1)" not in page
