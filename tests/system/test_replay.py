"""Work that a GPU captures and replays."""

from functools import partial

import pytest
import torch

from brio_core.system.replay import Replay


@pytest.mark.gpu
@pytest.mark.parametrize("warm, passes", [((), 2), (("other",), 2), (("work",), 1)])
def test_work_that_is_warm_is_captured_at_once(warm, passes):
    """And as often as it is called it is done, whether as Python or replayed."""
    done = torch.zeros(67, 67, device="cuda")
    ones, called = torch.ones_like(done), []

    def work():
        called.append(True)
        done.add_(ones @ ones)

    replay = Replay(done.device, warm)
    for _ in range(4):
        replay("work", work)
    assert len(called) == passes
    assert (done == 4 * 67).all()
    assert "work" in replay.warm


def test_without_a_gpu_work_is_python():
    called = []
    replay = Replay(torch.device("cpu"), {"work"})
    for _ in range(3):
        replay("work", lambda: called.append(True))
    assert len(called) == 3


@pytest.mark.gpu
def test_graphs_of_two_streams_may_run_at_the_same_time():
    """Long products with few results are summed in parts, which wait in a stream's workspace."""
    groups = []
    for number in range(2):
        draw = torch.Generator("cuda").manual_seed(number)
        rows = torch.randn(4, 64, 2**17, generator=draw, device="cuda")
        stream, replay = torch.cuda.Stream(), Replay(rows.device)
        found = torch.zeros(4, 64, 64, device="cuda")
        work = partial(torch.bmm, rows, rows.mT, out=found)
        groups.append((stream, partial(replay, "products", work), found))
    torch.cuda.synchronize()
    alone = []
    for stream, call, found in groups:
        with torch.cuda.stream(stream):
            for _ in range(3):
                call()
        torch.cuda.synchronize()
        alone.append(found.clone())
    for _ in range(30):
        for stream, call, _ in groups:
            with torch.cuda.stream(stream):
                call()
    torch.cuda.synchronize()
    for (_, _, found), wanted in zip(groups, alone):
        assert torch.equal(found, wanted)
