"""XG-GNN's kernels of pooled bins and site norms against their plain twins."""

import pytest
import torch
from torch.func import functional_call, grad_and_value, vmap

from brio_core.methods.xg_gnn.linear_convolutions import LinearConvolutions, SiteNorm

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]


def draw(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def on_both(function, *tensors):
    """Value and gradients of two stacked folds, on the CPU and on the GPU."""
    mapped = vmap(grad_and_value(function, argnums=tuple(range(len(tensors)))))
    results = [mapped(*(tensor.to(on) for tensor in tensors)) for on in ("cpu", "cuda")]
    return [[part.cpu() for part in (value, *slopes)] for slopes, value in results]


@pytest.mark.parametrize("length", [2, 24, 35])
@pytest.mark.parametrize("bins", [1, 2, 3])
def test_pooled_bins_equal_their_twin(length, bins):
    layer = LinearConvolutions((4,), (4,), stride=2, bins=bins)

    def loss(responses):
        lengths = torch.full(responses.shape[:2], length, device=responses.device)
        pooled = layer._pool(responses, lengths)
        places = torch.linspace(-1, 2, pooled.numel(), device=pooled.device)
        return (pooled * places.view_as(pooled)).sum()

    plain, fused = on_both(loss, draw(2, 2, 3, 5, 4, length))
    torch.testing.assert_close(fused, plain)


def test_site_norm_kernel_equals_its_twin():
    norm, results = SiteNorm(6), []

    def loss(values, weight, bias, buffers):
        out = functional_call(norm, ({"weight": weight, "bias": bias}, buffers), (values,))
        return (out * torch.linspace(-1, 2, out.numel(), device=out.device).view_as(out)).sum()

    tensors = (draw(2, 3, 4, 9, 6) * 2 + 5, draw(2, 6, seed=1), draw(2, 6, seed=2))
    for on in ("cpu", "cuda"):
        buffers = {
            name: value.expand(2, *value.shape).clone().to(on)
            for name, value in norm.named_buffers()
        }
        slopes, value = vmap(grad_and_value(loss, argnums=(0, 1, 2)))(
            *(tensor.to(on) for tensor in tensors), buffers
        )
        results.append([part.cpu() for part in (value, *slopes, *buffers.values())])
    torch.testing.assert_close(results[1], results[0], rtol=1e-3, atol=1e-3)
