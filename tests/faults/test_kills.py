"""Programs are killed at random moments; what stays is complete, and the next run ends alike."""

import random
import signal
import time

import pytest
from stages import EPOCHS
from tiny import SOAK, make_lab

pytestmark = pytest.mark.faults
KILLS = {
    "extract": 11, "connect": 10, "train-gcn": 12, "train-linear-correlation": 5, "figure": 10,
}  # fmt: skip
if SOAK:
    KILLS |= dict.fromkeys(
        ("candidates", "assemble", "split", "blocklength", "summarise", "table"), 5
    )
MILESTONES = ("cohorts/tiny/candidates.tsv", "cohorts/tiny/series.h5", "runs/tiny")


@pytest.mark.parametrize("name", KILLS)
def test_kills_of_one_stage(name, lab, finished, stages, record_property):
    stage, generator = stages[name], random.Random(f"{name}{SOAK or ''}")
    expected = stage.contents(finished)
    assert expected
    stage.remove_outputs(lab)
    begun = time.monotonic()
    assert stage.run(lab)[0] == 0
    duration = time.monotonic() - begun
    assert stage.contents(lab) == expected, "the stage is not deterministic"

    kills = writing = tries = 0
    stage.remove_outputs(lab)
    while kills < KILLS[name]:
        process = stage.start(lab)
        # Writing is short; so every second try waits for the first new file.
        if tries % 2:
            stage.wait_until_it_writes(process, lab, 5 * duration)
            time.sleep(generator.uniform(0, 0.02))
        else:
            time.sleep(generator.uniform(0, duration))
        tries += 1
        process.send(signal.SIGKILL)
        finished_before = process.wait() != -signal.SIGKILL
        found = stage.contents(lab)
        assert all(expected[file] == content for file, content in found.items()), "a half file"
        if finished_before:
            stage.remove_outputs(lab)
            continue
        kills += 1
        writing += bool(lab.leftovers() or found)
    code, said = stage.run(lab)
    assert code == 0, said
    assert stage.contents(lab) == expected
    assert lab.leftovers() == []
    record_property("kills", kills)
    print(f"\n{name}: {kills} kills, {writing} of them while files were written, 0 differences")


def test_kills_of_the_whole_workflow(finished, tmp_path, start_snakemake, record_property):
    lab, generator = make_lab(tmp_path / "lab", **EPOCHS), random.Random(SOAK or 0)
    # Soon after each of these has appeared, whatever the speed of the machine.
    for milestone in MILESTONES:
        process = start_snakemake(lab, "tiny", "--cores", "2", log=tmp_path / "said.txt")
        while not (lab.results / milestone).exists():
            assert process.poll() is None, (tmp_path / "said.txt").read_text()
            time.sleep(0.05)
        time.sleep(generator.uniform(0, 1))
        assert process.poll() is None, (tmp_path / "said.txt").read_text()
        process.send(signal.SIGKILL)
        process.wait()
        assert lab.snakemake("tiny", "--unlock").returncode == 0
    done = lab.snakemake("tiny", "--cores", "2")
    assert done.returncode == 0, done.stdout
    assert lab.checksums() == finished.checksums()
    assert lab.leftovers() == [] and lab.locks() == []
    record_property("kills", len(MILESTONES))
