"""BrainOOD: the feature mask, random subgraphs, and the terms of its loss."""

import pytest
import torch
from synthetic import batch_of, few_steps, settings_of

from brio_core.connectivity.graphs import subject_graph
from brio_core.methods.brainood import BrainOod, VirtualGin, WideGin, alignment, row_entropy
from brio_core.methods.layers.edge_lists import EdgeLists, list_edges
from brio_core.methods.layers.edge_masks import bernoulli_divergence, bernoulli_masks

ROIS, SUBJECTS = 12, 6


def make(**overrides):
    return few_steps("brainood", SUBJECTS, ROIS, **overrides)


def equal_graphs():
    """Every subject has the same edges."""
    fc = torch.randn(ROIS, ROIS, generator=torch.Generator().manual_seed(2))
    mask = subject_graph((fc + fc.T).expand(SUBJECTS, ROIS, ROIS), 0.2)
    return list_edges(mask, 0.2)


def test_the_feature_mask_is_symmetric_and_between_zero_and_one():
    module, features = make()
    selection = module.selector(None, 0)
    # (P, P): all subjects share it by its shape.
    assert selection.shape == (ROIS, ROIS)
    torch.testing.assert_close(selection, selection.T)
    assert (selection >= 0).all() and (selection <= 1).all()
    mask = EdgeLists.of(features).mask
    assert torch.equal(module.encode(features, mask, None, 0)[1], selection)


def test_a_published_start_is_nearly_binary_and_a_soft_one_is_not():
    decided = {}
    for soft in (False, True):
        torch.manual_seed(0)
        module = BrainOod(settings_of("brainood", hidden=100, soft_init=soft), 100, 3)
        selection = module.selector(None, 0)
        decided[soft] = ((selection < 0.01) | (selection > 0.99)).float().mean()
    assert 0.6 < decided[False] < 0.7 and decided[True] < 0.01


def test_evaluation_is_deterministic_and_attention_is_symmetric():
    module, features = make()
    together = module.logits(features)
    assert torch.equal(together, module.logits(features))
    alone = module.logits({key: value[2:3] for key, value in features.items()})
    torch.testing.assert_close(alone, together[2:3], rtol=0, atol=1e-5)
    edges = EdgeLists.of(features)
    attention = edges.spread(module.chance(features))
    assert torch.equal(attention, attention.mT)
    assert ((attention > 0) == (edges.mask > 0)).all() and attention[edges.mask > 0].std() > 0


@pytest.mark.parametrize("absent_edges", ["skip", "zero"])
def test_alignment_is_zero_when_subjects_share_logits_and_edges(absent_edges):
    edges = equal_graphs()
    shared = torch.randn(2, edges.n_places).expand(SUBJECTS, 2, -1)
    assert alignment(shared, edges, edges.mask, absent_edges) < 1e-6
    differing = shared + torch.randn(SUBJECTS, 1, 1)
    assert alignment(differing, edges, edges.mask, absent_edges) > 1e-3


def test_alignment_is_the_deviation_over_subjects_that_have_the_edge():
    _, features = make()
    edges = EdgeLists.of(features)
    mask = edges.mask
    scores = torch.randn(SUBJECTS, 2, edges.n_places, generator=torch.Generator().manual_seed(3))
    logits = torch.zeros(SUBJECTS, ROIS, ROIS)
    for subject in range(SUBJECTS):
        for place in range(edges.n_places):
            flat = int(edges.pairs[subject, place])
            if flat:
                i, j = divmod(flat, ROIS)
                logits[subject, i, j], logits[subject, j, i] = scores[subject, :, place]
    spread = []
    for i in range(ROIS):
        for j in range(ROIS):
            there = logits[:, i, j][mask[:, i, j] > 0]
            if len(there) > 1:
                spread.append(there.std())
    torch.testing.assert_close(alignment(scores, edges, mask, "skip"), torch.stack(spread).mean())
    torch.testing.assert_close(alignment(scores, edges, mask, "zero"), logits.std(0).mean())


def test_alignment_has_a_gradient_where_logits_do_not_vary():
    edges = equal_graphs()
    scores = torch.zeros(SUBJECTS, 2, edges.n_places, requires_grad=True)
    (slope,) = torch.autograd.grad(alignment(scores, edges, edges.mask, "skip"), scores)
    assert torch.isfinite(slope).all()


def test_information_is_zero_where_attention_is_the_rate():
    present = torch.ones(3, 1, 5)
    assert bernoulli_divergence(torch.full((3, 2, 5), 0.7), 0.7, present) < 1e-6
    assert bernoulli_divergence(torch.full((3, 2, 5), 0.6), 0.7, present) > 1e-3


def test_subgraphs_are_binary_and_symmetric_with_a_gradient_to_the_logits():
    module, features = make()
    edges = EdgeLists.of(features)
    nodes, _ = module.encode(features, edges.mask, None, 0)
    logits = module.extractor(nodes, edges, edges.mask, None, 0).detach().requires_grad_()
    chance = logits.sigmoid().mean(-2)
    drawn = edges.spread(bernoulli_masks(chance, 5, torch.tensor(1), 0))
    assert drawn.shape == (5, SUBJECTS, ROIS, ROIS)
    assert ((drawn == 0) | (drawn == 1)).all() and torch.equal(drawn, drawn.mT)
    assert 0 < drawn[:, edges.mask > 0].mean() < 1 and not drawn[:, edges.mask == 0].any()
    pooled = module.subgraphs(features, edges, chance, torch.tensor(1))
    (slope,) = torch.autograd.grad(module.head(pooled)[:, 1].sum(), logits)
    listed = edges.present[:, None].expand_as(slope) > 0
    assert (slope[listed] != 0).float().mean() > 0.9 and not slope[~listed].any()


