"""Stacks that train in turn, an epoch of each: the same numbers, and the time of all."""

import time
from contextlib import nullcontext
from dataclasses import replace

import pytest
import torch
from synthetic import make_problem

from brio_core.training import trainer
from brio_core.training.checkpoints import Checkpoints, Clock

NAMES = [f"site{number}" for number in range(6)]


def problems_of(method, seeds=2, **settings):
    problem, _ = make_problem(method, **settings)
    trials = [replace(problem.trial, seed=seed) for seed in range(seeds)]
    return [replace(problem, trial=trial) for trial in trials]


def train(problems, folder, at_once, monkeypatch, clock=None):
    """Results of all problems, and which groups of which seeds saved something."""
    saved = []

    class Watched(Checkpoints):
        def save(self, names, *rest, **how):
            saved.append((int(self.folder.name), NAMES.index(names[0])))
            super().save(names, *rest, **how)

    monkeypatch.setattr(trainer, "PARTS_AT_ONCE", at_once)
    kept = [
        Watched(folder / str(one.trial.seed), str(one.trial.seed), 0, clock) for one in problems
    ]
    results = trainer.train_problems(problems, kept, group_size=3)
    return [[one.history for one in own] for own in results], saved, kept


@pytest.fixture
def pretended(monkeypatch):
    """A CPU that passes for a GPU with memory enough."""
    monkeypatch.setattr(torch.cuda, "Stream", object)
    monkeypatch.setattr(torch.cuda, "stream", lambda stream: nullcontext())
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    monkeypatch.setattr(trainer, "_has_room", lambda count: True)
    monkeypatch.setattr(trainer, "_at_once", lambda device: trainer.PARTS_AT_ONCE)


def test_stacks_in_turn_come_to_the_numbers_of_one_after_the_other(
    tmp_path, monkeypatch, pretended
):
    problems = problems_of("gcn", epochs=4)
    alone, saved, _ = train(problems, tmp_path / "alone", 1, monkeypatch)
    assert saved[:5] == [(0, 0)] * 5, "four epochs, and results"
    begun, clock = time.monotonic(), Clock()
    together, saved, _ = train(problems, tmp_path / "turns", 3, monkeypatch, clock)
    assert together == alone and alone[0] != alone[1]
    # Groups of a seed come first; a fourth begins when the first has ended.
    assert saved[:9] == [(0, 0), (0, 3), (1, 0)] * 3
    assert saved[9:11] == [(0, 0)] * 2 and saved[-1] == (1, 3) not in saved[:11]
    # Of the time of all nothing counts twice.
    spent = time.monotonic() - begun
    _, _, again = train(problems, tmp_path / "turns", 3, monkeypatch)
    assert 0 < sum(one.earlier for one in again) < spent


def test_fewer_train_at_once_where_memory_is_short(tmp_path, monkeypatch, pretended, capsys):
    problems = problems_of("gcn", epochs=3)
    alone, _, _ = train(problems, tmp_path / "alone", 1, monkeypatch)
    monkeypatch.setattr(trainer, "_has_room", lambda count: count < 2)
    together, saved, _ = train(problems, tmp_path / "two", 5, monkeypatch)
    assert together == alone and saved[:4] == [(0, 0), (0, 3)] * 2
    assert not capsys.readouterr().err.count("out of GPU memory")
    # What was asked for is not always what it takes.
    training, real = set(), trainer.Part.epochs

    def small(part):
        training.add(part)
        for epoch in real(part):
            if len(training) > 2:
                training.clear()
                raise torch.cuda.OutOfMemoryError
            yield epoch
        training.remove(part)

    monkeypatch.setattr(trainer, "_has_room", lambda count: True)
    monkeypatch.setattr(trainer.Part, "epochs", small)
    together, _, _ = train(problems, tmp_path / "less", 5, monkeypatch)
    assert together == alone
    assert "out of GPU memory: 2 groups of folds at once" in capsys.readouterr().err


@pytest.mark.gpu
@pytest.mark.parametrize("method", ["brio", "gcn", "xg-gnn"])
def test_stacks_share_a_gpu_and_nothing_else(method, tmp_path, monkeypatch):
    problems = problems_of(method, seeds=3, epochs=6)
    problems[0].data.device = torch.device("cuda")
    together, saved, _ = train(problems, tmp_path / "a", 5, monkeypatch)
    assert len(set(saved[:5])) == 5, "all have begun before one goes on"
    alone, _, _ = train(problems, tmp_path / "b", 1, monkeypatch)
    assert together == alone
