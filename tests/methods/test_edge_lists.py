"""Lists of edges, and masks on them."""

import math

import pytest
import torch
from torch.func import grad, vmap

from brio_core.connectivity.graphs import subject_graph
from brio_core.methods.layers.edge_lists import EdgeLists, list_edges
from brio_core.methods.layers.edge_masks import (
    GUMBEL_MEDIAN,
    bernoulli_divergence,
    bernoulli_masks,
    binary_masks,
    concrete,
    correlations,
    diversity_hinge,
    drawn_graphs,
    gumbel_noise,
    keep_rate,
    logistic_noise,
    straight_through,
)


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


KEY = torch.tensor(5)


def test_noise_has_the_right_distribution():
    logistic = logistic_noise(KEY, (200_000,), 0)
    gumbel = gumbel_noise(KEY, (200_000,), 0)
    assert torch.isfinite(logistic).all() and torch.isfinite(gumbel).all()
    assert abs(logistic.mean()) < 0.02 and abs(logistic.var() - math.pi**2 / 3) < 0.05
    assert abs(gumbel.mean() - 0.5772) < 0.02 and abs(gumbel.var() - math.pi**2 / 6) < 0.05


@pytest.mark.parametrize("logit", [-1.0, GUMBEL_MEDIAN, 0.0, 0.7])
def test_chance_to_be_kept(logit):
    """One Gumbel variable keeps with 1 - exp(-exp(l)), a logistic one with sigmoid(l)."""
    one = straight_through(concrete(torch.tensor(logit), gumbel_noise(KEY, (200_000,), 1), 0.1))
    two = straight_through(concrete(torch.tensor(logit), logistic_noise(KEY, (200_000,), 1), 0.1))
    assert abs(one.mean() - (1 - math.exp(-math.exp(logit)))) < 0.005
    assert abs(two.mean() - 1 / (1 + math.exp(-logit))) < 0.005


def test_straight_through_is_hard_with_a_soft_gradient():
    soft = torch.tensor([0.1, 0.6, 0.5])
    assert torch.equal(straight_through(soft), torch.tensor([0.0, 1.0, 0.0]))
    assert torch.equal(grad(lambda x: straight_through(x).sum())(soft), torch.ones(3))


def test_bernoulli_masks_keep_at_their_rate_with_its_gradient():
    rate = torch.tensor([0.0, 0.2, 0.7, 1.0])
    masks = bernoulli_masks(rate, 20_000, KEY, 0)
    assert masks.shape == (20_000, 4) and ((masks == 0) | (masks == 1)).all()
    torch.testing.assert_close(masks.mean(0), rate, atol=0.02, rtol=0)
    assert torch.equal(masks[:, 3], torch.ones(20_000)) and not masks[:, 0].any()
    slope = grad(lambda x: bernoulli_masks(x, 5, KEY, 0).sum())(rate)
    assert torch.equal(slope, torch.full((4,), 5.0))


def test_drawn_graphs_are_the_masks_with_loops():
    _, _, edges = mask_example()
    rate = torch.rand(4, edges.n_places, generator=torch.Generator().manual_seed(0))
    graphs = drawn_graphs(rate, edges, 3, KEY, 1)
    masks = edges.spread(bernoulli_masks(rate, 3, KEY, 1))
    assert torch.equal(torch.stack(graphs), masks + torch.eye(9))
    assert 0 < masks.mean() < edges.mask.mean()


def test_divergence_counts_present_edges_only():
    attention = torch.full((2, 2, 4), 0.7)
    present = torch.tensor([[1.0, 1.0, 1.0, 0.0], [1.0, 0.0, 0.0, 0.0]])[:, None]
    wild = torch.where(present > 0, attention, 0.01)
    assert bernoulli_divergence(wild, 0.7, present).abs() < 1e-6
    assert bernoulli_divergence(wild, 0.5, present) > 0.05


def test_keep_rate_is_a_share_of_the_present_edges():
    masks = torch.tensor([[1.0, 0.0, 1.0, 0.0], [0.0, 0.0, 1.0, 0.0]])
    present = torch.tensor([1.0, 1.0, 1.0, 0.0])
    torch.testing.assert_close(keep_rate(masks, present), torch.tensor([2 / 3, 1 / 3]))


def test_correlations_equal_numpy_style_coefficients():
    masks = (torch.rand(3, 4, 50, generator=torch.Generator().manual_seed(0)) > 0.5).float()
    present = torch.ones(3, 50)
    present[1, 30:] = 0
    masks = masks * present[:, None]
    found = correlations(masks, present)
    torch.testing.assert_close(found[0], torch.corrcoef(masks[0]), atol=1e-5, rtol=0)
    torch.testing.assert_close(found[1], torch.corrcoef(masks[1, :, :30]), atol=1e-5, rtol=0)


def test_constant_masks_cost_nothing_and_give_finite_gradients():
    masks, present = torch.ones(2, 3, 10), torch.ones(2, 10)
    masks[0, 0, :5] = 0
    assert diversity_hinge(masks, present, 0.1) == 0
    assert torch.isfinite(grad(lambda x: diversity_hinge(x, present, 0.0))(masks)).all()
    assert diversity_hinge(masks[:, :1], present, 0.1) == 0


def mask_example():
    """Mean scores of three experts on edges, their biases, and the lists."""
    draw = lambda *shape: torch.randn(*shape, generator=torch.Generator().manual_seed(3))  # noqa: E731
    fc = draw(4, 9, 9)
    edges = list_edges(subject_graph(fc + fc.mT, 0.2), 0.2)
    return draw(3, 4, edges.n_places), draw(3), edges


@pytest.mark.parametrize(("noise", "threshold"), [("gumbel", GUMBEL_MEDIAN), ("logistic", 0.0)])
def test_masks_without_a_key_are_those_drawn_more_often_than_not(noise, threshold):
    scores, bias, edges = mask_example()
    fixed = binary_masks(scores, bias, edges, None, 0, noise, 0.1)
    logits = scores + bias[:, None, None]
    assert torch.equal(fixed, (logits > threshold) * edges.present)
    keys = torch.arange(2000)
    drawn = vmap(lambda key: binary_masks(scores, bias, edges, key, 0, noise, 0.1))(keys).mean(0)
    clear = ((logits - threshold).abs() > 0.2) & (edges.present > 0)
    assert torch.equal(drawn[clear] > 0.5, fixed[clear] > 0.5)


def test_masks_have_the_gradient_of_the_relaxed_sample():
    scores, bias, edges = mask_example()
    above = torch.randn(3, 4, edges.n_places)

    def soft(scores, bias):
        logits = scores + bias[:, None, None]
        noise = gumbel_noise(KEY, tuple(logits.shape), 5)
        return (concrete(logits, noise, 0.1) * edges.present * above).sum()

    def hard(scores, bias):
        return (binary_masks(scores, bias, edges, KEY, 5, "gumbel", 0.1) * above).sum()

    found, wanted = (grad(f, argnums=(0, 1))(scores, bias) for f in (hard, soft))
    torch.testing.assert_close(found, wanted)
