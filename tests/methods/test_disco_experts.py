"""Stacked experts against one network at a time."""

import pytest
import torch
from torch import nn
from torch.func import functional_call, grad, stack_module_state, vmap

from brio_core.connectivity.graphs import subject_graph
from brio_core.methods.disco.experts import (
    ExpertGin,
    ExpertLinear,
    ExpertNorm,
    SlowLinear,
    entmax,
    side_by_side,
)
from brio_core.methods.disco.graphs import ExpertGraphs
from brio_core.methods.layers.edge_lists import EdgeLists, list_edges

KEY = torch.tensor(1)


def draw(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def some_graphs(experts, *folds_and_graphs):
    """Lists of small graphs, and what each expert keeps of them."""
    *folds, graphs = folds_and_graphs or (2,)
    fc = draw(*folds, graphs, 6, 6, seed=2)
    edges = list_edges(subject_graph(fc + fc.mT, 0.2), 0.2)
    drawn = draw(*folds, experts, graphs, edges.n_places, seed=3) > 0
    return edges, drawn * edges.present.unsqueeze(-3)


def test_linear_equals_one_linear_per_expert():
    layer, values = ExpertLinear(3, 5, 4), draw(3, 2, 7, 5)
    for expert, out in enumerate(layer(values)):
        wanted = nn.functional.linear(values[expert], layer.weight[expert].T, layer.bias[expert])
        torch.testing.assert_close(out, wanted)


def test_shared_values_meet_every_weight():
    values, weight = draw(2, 7, 5), draw(3, 5, 4)
    wanted = torch.stack([values @ one for one in weight], -2)
    torch.testing.assert_close(side_by_side(values, weight), wanted)


def test_norm_equals_batch_norm_per_expert():
    norm, values = ExpertNorm(3, 4), draw(3, 2, 7, 4) * 3 + 1
    with torch.no_grad():
        norm.weight.copy_(draw(3, 4)), norm.bias.copy_(draw(3, 4, seed=1))
    twins = [nn.BatchNorm1d(4) for _ in range(3)]
    for expert, twin in enumerate(twins):
        with torch.no_grad():
            twin.weight.copy_(norm.weight[expert]), twin.bias.copy_(norm.bias[expert])
    for training in (True, False):
        norm.train(training)
        out = norm(values)
        for expert, twin in enumerate(twins):
            wanted = twin.train(training)(values[expert].flatten(0, 1)).view_as(out[expert])
            torch.testing.assert_close(out[expert], wanted, rtol=1e-4, atol=1e-5)
    running = torch.stack([twin.running_var for twin in twins])
    torch.testing.assert_close(norm.running_var, running)


def test_gin_equals_its_formula_for_every_expert():
    torch.manual_seed(0)
    network = ExpertGin(3, 5, 4, layers=2, rate=0.5).eval()
    nodes, (edges, masks) = draw(2, 6, 5), some_graphs(3)
    with torch.no_grad():
        network.epsilon.copy_(draw(2, 3))
    found = network(nodes, ExpertGraphs(edges, masks), None, 0)
    graphs = edges.spread(masks)
    kept = (graphs.sum(-1, keepdim=True) > 0).float()
    assert 0 < kept.mean() < 1
    for expert in range(3):
        hidden = nodes * kept[expert]
        for layer in range(2):
            first, second = network.first[layer], network.second[layer]
            hidden = (1 + network.epsilon[layer, expert]) * hidden + graphs[expert] @ hidden
            hidden = (hidden @ first.weight[expert] + first.bias[expert]).relu()
            # Fresh running statistics: mean 0, variance 1.
            hidden = (hidden @ second.weight[expert] / (1 + 1e-5) ** 0.5).relu()
        torch.testing.assert_close(found[expert], hidden, rtol=1e-4, atol=1e-5)


def test_dropout_follows_the_key():
    network = ExpertGin(2, 5, 4, layers=2, rate=0.5)
    inputs = (draw(2, 6, 5), ExpertGraphs(*some_graphs(2)))
    one, again, other = (network(*inputs, torch.tensor(key), 0) for key in (1, 1, 2))
    assert torch.equal(one, again) and not torch.equal(one, other)


def test_maps_over_folds():
    torch.manual_seed(0)
    networks = [ExpertGin(2, 5, 4, layers=2, rate=0.5) for _ in range(2)]
    nodes, (lists, masks) = draw(2, 3, 6, 5), some_graphs(2, 2, 3)

    def loss(parameters, buffers, nodes, masks, *lists):
        inputs = (nodes, ExpertGraphs(EdgeLists(*lists), masks), KEY, 0)
        return functional_call(networks[0], (parameters, buffers), inputs).square().sum()

    parameters, buffers = stack_module_state(networks)
    parameters = {name: value.detach() for name, value in parameters.items()}
    together = vmap(grad(loss))(parameters, buffers, nodes, masks, *lists)
    for fold, network in enumerate(networks):
        own = dict(network.named_parameters())
        given = (nodes[fold], masks[fold], *(part[fold] for part in lists))
        alone = grad(loss)(own, dict(network.named_buffers()), *given)
        for name, value in alone.items():
            torch.testing.assert_close(together[name][fold], value, rtol=1e-3, atol=1e-3)


def test_a_slow_linear_takes_small_steps():
    values, above = draw(20, 5), draw(20, 3, seed=1)
    torch.manual_seed(0)
    plain = nn.Linear(5, 3)
    torch.manual_seed(0)
    slow = SlowLinear(5, 3, 0.1)
    torch.testing.assert_close(slow(values), plain(values))
    start = plain.weight.detach().clone()
    for layer in (plain, slow):
        optimiser = torch.optim.AdamW(layer.parameters(), lr=1e-2, weight_decay=0.0)
        (layer(values) * above).sum().backward()
        optimiser.step()
    moved = 0.1 * slow.weight.detach() - start
    torch.testing.assert_close(moved, 0.1 * (plain.weight.detach() - start), rtol=1e-3, atol=1e-7)


SCORES = torch.randn(50, 8, generator=torch.Generator().manual_seed(0)) * 3


@pytest.mark.parametrize("alpha", [1.0, 1.1, 1.38, 1.5, 2.0])
def test_rows_are_distributions(alpha):
    weights = entmax(SCORES, alpha)
    assert (weights >= 0).all()
    torch.testing.assert_close(weights.sum(-1), torch.ones(50))


def test_well_separated_scores_have_exact_zeros():
    weights = entmax(torch.tensor([9.0, 8.5, 0.0, -3.0]), 1.38)
    assert (weights[:2] > 0).all() and (weights[2:] == 0).all()


def test_alpha_near_one_is_softmax():
    torch.testing.assert_close(
        entmax(SCORES.double(), 1.0001), SCORES.double().softmax(-1), rtol=0, atol=1e-3
    )


def test_alpha_two_is_sparsemax():
    """The Euclidean projection onto the simplex, by its closed form on sorted scores."""
    ordered, _ = SCORES.sort(-1, descending=True)
    sums = ordered.cumsum(-1) - 1
    steps = torch.arange(1, 9)
    support = (ordered * steps > sums).sum(-1, keepdim=True)
    threshold = sums.gather(-1, support - 1) / support
    torch.testing.assert_close(entmax(SCORES, 2.0), (SCORES - threshold).clamp_min(0))


def test_equal_scores_share_equally():
    torch.testing.assert_close(entmax(torch.full((3, 8), 5.0), 1.38), torch.full((3, 8), 1 / 8))


def test_gradient_equals_finite_differences():
    scores = SCORES[:3, :4].double().requires_grad_()
    assert torch.autograd.gradcheck(lambda x: entmax(x, 1.38), (scores,), atol=1e-5)


def test_entmax_maps_over_folds():
    above = torch.randn_like(SCORES)
    loss = lambda scores, above: (entmax(scores, 1.38) * above).sum()  # noqa: E731
    together = vmap(grad(loss))(SCORES.view(5, 10, 8), above.view(5, 10, 8))
    torch.testing.assert_close(together.view(50, 8), grad(loss)(SCORES, above))
