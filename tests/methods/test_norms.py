"""BatchNorm that leaves out rows."""

import torch
from torch import nn

from brio_core.methods.layers.norms import MaskedNorm


def test_absent_rows_count_nowhere():
    generator = torch.Generator().manual_seed(0)
    rows = torch.randn(20, 3, generator=generator)
    absent = 100 * torch.randn(5, 3, generator=generator)
    masked, plain = MaskedNorm(3), nn.BatchNorm1d(3)
    present = torch.arange(25) < 20
    ours = masked(torch.cat([rows, absent]), present)[:20]
    torch.testing.assert_close(ours, plain(rows))
    for name, value in plain.state_dict().items():
        torch.testing.assert_close(masked.state_dict()[name], value)
    masked.eval(), plain.eval()
    torch.testing.assert_close(masked(rows, present), plain(rows))