def test_a_subgraph_with_all_edges_is_the_whole_graph():
    module, features = make(dropout=0.0, selector_dropout=0.0)
    edges = EdgeLists.of(features)
    whole = module.encode(features, edges.mask, None, 0)[0].mean(-2)
    everything = torch.ones(SUBJECTS, edges.n_places)
    forced = module.subgraphs(features, edges, everything, torch.tensor(1))
    torch.testing.assert_close(forced, whole)


@pytest.mark.parametrize("high_pass", ["mean", "sum"])
def test_the_high_pass_filter_is_what_it_says(high_pass):
    module, features = make(high_pass=high_pass)
    mask, nodes = EdgeLists.of(features).mask, features["nodes"]
    filtered = module.high_pass(mask) @ nodes
    sums = mask @ nodes
    wanted = nodes - sums / mask.sum(-1, keepdim=True) if high_pass == "mean" else -sums
    torch.testing.assert_close(filtered, wanted)
    assert (module.decoder.virtual is None) == (high_pass == "mean")


def test_the_reconstruction_counts_selected_entries_off_the_diagonal():
    module, features = make(dropout=0.0)
    edges = EdgeLists.of(features)
    nodes, selection = module.encode(features, edges.mask, None, 0)
    error = module.reconstruction(features, nodes, edges.mask, selection, torch.tensor(0))
    decoded = module.decoder(nodes, module.high_pass(edges.mask), None, 0, looped=True)
    away = ((decoded @ decoded.mT).tanh() - features["nodes"].tanh()) * selection
    off = ~torch.eye(ROIS, dtype=torch.bool)
    torch.testing.assert_close(error, away[:, off].square().mean())


def test_entropy_is_that_of_the_rows():
    torch.testing.assert_close(row_entropy(torch.zeros(4, 8)), torch.tensor(8.0).log())
    assert row_entropy(100 * torch.eye(8)) < 1e-3


def test_the_information_term_has_phases_and_is_off_as_released():
    off, on = settings_of("brainood"), settings_of("brainood", lambda_information=1.0)
    assert {BrainOod.phase(off, epoch) for epoch in (1, 50, 200)} == {"train"}
    phases = [BrainOod.phase(on, epoch) for epoch in (1, 20, 21, 41, 200)]
    assert phases == ["0.9", "0.9", "0.8", "0.7", "0.7"]
    module, features = make(lambda_information=1.0)
    module.train()
    loss, logs = module.loss(batch_of(features, 0), "0.7")
    assert logs["information"] > 0 and torch.isfinite(loss)


def graphs(n_graphs=3, n_rois=6, width=5, seed=0):
    generator = torch.Generator().manual_seed(seed)
    nodes = torch.randn(n_graphs, n_rois, width, generator=generator)
    upper = (torch.rand(n_graphs, n_rois, n_rois, generator=generator) < 0.5).float().triu(1)
    return nodes, upper + upper.mT


def make_gin(*sizes, **options):
    torch.manual_seed(0)
    return VirtualGin(*sizes, **options)


@pytest.mark.parametrize("width", [3, 20])
def test_a_layer_is_its_formula_whichever_product_comes_first(width):
    nodes, adjacency = graphs(width=width)
    torch.manual_seed(0)
    layer = WideGin(width, 4).eval()
    inner = layer.first(nodes + adjacency @ nodes) / (1 + layer.norm.eps) ** 0.5
    torch.testing.assert_close(layer(nodes, adjacency), layer.second(inner.relu()))


@pytest.mark.parametrize("width", [3, 20])
def test_a_diagonal_of_ones_stands_for_the_node_itself(width):
    nodes, adjacency = graphs(width=width)
    module, key = make_gin(width, 4, 0.5), torch.tensor(3)
    looped = module(nodes, adjacency + torch.eye(6), key, 0, looped=True)
    torch.testing.assert_close(looped, module(nodes, adjacency, key, 0), rtol=1e-4, atol=1e-5)


def test_the_virtual_node_starts_like_an_embedding():
    start = make_gin(5, 1000, 0.0).virtual
    assert abs(start.mean()) < 0.1 and abs(start.std() - 1) < 0.1
    assert make_gin(5, 4, 0.0, virtual=False).virtual is None


def test_the_virtual_node_is_heard_before_the_second_layer():
    nodes, adjacency = graphs()
    module = make_gin(5, 4, 0.0).eval()
    plain = module(nodes, adjacency, None, 0)
    with torch.no_grad():
        module.virtual += 1.0
    assert not torch.allclose(module(nodes, adjacency, None, 0), plain)
    # Where a node subtracts the mean of its neighbours, a shift of all nodes is not heard.
    mean = -adjacency / adjacency.sum(-1, keepdim=True)
    shifted = module(nodes, mean, None, 0)
    with torch.no_grad():
        module.virtual.zero_()
    torch.testing.assert_close(module(nodes, mean, None, 0), shifted)


def test_dropout_asks_the_key_only():
    nodes, adjacency = graphs()
    module = make_gin(5, 4, 0.5).eval()
    key = torch.tensor(3)
    first = module(nodes, adjacency, key, 0)
    assert torch.equal(first, module(nodes, adjacency, key, 0))
    assert not torch.equal(first, module(nodes, adjacency, key, 10))
    assert 0.3 < (first == 0).float().mean() < 0.7
    assert (module(nodes, adjacency, None, 0) != 0).all()
