"""NT-Xent where it is known in closed form."""

import math

import pytest
import torch
from torch.nn import functional

from brio_core.methods.agmgc.contrastive import nt_xent


@pytest.mark.parametrize("temperature", [0.1, 0.5, 2.0])
@pytest.mark.parametrize("count", [1, 2, 6])
def test_identical_views_are_found_by_guessing(count, temperature):
    views = functional.normalize(torch.ones(count, 8), dim=-1)
    found = nt_xent(views, views, temperature)
    torch.testing.assert_close(found, torch.tensor(math.log(2 * count - 1)), atol=1e-5, rtol=0)


@pytest.mark.parametrize("temperature", [0.1, 0.5, 2.0])
def test_paired_views_among_orthogonal_ones(temperature):
    views = torch.eye(8)[:6]
    wanted = math.log(1 + (2 * 6 - 2) * math.exp(-1 / temperature))
    found = nt_xent(views, views, temperature)
    torch.testing.assert_close(found, torch.tensor(wanted), atol=1e-5, rtol=1e-5)
    assert nt_xent(views, views[[1, 0, 3, 2, 5, 4]], temperature) > found + 0.1


def test_loss_equals_a_loop_over_both_directions():
    generator = torch.Generator().manual_seed(0)
    one, other = functional.normalize(torch.randn(2, 5, 3, generator=generator), dim=-1)
    views = torch.cat([one, other])
    losses = []
    for i in range(10):
        near = torch.stack([views[i] @ views[j] / 0.5 for j in range(10) if j != i])
        partner = views[i] @ views[(i + 5) % 10] / 0.5
        losses.append(near.logsumexp(0) - partner)
    torch.testing.assert_close(nt_xent(one, other, 0.5), torch.stack(losses).mean())
    torch.testing.assert_close(nt_xent(one, other, 0.5), nt_xent(other, one, 0.5))
