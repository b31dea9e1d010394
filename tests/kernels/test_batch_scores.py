"""DisC's network on edges: its kernels against torch's own layers, which test_disc reads slowly."""

from typing import NamedTuple

import pytest
import torch
from torch.func import functional_call, grad, vmap

from brio_core import kernels
from brio_core.connectivity.graphs import subject_graph
from brio_core.methods.disc import EdgeNetwork
from brio_core.methods.layers.edge_lists import EdgeLists, list_edges
from brio_core.system.devices import float32_products

GRAPHS, DENSITY = 5, 0.3


class Case(NamedTuple):
    """Nodes of a graph, their width, how the network is used, and the size of gradients."""

    rois: int = 20
    width: int = 64
    training: bool = True
    size: float = 1.0
    folds: int = 3


def draw(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def results(case, device, spoilt=False, first=0):
    """Scores, gradients and running statistics of folds; those from ``first`` on alone."""
    fc = draw(case.folds, GRAPHS, case.rois, case.rois)
    masks = subject_graph(fc + fc.mT, DENSITY)
    # A fold has graphs with fewer edges, and one without any.
    masks[-1, 1, : case.rois // 2] = masks[-1, 1, :, : case.rois // 2] = 0
    masks[-1, 2] = 0
    lists = [torch.stack(part) for part in zip(*(list_edges(one, DENSITY) for one in masks))]
    network = EdgeNetwork(2 * case.width).train(case.training).to(device)
    weights = {
        name: draw(case.folds, *value.shape, seed=seed) * (0.3 if "linears" in name else 1)
        for seed, (name, value) in enumerate(network.named_parameters(), 1)
    }
    if spoilt:
        weights["norms.1.weight"][:] = torch.nan
    buffers = {
        name: value.cpu().expand(case.folds, *value.shape).clone()
        for name, value in network.named_buffers()
    }
    for name in buffers:
        buffers[name] += 1 if "running" in name else 0
    nodes = draw(case.folds, GRAPHS, case.rois, case.width, seed=50)
    above = draw(case.folds, GRAPHS, lists[0].shape[-1], seed=51) * case.size

    def loss(nodes, weights, buffers, lists, above):
        edges = EdgeLists(*lists)
        scores = functional_call(network, (weights, buffers), (nodes, edges, edges.mask))
        # Empty places are nobody's.
        scores = scores.flatten(-2) * (edges.pairs > 0)
        return (scores * above).sum(), scores

    def moved(part):
        return part[first:].to(device)

    weights, buffers = ({k: moved(v) for k, v in part.items()} for part in (weights, buffers))
    given = (moved(nodes), weights, buffers, [moved(part) for part in lists], moved(above))
    (to_nodes, to_weights), scores = vmap(grad(loss, argnums=(0, 1), has_aux=True))(*given)
    found = {"scores": scores, "nodes": to_nodes, **to_weights, **buffers}
    return {name: value.detach().double().cpu() for name, value in found.items()}


@pytest.mark.gpu
@pytest.mark.parametrize(("precision", "tolerance"), [("highest", 3e-5), ("high", 1e-1)])
@pytest.mark.parametrize(
    "case",
    [
        *(Case(rois, width) for rois, width in [(14, 8), (17, 22), (20, 64), (16, 146)]),
        Case(training=False),
        *(Case(size=size) for size in (1e-9, 1e6)),
    ],
)
def test_kernels_equal_their_twins(case, precision, tolerance):
    """Also where gradients are too small, or too large, for float16.

    Where rounding moves a unit across zero its gradient is another. Plain products of factors that
    are rounded to TF32 moved the gradient of a bias by 5 per cent.
    """
    with float32_products(precision == "highest"), kernels.recorded() as used:
        fused = results(case, "cuda")
    assert "batch_scores" in used
    for name, value in results(case, "cpu").items():
        assert (fused[name] - value).norm() <= tolerance * value.norm(), name


@pytest.mark.gpu
def test_kernels_give_a_fold_the_same_alone():
    together, alone = results(Case(), "cuda"), results(Case(), "cuda", first=2)
    for name, value in alone.items():
        torch.testing.assert_close(together[name][2:], value, rtol=1e-4, atol=1e-4)


@pytest.mark.gpu
def test_without_a_gradient_scores_are_the_same():
    draw_nodes, fc = draw(GRAPHS, 20, 64).cuda(), draw(GRAPHS, 20, 20)
    edges = EdgeLists(*(p.cuda() for p in list_edges(subject_graph(fc + fc.mT, DENSITY), DENSITY)))
    network = EdgeNetwork(128).cuda()
    scores = network(draw_nodes, edges, edges.mask)
    with torch.no_grad():
        torch.testing.assert_close(network(draw_nodes, edges, edges.mask), scores)


@pytest.mark.gpu
@pytest.mark.parametrize("training", [True, False])
def test_what_is_no_number_stays_none(training):
    scores = results(Case(training=training), "cuda", spoilt=True)["scores"]
    assert scores[0].isnan().any(-1).all()
