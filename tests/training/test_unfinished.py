"""Unfinished work: who may go on from it, and the time that it took."""

import time

import torch

from brio_core.training.checkpoints import Checkpoints


def test_other_or_broken_checkpoints_are_ignored(tmp_path):
    store = Checkpoints(tmp_path, "mine", 1e9)
    store.save(["a"], {"epoch": 3}, always=True)
    assert store.load(["a"], torch.device("cpu"))["epoch"] == 3
    other = Checkpoints(tmp_path, "another code", 1e9)
    assert other.load(["a"], torch.device("cpu")) is None
    for path in tmp_path.glob("*.pt"):
        path.write_bytes(path.read_bytes()[:100])
    assert store.load(["a"], torch.device("cpu")) is None


def test_time_of_earlier_attempts_counts(tmp_path, monkeypatch):
    """Seconds up to the last checkpoint, not what was lost after it."""
    now = 0.0
    monkeypatch.setattr(time, "monotonic", lambda: now)

    def attempt(names, seconds, *, saves=True):
        nonlocal now
        store = Checkpoints(tmp_path, "mine", 0)
        store.load(names, torch.device("cpu"))
        now += seconds
        if saves:
            store.save(names, {})
        return store.earlier

    assert attempt(["a"], 5) == 0
    assert attempt(["a"], 7, saves=False) == 5
    assert attempt(["a"], 2) == 5
    assert attempt(["a"], 1) == 7
    assert attempt(["b"], 1) == 0


def test_what_an_attempt_has_written_itself_is_no_earlier_time(tmp_path, monkeypatch):
    """As where folds go on alone after they ran out of memory together."""
    now = 0.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    for earlier in (0, 8):
        store = Checkpoints(tmp_path, "mine", 0)
        for _ in range(2):
            store.load(["a"], torch.device("cpu"))
            now += 4
            store.save(["a"], {})
        assert store.earlier == earlier
