"""Mixup of a batch."""

import torch
from torch.func import vmap

from brio_core.methods.layers.mixup import Blend, draw_blend, mix

VALUES = torch.randn(7, 3, 2, generator=torch.Generator().manual_seed(0))


def test_blend_is_a_share_and_a_permutation_that_depend_on_the_key_alone():
    shares = []
    for seed in range(200):
        share, partner = draw_blend(torch.tensor(seed), 7)
        assert sorted(partner.tolist()) == list(range(7))
        shares.append(share)
    again = draw_blend(torch.tensor(199), 7)
    assert torch.equal(again.share, share) and torch.equal(again.partner, partner)
    shares = torch.stack(shares)
    # Beta(1, 1) is uniform: mean 1/2, variance 1/12.
    assert abs(shares.mean() - 0.5) < 0.06 and abs(shares.var() - 1 / 12) < 0.02


def test_mix_is_the_weighted_sum_of_rows_and_partners():
    share, partner = torch.tensor(0.3), torch.tensor([3, 1, 0, 2, 6, 5, 4])
    wanted = 0.3 * VALUES + 0.7 * VALUES[partner]
    torch.testing.assert_close(mix(VALUES, Blend(share, partner)), wanted)
    assert torch.equal(mix(VALUES, Blend(torch.tensor(1.0), partner)), VALUES)


def test_mix_runs_under_vmap():
    keys, values = torch.arange(3), torch.stack([VALUES, 2 * VALUES, 3 * VALUES])
    mixed = vmap(lambda key, rows: mix(rows, draw_blend(key, 7)))(keys, values)
    for one, key, rows in zip(mixed, keys, values):
        torch.testing.assert_close(one, mix(rows, draw_blend(key, 7)))
