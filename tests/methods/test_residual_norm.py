"""The end of a layer with messages; its kernel is tested with the other kernels."""

import torch
from torch import nn
from torch.nn import functional

from brio_core.methods.layers.residual_norm import residual_norm


def test_residual_norm_is_its_formula():
    torch.manual_seed(0)
    hidden, own, received = torch.randn(3, 4, 5, 8).unbind()
    norm = nn.LayerNorm(8)
    nn.init.normal_(norm.weight)
    value = hidden + functional.gelu(own + received)
    standard = (value - value.mean(-1, keepdim=True)) / (
        value.var(-1, correction=0, keepdim=True) + norm.eps
    ).sqrt()
    torch.testing.assert_close(
        residual_norm(hidden, own, received, norm), standard * norm.weight + norm.bias
    )
