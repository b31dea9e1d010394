"""Many short runs in one folder of results, each with a fault: the end is that without faults."""

import random
import shutil
import signal

import pytest
from tiny import ROOT, SOAK, Lab

pytestmark = pytest.mark.faults
RUNS = 170 if SOAK else 8
KEPT = ROOT / ".soak" / "lab"
STAGES = ("candidates", "extract", "connect", "split", "summarise", "table", "figure")


def kill(stage, lab, generator):
    end(stage, lab, generator, signal.SIGKILL)


def stop(stage, lab, generator):
    end(stage, lab, generator, signal.SIGTERM)


def end(stage, lab, generator, number):
    process = stage.start(lab)
    stage.wait_until_it_writes(process, lab, generator.uniform(0, 5))
    process.send(number)
    process.wait()


def delete(stage, lab, generator):
    (lab.folder / generator.choice(stage.outputs)).unlink(missing_ok=True)


def leave_something(stage, lab, generator):
    """What a killed process has left."""
    path = lab.folder / generator.choice(stage.outputs)
    path.with_name(f".{path.name}.99999999.partial").write_bytes(b"half")


def fill_up(stage, lab, generator):
    """No file may have more than a few kilobytes, which is enough for the log."""
    code, said = stage.run(lab, largest=generator.choice((8, 12)))
    assert code == 0 or (code == 1 and "could not be written: File too large" in said), said


def nothing(stage, lab, generator):
    pass


FAULTS = (kill, kill, stop, delete, leave_something, fill_up, nothing)


@pytest.fixture
def lab(lab) -> Lab:
    """A part of a soak goes on where the last one has ended."""
    if SOAK and KEPT.exists():
        shutil.rmtree(lab.folder)
        shutil.copytree(KEPT, lab.folder, symlinks=True)
    return lab


def test_short_runs_with_faults(lab, finished, stages, record_property):
    generator = random.Random(SOAK or 0)
    # Summaries hold seconds of training, so a folder is compared with itself.
    before = {name: stages[name].contents(lab) for name in STAGES}
    for number in range(RUNS):
        stage, fault = stages[generator.choice(STAGES)], generator.choice(FAULTS)
        expected, place = before[stage.name], f"run {number}, {stage.name}, {fault.__name__}"
        if generator.random() < 0.5:
            stage.remove_outputs(lab)
        fault(stage, lab, generator)
        found = stage.contents(lab)
        assert all(expected[name] == content for name, content in found.items()), place
        code, said = stage.run(lab)
        assert code == 0, f"{place}: {said}"
        assert stage.contents(lab) == expected, place
        assert lab.leftovers() == [], place
    done = lab.snakemake("tiny", "--cores", "2")
    assert done.returncode == 0, done.stdout
    assert lab.checksums() == finished.checksums() and lab.leftovers() == []
    record_property("runs", RUNS)
    if SOAK:
        shutil.rmtree(KEPT, ignore_errors=True)
        shutil.copytree(lab.folder, KEPT, symlinks=True)
