"""Kernels on lists of edges against their plain torch twins, in value and gradient."""

import pytest
import torch
from torch.func import grad, vmap

from brio_core import kernels
from brio_core.connectivity.graphs import subject_graph
from brio_core.methods.disco.graphs import ExpertGraphs
from brio_core.methods.disco.method import mean_scores
from brio_core.methods.layers.edge_lists import EdgeLists, list_edges
from brio_core.methods.layers.edge_masks import (
    alignment,
    bernoulli_divergence,
    binary_masks,
    drawn_attention,
    drawn_graphs,
    overlaps,
)

pytestmark = pytest.mark.parametrize(("graphs", "rois"), [(1, 2), (3, 37), (2, 200)])
FOLDS, EXPERTS, KEYS = 2, 3, torch.tensor([5, 123456789012])
GENERATOR = torch.Generator()
DEVICES = ("cpu", "cuda")


def draw(*shape):
    return torch.randn(*shape, generator=GENERATOR)


def example(graphs, rois):
    """Lists of two folds' graphs; one graph has no edges."""
    GENERATOR.manual_seed(0)
    fc = draw(FOLDS, graphs, rois, rois)
    mask = subject_graph(fc + fc.mT, 0.2)
    mask[0, 0] = False
    return list_edges(mask, 0.2)


def compare(function, tensors, edges, tolerance=2e-5):
    """Values of a function of (*tensors, edges, key), and gradients for all tensors."""

    def call(*arguments):
        *inputs, key = arguments
        given, lists = inputs[: len(tensors)], inputs[len(tensors) :]
        return function(*given, EdgeLists(*lists), key)

    def total(*arguments):
        value = call(*arguments)
        slope = torch.arange(1.0, value.shape[-1] + 1, device=value.device)
        return (value * (value + 1) * slope).sum()

    found = []
    for device in DEVICES:
        arguments = [part.to(device) for part in (*tensors, *edges, KEYS)]
        with kernels.recorded() as used:
            slopes = vmap(grad(total, argnums=tuple(range(len(tensors)))))(*arguments)
            found.append([part.cpu() for part in (vmap(call)(*arguments), *slopes)])
    assert used
    for plain, fused in zip(*found):
        assert (plain - fused).abs().max() <= tolerance * plain.abs().max()


@pytest.mark.gpu
@pytest.mark.parametrize("diagonal", [0.0, 1.0])
@pytest.mark.parametrize("experts", [(), (EXPERTS,)])
def test_spread(graphs, rois, experts, diagonal):
    edges = example(graphs, rois)
    values = draw(FOLDS, *experts, graphs, edges.n_places)
    compare(lambda values, edges, _: edges.spread(values, diagonal), [values], edges)


@pytest.mark.gpu
def test_drawn_graphs(graphs, rois):
    edges = example(graphs, rois)
    rate = draw(FOLDS, graphs, edges.n_places).sigmoid()
    compare(
        lambda rate, *more: torch.stack(drawn_graphs(rate, more[0], 3, more[1], 2)), [rate], edges
    )


@pytest.mark.gpu
@pytest.mark.parametrize("noise", ["gumbel", "logistic"])
def test_binary_masks_and_what_they_share(graphs, rois, noise):
    edges = example(graphs, rois)
    logits = draw(FOLDS, EXPERTS, graphs, edges.n_places)

    def masks(logits, bias, edges, key):
        return binary_masks(logits, bias, edges, key, 4, noise, 0.5)

    def shared(*arguments):
        both, single = overlaps(masks(*arguments).transpose(0, 1))
        return torch.cat([both, single[..., None]], -1)

    def fixed(logits, bias, edges, _):
        return binary_masks(logits, bias, edges, None, 4, noise, 0.5)

    for function in (masks, shared, fixed):
        compare(function, [logits, draw(FOLDS, EXPERTS)], edges)


@pytest.mark.gpu
def test_attention_and_its_divergence(graphs, rois):
    edges = example(graphs, rois)
    scores = draw(FOLDS, graphs, 2, edges.n_places)

    def divergence(scores, edges, key):
        attention = drawn_attention(scores, key, 1)
        return bernoulli_divergence(attention, 0.7, edges.present[..., None, :])[None]

    compare(lambda scores, _, key: drawn_attention(scores, key, 1), [scores], edges)
    # The only graph of a fold may have no edges, and nothing to average then.
    if graphs > 1:
        compare(divergence, [scores], edges)


@pytest.mark.gpu
@pytest.mark.parametrize("absent", ["skip", "zero"])
def test_alignment(graphs, rois, absent):
    edges = example(graphs, rois)
    # Some values are alike in all graphs: their variance, if any, comes from rounding.
    scores = draw(FOLDS, graphs, 2, edges.n_places)
    scores = torch.where(scores > 2, 0.1, scores)
    # Where values are close, rounding is large beside their distance.
    given = ([scores], edges, 1e-3)
    compare(lambda s, edges, _: alignment(s, edges, edges.mask, absent)[None], *given)


@pytest.mark.gpu
@pytest.mark.parametrize("units", [5, 64, 70])
@pytest.mark.parametrize("beside", [False, True])
@pytest.mark.parametrize("masked", [False, True])
def test_layer_of_expert_gins(graphs, rois, units, beside, masked):
    edges = example(graphs, rois)
    experts = EXPERTS if masked else 1
    shape = (graphs, rois, experts) if beside else (experts, graphs, rois)
    masks = (draw(FOLDS, experts, graphs, edges.n_places) > 0) * edges.present[:, None]

    def layer(hidden, centre, bias, masks, edges, _):
        return ExpertGraphs(edges, masks if masked else None).hear(hidden, centre, bias, beside)

    inputs = [draw(FOLDS, *shape, units), draw(FOLDS, experts), draw(FOLDS, experts, units), masks]
    compare(layer, inputs, edges)


@pytest.mark.gpu
@pytest.mark.parametrize("units", [5, 70])
def test_mean_scores(graphs, rois, units):
    edges = example(graphs, rois)
    sides = [draw(FOLDS, graphs, rois, EXPERTS, units) for _ in range(2)]
    inputs = [*sides, draw(FOLDS, EXPERTS, units)]
    compare(lambda *given: mean_scores(*given[:-1]), inputs, edges, 1e-4)
