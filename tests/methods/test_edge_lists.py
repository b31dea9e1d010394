"""Lists of edges against the dense matrices they come from."""

import pytest
import torch
from torch.func import grad, vmap

from brio_core.connectivity.graphs import subject_graph
from brio_core.methods.layers.edge_lists import EdgeLists, list_edges


def graphs(count=4, rois=9, density=0.2):
    fc = torch.randn(count, rois, rois, generator=torch.Generator().manual_seed(0))
    mask = subject_graph(fc + fc.mT, density)
    return mask, list_edges(mask, density)


@pytest.mark.parametrize(("rois", "density"), [(9, 0.2), (24, 0.2), (6, 1.0), (2, 0.2)])
def test_the_lists_hold_every_edge_once(rois, density):
    mask, edges = graphs(rois=rois, density=density)
    assert torch.equal(edges.mask, mask.float())
    assert torch.equal(2 * edges.present.sum(-1), mask.sum((-1, -2)).float())
    for listed, graph in zip(edges.pairs, mask):
        real = listed[listed > 0]
        assert len(real.unique()) == len(real)
        assert graph.flatten()[real].all()


def test_the_order_goes_through_every_node_s_own_edges():
    mask, edges = graphs()
    for graph, listed, order, starts in zip(mask, edges.pairs, edges.order, edges.starts):
        for node in range(9):
            found = listed[order[starts[node] : starts[node + 1]]]
            neighbours = graph[node].nonzero().squeeze(-1)
            assert torch.equal(found, node * 9 + neighbours)


def test_collect_reads_both_directions():
    _, edges = graphs()
    dense = torch.arange(81.0).view(9, 9).expand(4, 9, 9)
    there, back = edges.collect(dense).unbind(-2)
    present = edges.present.bool()
    rows, columns = there[present] // 9, there[present] % 9
    assert (rows < columns).all()
    assert torch.equal(columns * 9 + rows, back[present])
    assert (there[~present] == 0).all() and (back[~present] == 0).all()


def test_spread_undoes_collect_on_edges():
    mask, edges = graphs()
    dense = torch.randn(2, 4, 9, 9)
    symmetric = (dense + dense.mT) / 2
    values = edges.collect(dense).mean(-2)
    torch.testing.assert_close(edges.spread(values), symmetric * mask)


def test_derivatives_equal_those_of_indexing():
    mask, edges = graphs()
    dense, above = torch.randn(2, 3, 4, 9, 9)

    def through_lists(dense):
        return (edges.spread(edges.collect(dense).sigmoid().mean(-2)) * above).sum()

    def through_masks(dense):
        both = dense.sigmoid()
        return ((both + both.mT) / 2 * mask * above).sum()

    torch.testing.assert_close(grad(through_lists)(dense), grad(through_masks)(dense))


def test_maps_over_folds():
    _, edges = graphs(count=6)
    lists = [part.unflatten(0, (2, 3)) for part in edges]
    dense = torch.randn(2, 5, 3, 9, 9)

    def total(dense, *lists):
        fold = EdgeLists(*lists)
        return fold.spread(fold.collect(dense).mean(-2)).square().sum()

    together = vmap(grad(total))(dense, *lists)
    for fold in range(2):
        alone = grad(total)(dense[fold], *(part[fold] for part in lists))
        torch.testing.assert_close(together[fold], alone)
