"""What becomes of trained models: kept, compressed, or dropped after the last job with them."""

import gzip

import pytest
import torch

from brio_core.system.errors import BrioError
from brio_core.training.results import MODEL_FORMAT, MODEL_VERSION, read_models, write_tensors


def test_dropped_models_cost_nothing_later(project):
    words = ("--cores", "2", "--config", "model_files=drop")
    done = project.snakemake(*words)
    assert done.returncode == 0, done.stdout
    results = project.folder / "results"
    assert list(results.glob("runs/**/predictions.csv"))
    assert not list(results.glob("runs/**/models.pt"))
    assert (results / "diagnostics/demo/loso/brio/seed-0/folds.csv").exists()
    assert "Nothing to be done" in project.snakemake(*words).stdout
    assert project.plan("--config", "model_files=drop") == set()


def test_compression_retrains_nothing(after_demo):
    rules = {job[0] for job in after_demo.plan("--config", "model_files=compress")}
    assert rules == {"table", "index", "all"}, "only the pages that show the configuration"
    words = ("--config", "model_files=compress", "--forceall", "-n", "--printshellcmds")
    commands = after_demo.snakemake(*words).stdout
    assert commands.count(" --compress-models >") == commands.count("scripts/train.py") > 0


@pytest.mark.parametrize("compress", [False, True])
def test_models_are_read_either_way(tmp_path, compress):
    path = tmp_path / "models.pt"
    settings = {"penalties": [1.0]}
    content = {
        "format": MODEL_FORMAT, "version": MODEL_VERSION, "method": "linear-tangent",
        "hyperparameters": settings, "n_rois": 4, "folds": ["A"], "n_sites": [3],
        "states": [{"weight": torch.arange(1000.0)}], "chosen": [{}],
    }  # fmt: skip
    write_tensors(path, content, compress)
    assert (path.read_bytes()[:2] == b"\x1f\x8b") == compress
    assert torch.equal(read_models(path).states[0]["weight"], torch.arange(1000.0))


def test_a_compressed_model_that_is_cut_off(tmp_path):
    path = tmp_path / "models.pt"
    path.write_bytes(gzip.compress(b"x" * 1000)[:-10])
    with pytest.raises(BrioError, match="not a model file"):
        read_models(path)
