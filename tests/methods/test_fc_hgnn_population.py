"""FC-HGNN's population: attention between subjects."""

import torch
from torch import nn
from torch_geometric.nn import TransformerConv

from brio_core.methods.fc_hgnn.layers import TransformerConvolution

N, BEFORE, AFTER = 12, 7, 4


def population(seed=0):
    generator = torch.Generator().manual_seed(seed)
    hidden = torch.randn(N, BEFORE, generator=generator)
    heard = torch.rand(N, N, generator=generator) > 0.6
    heard.fill_diagonal_(False)
    heard[3] = False
    return hidden, heard


def layer_and_reference():
    torch.manual_seed(0)
    dense, reference = TransformerConvolution(BEFORE, AFTER), TransformerConv(BEFORE, AFTER)
    for name in ("query", "key", "value", "skip"):
        line = getattr(reference, f"lin_{name}")
        line.weight.data.copy_(getattr(dense, name).weight)
        nn.init.zeros_(line.bias)
    reference.lin_query.bias.data.copy_(dense.query.bias)
    return dense, reference


def tell(dense, hidden):
    return torch.stack([dense.key(hidden), dense.value(hidden)])


def test_population_equals_pytorch_geometric():
    hidden, heard = population()
    dense, reference = layer_and_reference()
    receiver, sender = heard.nonzero(as_tuple=True)
    expected = reference(hidden, torch.stack([sender, receiver]))
    torch.testing.assert_close(
        dense(hidden, tell(dense, hidden), heard), expected, rtol=0, atol=1e-5
    )


def test_a_bias_of_keys_changes_nothing():
    """Why there is none."""
    hidden, heard = population()
    _, reference = layer_and_reference()
    receiver, sender = heard.nonzero(as_tuple=True)
    edges = torch.stack([sender, receiver])
    without = reference(hidden, edges)
    nn.init.normal_(reference.lin_key.bias)
    torch.testing.assert_close(reference(hidden, edges), without, rtol=0, atol=1e-5)


def test_who_hears_nobody_keeps_the_skip_part():
    hidden, heard = population()
    dense, _ = layer_and_reference()
    out = dense(hidden, tell(dense, hidden), heard)
    assert torch.equal(out[3], dense.skip(hidden)[3])


def test_a_receiver_may_be_outside_the_population():
    hidden, heard = population()
    dense, _ = layer_and_reference()
    told = tell(dense, hidden)
    torch.testing.assert_close(
        dense(hidden[:2], told, heard[:2]), dense(hidden, told, heard)[:2], rtol=0, atol=1e-6
    )
