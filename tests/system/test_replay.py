"""Work that a GPU captures and replays."""

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
