"""Files that were cut off, overwritten, or left by somebody else: named, never believed."""

import json
import os
import shutil

import pytest
import torch

pytestmark = pytest.mark.faults
COHORT = "results/cohorts/tiny"
RUN = "results/runs/tiny/loso/gcn/seed-0"
# Every file that a later stage reads, and that stage.
READERS = {
    "data/tiny/participants.tsv": "candidates",
    f"{COHORT}/candidates.tsv": "extract",
    f"{COHORT}/parts/0.h5": "assemble",
    f"{COHORT}/series.h5": "connect",
    f"{COHORT}/participants.tsv": "split",
    f"{COHORT}/fc.h5": "train-gcn",
    "results/splits/tiny/loso.json": "train-gcn",
    "results/blocklength/tiny/loso.json": "train-gcn",
    f"{RUN}/predictions.csv": "summarise",
    f"{RUN}/meta.json": "summarise",
    "results/summaries/tiny/tiny/loso.csv": "table",
    "results/summaries/tiny/tiny/loso-sites.csv": "figure",
}


def breakages(content: bytes) -> dict[str, bytes]:
    third = len(content) // 3
    return {
        "empty": b"",
        "cut off": content[: 2 * third],
        "zeros inside": content[:third] + bytes(third) + content[2 * third :],
        "not its own": b"\x89PNG\r\n\x1a\n" + b"\x00\xff" * 50,
    }


@pytest.mark.parametrize("file", READERS)
def test_broken_file(file, lab, finished, stages):
    stage, path = stages[READERS[file]], lab.folder / file
    for kind, content in breakages(path.read_bytes()).items():
        path.write_bytes(content)
        stage.remove_outputs(lab)
        code, said = stage.run(lab)
        if code == 0:
            # A list of subjects that lost its last ones is still a list.
            assert kind == "cut off" and path.suffix == ".tsv", said
            continue
        assert code == 1 and "Traceback" not in said, said
        assert said.splitlines()[-1].startswith("error: "), said
        assert path.name in said.splitlines()[-1], said
        assert stage.contents(lab) == {}, f"something was made of a broken file: {kind}"
    stage.remove_outputs(lab)
    shutil.copy(finished.folder / file, path)
    assert stage.run(lab)[0] == 0
    assert stage.contents(lab) == stage.contents(finished)


@pytest.mark.parametrize("kind", ["empty", "cut off", "zeros inside", "not its own"])
def test_broken_model(kind, lab):
    from brio_core.system.errors import BrioError
    from brio_core.training.results import read_models

    path = lab.folder / RUN / "models.pt"
    path.write_bytes(breakages(path.read_bytes())[kind])
    with pytest.raises(BrioError, match=r"models\.pt"):
        read_models(path)


class Planted:
    """Pickled into a model file, it would run a command when it is loaded."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


def test_a_model_file_cannot_run_code(lab):
    from brio_core.system.errors import BrioError
    from brio_core.training.results import read_models

    path, harm = lab.folder / RUN / "models.pt", lab.folder / "harm"
    torch.save({"format": "brio-models", "states": [Planted(harm)]}, path)
    with pytest.raises(BrioError, match="not a model file"):
        read_models(path)
    assert not harm.exists()


def test_a_checkpoint_cannot_run_code_or_mislead(lab, finished, stages):
    stage, harm = stages["train-gcn"], lab.folder / "harm"
    stage.remove_outputs(lab)
    unfinished = lab.folder / RUN / ".unfinished"
    unfinished.mkdir()
    process = stage.start(lab)
    stage.wait_until_it_writes(process, lab, 60)
    process.wait()
    stage.remove_outputs(lab)
    unfinished.mkdir(exist_ok=True)
    for name in ("0123456789abcdef.pt", "anything.pt"):
        torch.save({"fingerprint": "x", "state": Planted(harm)}, unfinished / name)
    code, said = stage.run(lab)
    assert code == 0, said
    assert not harm.exists() and lab.leftovers() == []
    assert stage.contents(lab) == stage.contents(finished)


def test_results_of_another_configuration(lab, finished, stages):
    """A cell of another split, and unfinished work with other settings."""
    train, summarise = stages["train-gcn"], stages["summarise"]
    train.remove_outputs(lab)
    other = train.command.replace('"epochs": 60', '"epochs": 2000')
    assert other != train.command
    from dataclasses import replace

    process = replace(train, command=other).start(lab)
    train.wait_until_it_writes(process, lab, 60)
    process.send(9)
    process.wait()
    assert lab.leftovers()
    assert train.run(lab)[0] == 0
    assert train.contents(lab) == train.contents(finished) and lab.leftovers() == []

    meta = lab.folder / RUN / "meta.json"
    content = json.loads(meta.read_text())
    meta.write_text(json.dumps(content | {"split_checksum": "0" * 64}))
    code, said = summarise.run(lab)
    assert code == 1 and "split_checksum" in said and "Traceback" not in said, said


def test_a_subject_disappears_between_planning_and_reading(lab, stages):
    lab.folder.joinpath("data/tiny/series/s23.tsv").unlink()
    for name in ("extract", "assemble"):
        code, said = stages[name].run(lab)
        assert code == 0, said
    rows = (lab.folder / COHORT / "inclusion.tsv").read_text().splitlines()
    (row,) = [row for row in rows if row.startswith("s23\t")]
    assert "\tno\t" in row and "s23.tsv" in row
    assert "s23" not in (lab.folder / COHORT / "participants.tsv").read_text()
