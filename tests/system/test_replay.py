"""Work that a GPU captures and replays."""

import pytest
import torch

from brio_core.system.replay import Replay, _capturing_stream


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
def test_groups_of_streams_of_their_own_share_no_workspace():
    """Workspaces belong to streams; graphs that run at the same time must not have the same."""
    first, second = torch.cuda.Stream(), torch.cuda.Stream()
    with torch.cuda.stream(first):
        assert _capturing_stream() == first
    with torch.cuda.stream(second):
        assert _capturing_stream() == second
    # Nothing can be captured on the default stream.
    assert _capturing_stream() == _capturing_stream() != torch.cuda.default_stream()
