"""XG-GNN's kernel of site norms against its plain twin."""

import pytest
import torch
from torch.func import functional_call, grad_and_value, vmap

from brio_core.methods.xg_gnn.linear_convolutions import SiteNorm

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]


def draw(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


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
