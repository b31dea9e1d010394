"""Kernels of AGMGC and XG-GNN against their plain torch twins, and twins against slow readings."""

import pytest
import torch
from torch.func import grad, vmap

from brio_core import kernels
from brio_core.connectivity.graphs import neighbours_per_roi, symmetric_top
from brio_core.methods.agmgc import LearnerGraph, MultiGraphConvolution
from brio_core.methods.xg_gnn.layers import Constructor, LinearConvolutions


def draw(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def on_both(function, tensors, kernel):
    """Value and gradients of a function for three folds, on the CPU and with a kernel."""
    places = tuple(place for place, tensor in enumerate(tensors) if tensor.is_floating_point())

    def total(*arguments):
        result = function(*arguments)
        slope = torch.linspace(1, 2, result.shape[-1], device=result.device)
        return (result.square() * slope).sum()

    found = []
    for device in ("cpu", "cuda"):
        given = [tensor.to(device) for tensor in tensors]
        with kernels.recorded() as used:
            slopes = vmap(grad(total, argnums=places))(*given)
            found.append([vmap(function)(*given).cpu(), *(slope.cpu() for slope in slopes)])
    assert kernel in used
    return zip(*found)


@pytest.mark.parametrize("density", [0.01, 0.3, 1.0])
def test_every_row_chooses_its_strongest_entries_in_order(density):
    strength = (torch.rand(2, 9, 9, generator=torch.Generator().manual_seed(0)) * 4).round() / 4
    wanted = neighbours_per_roi(9, density)
    chosen = torch.zeros(2, 9, 9, dtype=torch.bool)
    for graph, row in torch.cartesian_prod(torch.arange(2), torch.arange(9)).tolist():
        values = strength[graph, row].tolist()
        others = [column for column in range(9) if column != row]
        for column in sorted(others, key=lambda column: (-values[column], column))[:wanted]:
            chosen[graph, row, column] = chosen[graph, column, row] = True
    assert torch.equal(symmetric_top(strength, density), chosen)


@pytest.mark.gpu
@pytest.mark.parametrize("n_rois", [10, 33, 200])
@pytest.mark.parametrize("ties", [False, True])
def test_learnt_graphs_have_the_same_edges_weights_and_gradients(n_rois, ties):
    def function(hidden, query, key):
        learnt = {"query.weight": query, "key.weight": key}
        return torch.func.functional_call(layer, learnt, (hidden,))

    layer, tensors = LearnerGraph(4, 4, 0.2), [draw(3, 2, n_rois, 4), draw(3, 4, 4), draw(3, 4, 4)]
    if ties:
        # Sums of such numbers are exact, so equal strengths are equal everywhere.
        tensors = [(part * 4).round() / 4 for part in tensors]
    for plain, fused in on_both(function, tensors, "learnt_graph"):
        assert (plain - fused).abs().max() < 1e-4 * plain.abs().max()


@pytest.mark.gpu
@pytest.mark.parametrize("width, bins", [(24, 2), (7, 3), (41, 1), (2, 2)])
def test_pooling_is_the_same_and_ties_share_the_gradient(width, bins):
    layer = LinearConvolutions((4, 3), (4, 4), stride=2, bins=bins)
    lengths = torch.randint(bins, width + 1, (3, 2, 5), generator=torch.Generator().manual_seed(1))
    responses = (draw(3, 2, 5, 11, 3, width) * 2).round()
    for plain, fused in on_both(layer._pool, [responses, lengths], "pooling"):
        torch.testing.assert_close(fused, plain, rtol=1e-6, atol=0)
    responses[0, ..., 0] = torch.nan
    plain, fused = next(iter(on_both(layer._pool, [responses, lengths], "pooling")))
    assert plain.isnan().any() and torch.equal(fused.isnan(), plain.isnan())


@pytest.mark.gpu
@pytest.mark.parametrize("n_rois", [5, 60, 200, 400])
@pytest.mark.parametrize("width, heads", [(8, 4), (6, 2), (16, 1)])
def test_self_attention_is_float32_in_value_and_gradient(n_rois, width, heads):
    torch.manual_seed(0)
    layer = Constructor(width, heads)
    tokens = (draw(3, 2, n_rois, width) * 0.5).softmax(-1)
    weights = torch.stack([draw(3, width, width, seed=part) for part in range(3)], 1)

    def function(tokens, weights):
        names = ("query.weight", "sent.weight", "value.weight")
        return torch.func.functional_call(layer, dict(zip(names, weights)), (tokens,))

    for plain, fused in on_both(function, [tokens, weights], "self_attention"):
        assert (plain - fused).abs().max() < 1e-4 * plain.abs().max()


@pytest.mark.gpu
@pytest.mark.parametrize("width", [5, 64])
@pytest.mark.parametrize("before, views", [(1, False), (1, True), (3, True)])
def test_views_of_two_graphs_equal_plain_torch(width, before, views):
    torch.manual_seed(0)
    layer = MultiGraphConvolution(width, width, 2)
    tensors = [
        draw(3, 4, 70, before, width),
        draw(3, 4, 70, 70, seed=1),
        draw(3, 4, 70, 70, seed=2),
    ]
    names = [name for name, _ in layer.named_parameters()]
    tensors += [draw(3, *part.shape, seed=5) for part in layer.parameters()]

    def function(hidden, first, second, *learnt):
        given = (hidden, (first, second), views)
        return torch.func.functional_call(layer, dict(zip(names, learnt)), given)

    for plain, fused in on_both(function, tensors, "graph_views"):
        assert (plain - fused).abs().max() < 1e-4 * plain.abs().max()
