"""Scans that do not fit on the device are streamed; numbers do not change."""

import pytest
import torch
from synthetic import make_problem

from brio_core.residence import reside, rows_of
from brio_core.training import Checkpoints, train

needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")


def histories(tmp_path, device, budget):
    problem, _ = make_problem("brio", folds=slice(0, 3))
    problem.device, problem._memory_budget = torch.device(device), budget
    results = train(problem, Checkpoints(tmp_path / str(budget), "test", 1e9), None)
    return problem, [result.history for result in results]


def test_rows_come_to_the_index():
    table = torch.arange(12.0).view(6, 2)
    index = torch.tensor([[4, 0], [1, 1]])
    assert torch.equal(rows_of(table, index), table[index])


def test_features_that_are_not_kept_are_made_again(tmp_path):
    _, kept = histories(tmp_path, "cpu", 1 << 30)
    _, again = histories(tmp_path, "cpu", 0)
    assert kept == again


@pytest.mark.gpu
@needs_cuda
def test_a_table_beyond_the_budget_stays_on_the_host():
    array = torch.randn(50, 7, 3).numpy()
    table = reside(array, torch.device("cuda"), array.nbytes - 1)
    assert table.is_pinned() and reside(array, torch.device("cuda"), array.nbytes).is_cuda
    index = torch.randint(50, (4, 5), device="cuda")
    assert torch.equal(rows_of(table, index), torch.as_tensor(array).cuda()[index])


@pytest.mark.gpu
@needs_cuda
def test_streaming_loses_time_only(tmp_path):
    _, kept = histories(tmp_path, "cuda", None)
    problem, streamed = histories(tmp_path, "cuda", 0)
    assert problem.inputs["fc"].is_pinned() and problem.scans.bold.is_pinned()
    assert kept == streamed
