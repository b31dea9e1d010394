"""Additive edge scores against the network they stand for."""

import pytest
import torch
from torch.func import grad, vmap

from brio_core.connectivity.graphs import subject_graph
from brio_core.methods.layers.edge_lists import EdgeLists, list_edges
from brio_core.methods.layers.edge_scores import EPSILON, edge_scores, normed_sides
from brio_core.system.devices import float32_products

DENSITY = 0.2


def plain(sender, receiver, weight, edges):
    """The same with the hidden layer of every pair in memory."""
    if sender.ndim > edges.pairs.ndim + 1:
        sender, receiver = sender.movedim(-2, -4), receiver.movedim(-2, -4)
    hidden = (sender[..., :, None, :] + receiver[..., None, :, :]).relu()
    ones = [1] * (hidden.ndim - weight.ndim)
    scores = (hidden * weight.view(*weight.shape[:-1], *ones, weight.shape[-1])).sum(-1)
    return edges.collect(scores)


def example(folds=(), experts=(), graphs=3, rois=9, units=5):
    """Nodes, weight, what comes back from above, and edge lists."""
    generator = torch.Generator().manual_seed(0)
    draw = lambda *shape: torch.randn(*shape, generator=generator)  # noqa: E731
    fc = draw(*folds, graphs, rois, rois)
    edges = list_edges(subject_graph(fc + fc.mT, DENSITY), DENSITY)
    lead = (*folds, *experts)
    sides = [draw(*folds, graphs, rois, *experts, units) for _ in range(2)]
    above = draw(*lead, graphs, 2, edges.pairs.shape[-1] // 2)
    return sides[0], sides[1], draw(*lead, units), above, edges


def derivatives(function, sender, receiver, weight, above, *lists):
    def loss(sender, receiver, weight):
        return (function(sender, receiver, weight, EdgeLists(*lists)) * above).sum()

    return grad(loss, argnums=(0, 1, 2))(sender, receiver, weight)


@pytest.mark.parametrize("experts", [(), (2,)])
def test_equals_the_network_on_all_edges(experts):
    *inputs, above, edges = example(experts=experts)
    torch.testing.assert_close(edge_scores(*inputs, edges), plain(*inputs, edges))
    found, wanted = (derivatives(f, *inputs, above, *edges) for f in (edge_scores, plain))
    torch.testing.assert_close(found, wanted)


@pytest.mark.parametrize("experts", [(), (2,)])
def test_maps_over_folds(experts):
    *inputs, above, edges = example((4,), experts)
    found, wanted = (
        vmap(lambda *x, f=f: derivatives(f, *x))(*inputs, above, *edges)
        for f in (edge_scores, plain)
    )
    torch.testing.assert_close(found, wanted)


def test_weights_may_be_shared_by_all_folds():
    sender, receiver, _, _, edges = example((4,))
    weight = torch.linspace(-1, 1, sender.shape[-1])
    for shared in (edge_scores, plain):
        call = lambda s, r, *lists: shared(s, r, weight, EdgeLists(*lists))  # noqa: B023, E731
        scores = vmap(call)(sender, receiver, *edges)
        torch.testing.assert_close(scores, plain(sender, receiver, weight.expand(4, -1), edges))


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("experts", "rois", "units"), [((), 9, 5), ((3,), 200, 64), ((), 30, 70), ((3,), 200, 300)]
)
def test_kernel_equals_its_twin(experts, rois, units):
    *inputs, above, edges = example((2,), experts, rois=rois, units=units)
    results = []
    for device in ("cpu", "cuda"):
        moved = [tensor.to(device) for tensor in (*inputs, above, *edges)]
        score = lambda s, r, w, _, *lists: edge_scores(s, r, w, EdgeLists(*lists))  # noqa: E731
        parts = (vmap(score)(*moved), *vmap(lambda *x: derivatives(edge_scores, *x))(*moved))
        results.append([part.cpu() for part in parts])
    torch.testing.assert_close(results[1], results[0], rtol=1e-4, atol=1e-3)


def sides_example(graphs=3, rois=9, units=5):
    """Two folds of both sides, graphs in whose first one node has no edge, and what comes back."""
    draw = torch.Generator().manual_seed(3)
    mask = torch.rand(2, graphs, rois, rois, generator=draw) < 0.3
    mask = mask | mask.mT
    mask[:, 0, 1] = mask[:, 0, :, 1] = False
    sides = torch.randn(2, 2, graphs, rois, units, generator=draw)
    above = torch.randn(2, 2, graphs, rois, units, generator=draw)
    # A mean that is large beside the deviation, and sides that differ in size.
    return sides[0] * 2 + 30, sides[1] / 100, mask.float(), *above


def normed(sender, receiver, mask, first, second):
    """Both sides, and their gradients."""

    def loss(sender, receiver):
        found = normed_sides(sender, receiver, mask)
        return (found[0] * first + found[1] * second).sum(), found

    return grad(loss, argnums=(0, 1), has_aux=True)(sender, receiver)


def test_normed_sides_are_those_of_every_edge():
    sender, receiver, mask, *above = (part[0].double() for part in sides_example())
    sides = [side.requires_grad_() for side in (sender, receiver)]
    found = normed_sides(*sides, mask)
    wanted = []
    for left, right, graph in zip(*sides, mask):
        i, j = graph.nonzero().T
        edges = left[i] + right[j]
        scale = (edges.var(0, correction=0) + EPSILON).rsqrt()
        wanted.append(((left - left[i].mean(0)) * scale, (right - right[j].mean(0)) * scale))
    wanted = [torch.stack(side) for side in zip(*wanted)]
    torch.testing.assert_close(found, tuple(wanted))
    slopes = (torch.autograd.grad(values, sides, above) for values in (found, wanted))
    torch.testing.assert_close(*slopes)


@pytest.mark.gpu
@pytest.mark.parametrize("precision", ["highest", "high"])
@pytest.mark.parametrize(("rois", "units"), [(9, 5), (200, 64), (116, 300), (415, 20)])
def test_normed_sides_kernel_equals_its_twin(rois, units, precision):
    results = []
    for device in ("cpu", "cuda"):
        # The plain twin is exact whatever is asked for.
        with float32_products(device == "cpu" or precision == "highest"):
            found = vmap(normed)(*(part.to(device) for part in sides_example(2, rois, units)))
        results.append([part.cpu() for pair in found for part in pair])
    tolerance = 1e-4 if precision == "highest" else 5e-3
    for plain, fused in zip(*results):
        assert (plain - fused).abs().max() < tolerance * plain.abs().max()
