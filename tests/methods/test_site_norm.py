"""BatchNorm that takes every site for a batch of its own."""

import torch
from torch import nn

from brio_core.methods.layers.norms import SiteNorm


def test_training_equals_one_site_after_another():
    values = torch.randn(4, 3, 5, 6, generator=torch.Generator().manual_seed(0)).double() * 3 + 1
    norm, reference = SiteNorm(6).double(), nn.BatchNorm1d(6).double()
    for module in (norm, reference):
        with torch.no_grad():
            module.weight.copy_(torch.linspace(0.5, 2, 6))
            module.bias.copy_(torch.linspace(-1, 1, 6))
    wanted = torch.stack([reference(site.flatten(0, 1)).view(3, 5, 6) for site in values])
    torch.testing.assert_close(norm(values), wanted)
    torch.testing.assert_close(dict(norm.named_buffers()), dict(reference.named_buffers()))
    norm.eval(), reference.eval()
    torch.testing.assert_close(norm(values), reference(values.flatten(0, 2)).view_as(values))
