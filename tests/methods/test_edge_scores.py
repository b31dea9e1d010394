"""Additive edge scores against the network they stand for."""

import pytest
import torch
from torch import nn
from torch.func import functional_call, grad, stack_module_state, vmap

from brio_core.connectivity.graphs import subject_graph
from brio_core.methods.layers.edge_lists import EdgeLists, list_edges
from brio_core.methods.layers.edge_scores import (
    NORMS,
    BatchEdgeNorm,
    EdgeScorer,
    InstanceEdgeNorm,
    edge_scores,
)

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
    if not torch.cuda.is_available():
        pytest.skip("needs a CUDA device")
    *inputs, above, edges = example((2,), experts, rois=rois, units=units)
    results = []
    for device in ("cpu", "cuda"):
        moved = [tensor.to(device) for tensor in (*inputs, above, *edges)]
        score = lambda s, r, w, _, *lists: edge_scores(s, r, w, EdgeLists(*lists))  # noqa: E731
        parts = (vmap(score)(*moved), *vmap(lambda *x: derivatives(edge_scores, *x))(*moved))
        results.append([part.cpu() for part in parts])
    torch.testing.assert_close(results[1], results[0], rtol=1e-4, atol=1e-3)


def scored_example(graphs=3, rois=8, width=4):
    generator = torch.Generator().manual_seed(1)
    fc = torch.randn(graphs, rois, rois, generator=generator)
    edges = list_edges(subject_graph(fc + fc.mT, 0.3), 0.3)
    return edges, torch.randn(graphs, rois, width, generator=generator)


def literal(scorer, hidden, edges):
    """One row [h_i ; h_j] per directed edge, graph by graph; norms by torch's own layers."""
    n_rois = hidden.shape[1]
    rows, owner = [], []
    for graph, listed in enumerate(edges.pairs):
        real = listed[listed > 0]
        rows.append(torch.cat([hidden[graph, real // n_rois], hidden[graph, real % n_rois]], -1))
        owner += [graph] * len(real)
    owner = torch.tensor(owner)
    inner, norm = scorer.first(torch.cat(rows)), None
    if isinstance(scorer.norm, BatchEdgeNorm):
        norm = nn.BatchNorm1d(inner.shape[1])
        norm.load_state_dict(scorer.norm.state_dict(), strict=False)
        inner = norm.train(scorer.training)(inner)
    elif isinstance(scorer.norm, InstanceEdgeNorm):
        parts = [inner[owner == graph].T for graph in range(len(hidden))]
        inner = torch.cat([nn.functional.instance_norm(part[None])[0].T for part in parts])
    return scorer.last(inner.relu()).squeeze(-1), norm


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("norm", NORMS)
def test_equals_the_network_on_every_edge(norm, training):
    edges, hidden = scored_example()
    torch.manual_seed(0)
    scorer = EdgeScorer(4, 6, norm).train(training)
    wanted, twin = literal(scorer, hidden, edges)
    found = scorer(hidden, edges, edges.mask)
    real = edges.pairs.view_as(found.flatten(-2)) > 0
    torch.testing.assert_close(found.flatten(-2)[real], wanted, rtol=1e-4, atol=1e-5)
    if twin is not None and training:
        torch.testing.assert_close(scorer.norm.running_mean, twin.running_mean)
        torch.testing.assert_close(scorer.norm.running_var, twin.running_var)


def test_instance_norm_does_not_mix_graphs():
    edges, hidden = scored_example()
    scorer = EdgeScorer(4, 6, "instance")
    alone = EdgeLists(*(part[:1] for part in edges))
    torch.testing.assert_close(
        scorer(hidden, edges, edges.mask)[:1], scorer(hidden[:1], alone, alone.mask)
    )


def test_equal_nodes_give_equal_finite_scores():
    edges, hidden = scored_example()
    scorer = EdgeScorer(4, 6, "instance")
    same = torch.ones_like(hidden)
    scores = scorer(same, edges, edges.mask).flatten(-2)[edges.pairs > 0]
    # The epsilon of the norm magnifies rounding by its inverse root.
    torch.testing.assert_close(scores, scorer.last.bias.expand_as(scores), atol=1e-4, rtol=0)
    total = lambda x: scorer(x, edges, edges.mask).square().sum()  # noqa: E731
    assert torch.isfinite(grad(total)(same)).all()


def test_dropped_units_are_silent():
    edges, hidden = scored_example()
    scorer = EdgeScorer(4, 6, "none")
    keep = torch.zeros(3, 6)
    scores = scorer(hidden, edges, edges.mask, keep).flatten(-2)[edges.pairs > 0]
    torch.testing.assert_close(scores, scorer.last.bias.expand_as(scores))


def test_maps_over_folds_and_remembers_statistics():
    edges, hidden = scored_example(graphs=6)
    torch.manual_seed(0)
    scorers = [EdgeScorer(4, 6, "batch") for _ in range(2)]
    split = [part.unflatten(0, (2, 3)) for part in (hidden, *edges)]

    def loss(parameters, buffers, hidden, *lists):
        fold = EdgeLists(*lists)
        inputs = (hidden, fold, fold.mask)
        return functional_call(scorers[0], (parameters, buffers), inputs).square().sum()

    parameters, buffers = stack_module_state(scorers)
    parameters = {name: value.detach() for name, value in parameters.items()}
    together = vmap(grad(loss))(parameters, buffers, *split)
    for fold, scorer in enumerate(scorers):
        own = dict(scorer.named_parameters())
        alone = grad(loss)(own, dict(scorer.named_buffers()), *(part[fold] for part in split))
        for name, value in alone.items():
            torch.testing.assert_close(together[name][fold], value, rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(buffers["norm.running_var"][fold], scorer.norm.running_var)


@pytest.mark.gpu
@pytest.mark.parametrize(("rois", "units"), [(8, 6), (70, 40)])
@pytest.mark.parametrize("dropped", [False, True])
def test_norm_kernel_equals_its_twin(dropped, rois, units):
    if not torch.cuda.is_available():
        pytest.skip("needs a CUDA device")
    edges, _ = scored_example(6, rois)
    generator = torch.Generator().manual_seed(2)
    draw = lambda *shape: torch.randn(*shape, generator=generator)  # noqa: E731
    sides = [draw(2, 3, rois, units) + 3 for _ in range(2)]
    above = [draw(2, 3, rois, units) for _ in range(2)]
    keep = 2.0 * (draw(2, 3, units) > 0)
    norm = InstanceEdgeNorm(units)

    def loss(sender, receiver, sent, received, mask, keep):
        found = norm(sender, receiver, mask, keep if dropped else None)
        return (found[0] * sent).sum() + (found[1] * received).sum(), found

    results = []
    for device in ("cpu", "cuda"):
        inputs = [*sides, *above, edges.mask.unflatten(0, (2, 3)), keep]
        inputs = [part.to(device) for part in inputs]
        slopes, found = vmap(grad(loss, argnums=(0, 1), has_aux=True))(*inputs)
        results.append([part.cpu() for part in (*slopes, *found)])
    torch.testing.assert_close(results[1], results[0], rtol=1e-3, atol=1e-4)
