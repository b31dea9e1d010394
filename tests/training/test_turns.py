"""Groups of folds that train in turn, an epoch of each: the same numbers, and the time of all."""

import time
from contextlib import nullcontext

import pytest
import torch
from synthetic import make_problem, train_all

from brio_core.training import trainer
from brio_core.training.checkpoints import Checkpoints


def test_groups_in_turn_come_to_the_numbers_of_one_after_the_other(tmp_path, monkeypatch):
    monkeypatch.setattr(torch.cuda, "Stream", object)
    monkeypatch.setattr(torch.cuda, "stream", lambda stream: nullcontext())
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    problem, _ = make_problem("gcn", epochs=4)
    expected = train_all(problem, tmp_path / "one", group_size=2)
    parts, saved, results = list(trainer.groups(problem, 2)), [], {}
    begun, checkpoints = time.monotonic(), Checkpoints(tmp_path / "turns", "test", 0)
    save = checkpoints.save

    def watched(names, *rest, **how):
        saved.append(names)
        save(names, *rest, **how)

    monkeypatch.setattr(checkpoints, "save", watched)
    trainer._train_in_turn(problem, parts, checkpoints, results)
    assert saved[:4] == [[fold.name for fold in group] for group in (*parts, parts[0])]
    assert [results[one.name].history for one in expected] == [one.history for one in expected]
    # Of the time of all groups nothing counts twice.
    spent = time.monotonic() - begun
    again = Checkpoints(tmp_path / "turns", "test", 0)
    for group in parts:
        again.load([fold.name for fold in group], problem.data.device)
    assert 0 < again.earlier < spent


@pytest.mark.gpu
@pytest.mark.parametrize("method", ["gcn", "xg-gnn"])
def test_groups_share_a_gpu_and_nothing_else(method, tmp_path, monkeypatch):
    problem, _ = make_problem(method, epochs=6)
    problem.data.device = torch.device("cuda")
    together = [one.history for one in train_all(problem, tmp_path / "a", group_size=2)]
    monkeypatch.setattr(trainer, "_train_in_turn", lambda *given: None)
    alone = [one.history for one in train_all(problem, tmp_path / "b", group_size=2)]
    assert together == alone
