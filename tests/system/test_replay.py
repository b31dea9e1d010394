"""Work that a GPU captures and replays."""

from functools import partial

import pytest
import torch

from brio_core.system.replay import Replay


@pytest.mark.gpu
def test_work_that_has_run_is_captured_at_once_for_other_tensors():
    """And as often as it is called it is done, whether as Python or replayed."""
    called, replay = [], Replay(torch.device("cuda"))
    for size, passes in ((67, 2), (33, 3), (67, 4)):
        done = torch.zeros(size, size, device="cuda")
        ones = torch.ones_like(done)

        def work(done=done, ones=ones):
            called.append(True)
            done.add_(ones @ ones)

        for _ in range(4):
            replay("work", work)
        assert (done == 4 * size).all() and len(called) == passes
        replay.forget()


def test_without_a_gpu_work_is_python():
    called = []
    replay = Replay(torch.device("cpu"))
    for _ in range(3):
        replay("work", lambda: called.append(True))
    assert len(called) == 3


@pytest.mark.gpu
def test_graphs_of_two_streams_may_run_at_the_same_time():
    """Long products with few results are summed in parts, which wait in a stream's workspace."""
    groups, streams = [], []
    for number in range(2):
        draw = torch.Generator("cuda").manual_seed(number)
        rows = torch.randn(4, 64, 2**17, generator=draw, device="cuda")
        stream, replay = torch.cuda.Stream(), Replay(rows.device)
        found = torch.zeros(4, 64, 64, device="cuda")

        def work(rows=rows, found=found):
            streams.append(torch.cuda.current_stream())
            torch.bmm(rows, rows.mT, out=found)

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
    assert streams == [stream for stream, _, _ in groups for _ in range(2)]
