"""The encoder layer against torch's own, and its dropout."""

import pytest
import torch
from torch import nn
from torch.func import grad, vmap

from brio_core.methods.brainnettf.transformers import EncoderLayer, attend
from brio_core.system.randomness import uniform

NODES = torch.randn(3, 12, 12, generator=torch.Generator().manual_seed(0))


def make(width=12, heads=2, rate=0.1):
    torch.manual_seed(1)
    layer = EncoderLayer(width, heads, 20, rate)
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return layer


def library_layer(layer, width, heads):
    """torch's layer with the same weights; its keys have a bias, which is left at zero."""
    reference = nn.TransformerEncoderLayer(
        d_model=width, nhead=heads, dim_feedforward=20, batch_first=True, bias=True
    ).eval()
    attention = layer.attention
    zero = torch.zeros(width)
    with torch.no_grad():
        for target, source in (
            (reference.self_attn.in_proj_weight, attention.enter.weight),
            (
                reference.self_attn.in_proj_bias,
                torch.cat([attention.query_bias, zero, attention.value_bias]),
            ),
            (reference.self_attn.out_proj.weight, attention.leave.weight),
            (reference.self_attn.out_proj.bias, layer.attention_bias),
            (reference.norm1.weight, layer.attention_norm.weight),
            (reference.norm1.bias, layer.attention_norm.bias),
            (reference.linear1.weight, layer.first.weight),
            (reference.linear1.bias, layer.first.bias),
            (reference.linear2.weight, layer.second.weight),
            (reference.linear2.bias, layer.second.bias),
            (reference.norm2.weight, layer.norm.weight),
            (reference.norm2.bias, layer.norm.bias),
        ):
            target.copy_(source)
    return reference


# Heads of 6 and 4 units are filled up with zeros, a head of 16 is not.
@pytest.mark.parametrize(("width", "heads"), [(12, 2), (12, 3), (16, 1)])
def test_layer_equals_the_one_of_torch(width, heads):
    layer = make(width, heads)
    nodes = torch.randn(3, 9, width, generator=torch.Generator().manual_seed(2))
    torch.testing.assert_close(
        layer(nodes), library_layer(layer, width, heads)(nodes), rtol=1e-4, atol=1e-5
    )


def test_permuting_nodes_permutes_the_answer():
    order = torch.randperm(12, generator=torch.Generator().manual_seed(3))
    layer = make()
    torch.testing.assert_close(layer(NODES)[:, order], layer(NODES[:, order]))


def test_dropout_acts_in_four_places_with_streams_of_their_own():
    key, layer = torch.tensor(5), make(rate=0.3)

    def drop(values, stream):
        return values * (uniform(key, tuple(values.shape), stream) >= 0.3) / 0.7

    attention = layer.attention
    entered = NODES @ attention.enter.weight.T
    query, sent, value = (part.unflatten(-1, (2, 6)) for part in entered.chunk(3, -1))
    query = query + attention.query_bias.view(2, 6)
    value = value + attention.value_bias.view(2, 6)
    scores = torch.einsum("bihd,bjhd->bhij", query, sent) / 6**0.5
    weights = drop(scores.softmax(-1), 7)
    heard = torch.einsum("bhij,bjhd->bihd", weights, value).flatten(-2)
    heard = heard @ attention.leave.weight.T + layer.attention_bias
    nodes = layer.attention_norm(NODES + drop(heard, 8))
    inner = drop(layer.first(nodes).relu(), 9)
    wanted = layer.norm(nodes + drop(layer.second(inner), 10))
    torch.testing.assert_close(layer(NODES, key, 7), wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.gpu
@pytest.mark.parametrize(("n_rois", "heads", "units"), [(9, 2, 8), (60, 3, 16), (200, 4, 56)])
def test_attention_kernel_equals_its_twin(n_rois, heads, units):
    if not torch.cuda.is_available():
        pytest.skip("needs a CUDA device")
    torch.manual_seed(0)
    nodes, above = torch.randn(2, 3, n_rois, 12), torch.randn(2, 3, n_rois, heads * units)
    enter = 0.3 * torch.randn(2, 3, heads, units, 12)
    # As a layer has it: the spare places of queries and values come from ones alone.
    enter[:, ::2, :, units - 2] = 0

    def loss(nodes, enter, above, key):
        heard = attend(nodes, enter, units - 2, 0.2, key, 3)
        return (heard * above).sum(), heard

    results = []
    for device in ("cpu", "cuda"):
        inputs = [part.to(device) for part in (nodes, enter, above, torch.tensor([5, 6]))]
        slopes, heard = vmap(grad(loss, argnums=(0, 1), has_aux=True))(*inputs)
        # A fill's own gradient is never asked for.
        slopes[1][:, ::2, :, units - 2] = 0
        results.append([part.cpu() for part in (*slopes, heard)])
    for plain, fused in zip(*results):
        assert (plain - fused).abs().max() < 1e-4 * plain.abs().max()
