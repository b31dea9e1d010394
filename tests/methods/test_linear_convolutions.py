"""A stack of convolutions and BatchNorms as one kernel, against the stack itself."""

import pytest
import torch
from torch import nn
from torch.nn import functional

from brio_core.methods.layers.windows import standardised
from brio_core.methods.xg_gnn.linear_convolutions import LinearConvolutions, window_moments

SITES, SUBJECTS, ROIS, FRAMES = 3, 4, 5, 61


class Stack(nn.Module):
    """The same layers, one after another."""

    def __init__(self, layer):
        super().__init__()
        self.convolutions = layer.convolutions
        self.norms = nn.ModuleList()
        for number, norm in enumerate(layer.norms):
            own = nn.BatchNorm1d(len(norm.weight)).double()
            own.weight = norm.weight
            if number == len(layer.norms) - 1:
                own.bias = layer.bias
            self.norms.append(own)
        self.stride, self.bins = layer.stride, layer.bins

    def forward(self, series):
        """Pooled responses (N, C, bins) of series (N, T)."""
        hidden = series[:, None]
        for number, (convolution, norm) in enumerate(zip(self.convolutions, self.norms)):
            stride = self.stride if number == 0 else 1
            hidden = norm(functional.conv1d(hidden, convolution.weight, stride=stride))
        return functional.adaptive_max_pool1d(hidden, self.bins)


def make(frames=FRAMES):
    torch.manual_seed(0)
    layer = LinearConvolutions((6, 5, 4), (4, 8, 8), stride=2, bins=2).double()
    with torch.no_grad():
        for norm in layer.norms:
            norm.weight.uniform_(0.5, 2)
        layer.bias.normal_()
    series = torch.randn(SITES, SUBJECTS, ROIS, frames).double().cumsum(-1)
    return layer, Stack(layer), standardised(series, -2)


@pytest.mark.parametrize("frames", [34, 60, FRAMES])
def test_training_equals_one_site_after_another(frames):
    layer, stack, series = make(frames)
    found = layer(series, torch.full((SITES, SUBJECTS), frames))
    wanted = torch.stack(
        [stack(site.flatten(0, 1)).unflatten(0, site.shape[:2]) for site in series]
    )
    torch.testing.assert_close(found, wanted)
    # The stack's own biases are missing here: the next norm takes them away.
    learnt = dict(layer.named_parameters())
    weights = torch.randn(found.shape, generator=torch.Generator().manual_seed(1)).double()
    one, other = (
        torch.autograd.grad((out * weights).sum(), list(learnt.values())) for out in (found, wanted)
    )
    torch.testing.assert_close(one, other)
    for norm, own in zip(layer.norms, stack.norms):
        torch.testing.assert_close(norm.running_var, own.running_var)
        torch.testing.assert_close(own.running_mean, torch.zeros_like(own.running_mean))


def test_evaluation_equals_each_scan_alone_at_its_own_length():
    layer, stack, series = make()
    layer(series, torch.full((SITES, SUBJECTS), FRAMES))
    stack(series.flatten(0, 2))
    for norm, own in zip(layer.norms, stack.norms):
        own.running_var.copy_(norm.running_var)
        own.running_mean.zero_()
    layer.eval(), stack.eval()
    frames = torch.tensor([34, 37, 50, FRAMES])
    short = series[:1] * (torch.arange(FRAMES) < frames[:, None])[:, None]
    found = layer(short, frames[None])
    for row, count in enumerate(frames.tolist()):
        torch.testing.assert_close(found[0, row], stack(short[0, row, :, :count]))


def test_window_moments_average_over_places():
    series = torch.randn(7, 20, generator=torch.Generator().manual_seed(0)).double()
    windows = series.unfold(-1, 6, 2).reshape(-1, 6)
    wanted = windows.T @ windows / len(windows)
    torch.testing.assert_close(window_moments(series.T @ series / 7, 6, 2), wanted)
