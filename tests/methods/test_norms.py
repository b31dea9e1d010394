"""Ends of layers: plain forms against their definitions, kernels against the plain forms."""

import pytest
import torch
from torch import nn
from torch.func import functional_call, grad, vmap
from torch.nn import functional

from brio_core.methods.disco.experts import ExpertNorm
from brio_core.methods.layers.norms import MaskedNorm, NodeNorm, norm_relu, residual_norm
from brio_core.system.randomness import dropout

KEY = torch.tensor(9)


def draw(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("rate", [0.0, 0.3])
def test_norm_relu_is_norm_then_relu_then_dropout(rate):
    values = draw(2, 7, 4) * 3 + 1
    norm, twin = NodeNorm(4), nn.BatchNorm1d(4)
    wanted = dropout(twin(values.flatten(0, 1)).view_as(values).relu(), rate, KEY, 2)
    torch.testing.assert_close(norm_relu(values, norm, rate, KEY, 2), wanted)
    torch.testing.assert_close(norm.running_var, twin.running_var)
    norm.eval(), twin.eval()
    wanted = twin(values.flatten(0, 1)).view_as(values).relu()
    torch.testing.assert_close(norm_relu(values, norm, rate, None), wanted)


def test_norm_dropout_is_norm_then_dropout():
    values = draw(2, 7, 4) * 3 + 1
    wanted = dropout(nn.BatchNorm1d(4)(values.flatten(0, 1)).view_as(values), 0.3, KEY, 2)
    torch.testing.assert_close(norm_relu(values, NodeNorm(4), 0.3, KEY, 2, relu=False), wanted)


# The widest have several tiles of channels, the last of them not full.
WIDTHS = [6, 64, 70, 300]


@pytest.mark.gpu
@pytest.mark.parametrize("rate", [0.0, 0.3])
@pytest.mark.parametrize("relu", [True, False])
@pytest.mark.parametrize("make", [NodeNorm, lambda width: ExpertNorm(3, width)])
@pytest.mark.parametrize("width", WIDTHS)
def test_norm_kernel_equals_its_twin(width, make, relu, rate):
    if not torch.cuda.is_available():
        pytest.skip("needs a CUDA device")
    lead = (3,) if isinstance(make(width), ExpertNorm) else ()
    values, above = draw(2, *lead, 4, 50, width) * 2 + 5, draw(2, *lead, 4, 50, width, seed=1)
    weights = {"weight": draw(2, *lead, width, seed=2), "bias": draw(2, *lead, width, seed=3)}
    results = []
    for device in ("cpu", "cuda"):
        norm = make(width).to(device)

        class Wrapped(nn.Module):
            def __init__(self, norm):
                super().__init__()
                self.norm = norm

            def forward(self, values, key):
                return norm_relu(values, self.norm, rate, key, 2, relu)

        module = Wrapped(norm)
        buffers = {
            name: value.expand(2, *value.shape).clone() for name, value in module.named_buffers()
        }

        def loss(values, weights, buffers, above, key, module=module):
            state = ({f"norm.{name}": value for name, value in weights.items()}, buffers)
            out = functional_call(module, state, (values, key))
            return (out * above).sum(), out

        moved = {name: value.to(device) for name, value in weights.items()}
        inputs = (values.to(device), moved, buffers, above.to(device))
        keys = torch.tensor([5, 6], device=device)
        (to_values, to_weights), out = vmap(grad(loss, argnums=(0, 1), has_aux=True))(*inputs, keys)
        running = [buffers["norm.running_mean"], buffers["norm.running_var"]]
        results.append([x.cpu() for x in (out, to_values, *to_weights.values(), *running)])
    torch.testing.assert_close(results[1], results[0], rtol=1e-3, atol=1e-3)


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
