"""The networks that score edges for GSAT and BrainOOD, against one vector per edge in memory."""

from contextlib import nullcontext

import pytest
import torch
from torch import nn
from torch.func import functional_call, grad, stack_module_state, vmap

from brio_core import kernels
from brio_core.connectivity.graphs import subject_graph
from brio_core.methods.layers import edge_hidden, extractors
from brio_core.methods.layers.edge_lists import EdgeLists, list_edges
from brio_core.methods.layers.extractors import DeepExtractor, ShallowExtractor, make_extractor
from brio_core.system.errors import BrioError

GRAPHS, ROIS, WIDTH, HIDDEN = 5, 8, 4, (12, 6)
KEY = torch.tensor(7)


def example(dtype=torch.float64):
    draw = torch.Generator().manual_seed(1)
    fc = torch.randn(GRAPHS, ROIS, ROIS, generator=draw)
    edges = list_edges(subject_graph(fc + fc.mT, 0.3), 0.3)
    assert (edges.pairs == 0).any(), "some places should be empty"
    return torch.randn(GRAPHS, ROIS, WIDTH, generator=draw).to(dtype), edges


def make(rate=0.0, dtype=torch.float64, hidden=HIDDEN):
    torch.manual_seed(0)
    return make_extractor(WIDTH, hidden, rate).to(dtype)


def literal(network, nodes, edges, keeps=None):
    """Linear - InstanceNorm - ReLU - dropout, then Linear: graph by graph, edge by edge."""
    *layers, last = network.children()
    scores = torch.zeros(edges.pairs.shape, dtype=nodes.dtype)
    for graph, listed in enumerate(edges.pairs):
        real = listed > 0
        ends = nodes[graph, listed[real] // ROIS], nodes[graph, listed[real] % ROIS]
        hidden = torch.cat(ends, -1)
        for number, layer in enumerate(layers):
            hidden = nn.functional.instance_norm(layer(hidden).T[None])[0].T.relu()
            if keeps is not None:
                hidden = hidden * keeps[number][graph, real]
        place = real.nonzero().flatten()
        found = last(hidden).squeeze(-1) - last.bias
        scores = scores.index_put((torch.tensor(graph), place), found)
    return (scores + last.bias).unflatten(-1, (2, -1))


def slopes(score, network, nodes, edges):
    """The scores and the gradients of some function of them."""
    above = torch.randn(GRAPHS, 2, edges.n_places, generator=torch.Generator().manual_seed(2))
    nodes = nodes.clone().requires_grad_()
    scores = score(network, nodes, edges)
    wanted = [nodes, *network.parameters()]
    return scores, torch.autograd.grad((scores * above).sum() + scores.square().sum(), wanted)


def call(network, nodes, edges, key=None):
    return network(nodes, edges, edges.mask.to(nodes.dtype), key, 3)


@pytest.mark.parametrize("hidden", [(5,), HIDDEN])
@pytest.mark.parametrize("at_once", [1, 2 * 100 * HIDDEN[0], 2**23])
def test_equals_the_network_on_every_edge(at_once, hidden, monkeypatch):
    monkeypatch.setattr(edge_hidden, "AT_ONCE", at_once)
    nodes, edges = example()
    found, wanted = (slopes(score, make(hidden=hidden), nodes, edges) for score in (call, literal))
    torch.testing.assert_close(found, wanted)


def keep_of(drawn, width):
    return ((drawn >= 0.5) / 0.5).double().view(GRAPHS, -1, width)


def test_dropout_is_per_edge_and_the_way_back_drops_the_same(monkeypatch):
    drawn = []
    for module in (edge_hidden, extractors):
        draw = module.uniform_at
        spy = lambda *given, draw=draw: drawn.append(draw(*given)) or drawn[-1]  # noqa: E731
        monkeypatch.setattr(module, "uniform_at", spy)
    nodes, edges = example()
    network = make(rate=0.5)
    with torch.no_grad():
        call(network, nodes, edges, KEY)
    assert len(drawn) == 2, "one draw for each layer, as all graphs fit"
    keeps = [keep_of(one, width) for one, width in zip(drawn, HIDDEN)]
    assert 0.4 < keeps[0].mean() / 2 < 0.6 and (keeps[0].var(1) > 0).any()
    found = slopes(lambda *given: call(*given, KEY), network, nodes, edges)
    wanted = slopes(lambda *given: literal(*given, keeps), network, nodes, edges)
    torch.testing.assert_close(found, wanted)
    other = call(network, nodes, edges, torch.tensor(8))
    assert not torch.equal(found[0], other)


def test_what_is_dropped_does_not_depend_on_how_many_graphs_fit(monkeypatch):
    nodes, edges = example()
    scores = []
    for at_once in (1, 2**23):
        monkeypatch.setattr(edge_hidden, "AT_ONCE", at_once)
        scores.append(call(make(rate=0.5), nodes, edges, KEY))
    torch.testing.assert_close(*scores)


def test_a_shallow_network_drops_units_of_whole_graphs(monkeypatch):
    nodes, edges = example()
    drawn = []
    draw = extractors.uniform
    monkeypatch.setattr(
        extractors, "uniform", lambda *given: drawn.append(draw(*given)) or drawn[-1]
    )
    network = make(0.5, hidden=(5,))
    found = call(network, nodes, edges, KEY)
    keeps = [((drawn[0] >= 0.5) / 0.5).double()[:, None].expand(-1, edges.pairs.shape[-1], -1)]
    torch.testing.assert_close(found, literal(network, nodes, edges, keeps))


def test_only_some_graphs_have_vectors_of_the_first_layer_at_a_time(monkeypatch):
    nodes, edges = example()
    places = edges.pairs.shape[-1]
    monkeypatch.setattr(edge_hidden, "AT_ONCE", 2 * places * HIDDEN[0])
    seen = []
    of = edge_hidden._First.of
    monkeypatch.setattr(
        edge_hidden._First, "of", lambda *given: seen.append(of(*given)) or seen[-1]
    )
    slopes(call, make(), nodes, edges)
    assert max(one.numel() for one in seen) == 2 * places * HIDDEN[0]


@pytest.mark.parametrize("hidden", [(5,), HIDDEN])
def test_folds_together_equal_each_alone(hidden):
    """Also what is dropped in a fold does not depend on the others."""
    nodes, edges = example(torch.float32)
    torch.manual_seed(0)
    networks = [make_extractor(WIDTH, hidden, 0.5) for _ in range(3)]
    parameters, _ = stack_module_state(networks)
    parameters = {name: value.detach() for name, value in parameters.items()}
    keys = torch.arange(3) + 5

    def loss(parameters, key, nodes, *lists):
        fold = EdgeLists(*lists)
        given = (nodes, fold, fold.mask, key, 3)
        return functional_call(networks[0], parameters, given).square().sum()

    dims = (0, 0, None, *[None] * len(edges))
    together = vmap(grad(loss), in_dims=dims)(parameters, keys, nodes, *edges)
    for fold, network in enumerate(networks):
        own = {name: value.detach() for name, value in network.named_parameters()}
        alone = grad(loss)(own, keys[fold], nodes, *edges)
        for name, value in alone.items():
            torch.testing.assert_close(together[name][fold], value, rtol=1e-4, atol=1e-4)


def test_a_graph_does_not_hear_the_others():
    nodes, edges = example()
    alone = EdgeLists(*(part[:1] for part in edges))
    torch.testing.assert_close(call(make(), nodes, edges)[:1], call(make(), nodes[:1], alone))


def test_equal_nodes_give_equal_finite_scores_and_gradients():
    nodes, edges = example()
    scores, gradients = slopes(call, make(), torch.ones_like(nodes), edges)
    real = scores.flatten(-2)[edges.pairs > 0]
    torch.testing.assert_close(real, real[:1].expand_as(real))
    assert all(torch.isfinite(one).all() for one in gradients)


def test_widths_choose_the_network():
    assert isinstance(make_extractor(4, (5,), 0.0), ShallowExtractor)
    assert isinstance(make_extractor(4, (5, 3), 0.0), DeepExtractor)
    for wrong in ((), (4, 3, 2), (4, 0)):
        with pytest.raises(BrioError, match=r"extractor_hidden is .* one or two layers"):
            make_extractor(4, wrong, 0.0)


@pytest.mark.gpu
@pytest.mark.parametrize("hidden", [HIDDEN, (70, 20), (256, 64)])
@pytest.mark.parametrize("rate", [0.0, 0.5])
def test_a_gpu_gives_what_a_cpu_gives(rate, hidden):
    nodes, edges = example(torch.float32)
    results = []
    for device in ("cpu", "cuda"):
        network = make(rate, torch.float32, hidden).to(device)
        lists = EdgeLists(*(part.to(device) for part in edges))
        placed = nodes.to(device).requires_grad_()
        with kernels.recorded() as used:
            scores = call(network, placed, lists, KEY.to(device))
        assert "normed_scores" in used or device == "cpu"
        found = torch.autograd.grad(scores.square().sum(), [placed, *network.parameters()])
        with torch.no_grad():
            # Nothing is kept for the way back.
            torch.testing.assert_close(call(network, placed, lists, KEY.to(device)), scores)
        results.append([one.cpu() for one in (scores, *found)])
    torch.testing.assert_close(*results, rtol=1e-4, atol=1e-4)


@pytest.mark.gpu
@pytest.mark.parametrize("rate", [0.0, 0.5])
def test_a_stack_on_the_gpu_gives_what_each_fold_gives_alone(rate):
    nodes, edges = example(torch.float32)
    nodes, edges = nodes.cuda(), EdgeLists(*(part.cuda() for part in edges))
    draw = torch.Generator("cuda").manual_seed(0)
    sides = torch.randn(2, 3, GRAPHS, ROIS, 70, device="cuda", generator=draw)
    weights = torch.randn(3, 20, 70, device="cuda", generator=draw)
    keys = torch.arange(3, device="cuda")

    def score(sender, receiver, second, key):
        given = (sender, receiver, second, second[:, 0], edges, rate, key, key + 5)
        return extractors.chain(*given)

    def loss(*given):
        return score(*given).square().sum()

    stacked = (*sides, weights, keys)
    slope = grad(loss, argnums=(0, 1, 2))
    with torch.no_grad():
        found = [vmap(score)(*stacked), *vmap(slope)(*stacked)]
        for fold in range(3):
            own = [part[fold] for part in stacked]
            for one, other in zip(found, [score(*own), *slope(*own)]):
                torch.testing.assert_close(one[fold], other, rtol=1e-5, atol=1e-5)


@pytest.mark.gpu
def test_what_is_no_number_stays_none_on_a_gpu():
    nodes, edges = example(torch.float32)
    network = make(0.5, torch.float32).cuda()
    torch.nn.init.constant_(network.second.weight, torch.nan)
    lists = EdgeLists(*(part.cuda() for part in edges))
    assert call(network, nodes.cuda(), lists, KEY.cuda()).isnan().any()


@pytest.mark.gpu
def test_shorter_factors_of_the_whole_network_lose_little(monkeypatch):
    """Where rounding moves a unit across zero its gradient is another, so these differ by more."""
    draw = torch.Generator("cuda").manual_seed(0)
    fc = torch.randn(6, 40, 40, device="cuda", generator=draw)
    mask = subject_graph(fc + fc.mT, 0.3)
    mask[1] = 0
    edges = list_edges(mask, 0.3)
    send, receive = torch.randn(2, 6, 40, 256, device="cuda", generator=draw).unbind(0)
    second, last = torch.randn(2, 64, 256, device="cuda", generator=draw).unbind(0)
    # Also where weights are large, and where gradients of a graph are small.
    wanted = [send, receive, second * 4, last[:, 0].contiguous()]
    wanted = [one.detach().requires_grad_() for one in wanted]
    above = torch.randn(edges.pairs.shape, device="cuda", generator=draw)
    above *= torch.tensor([1, 1, 1e-12, 1e5, 0, 1], device="cuda")[:, None]
    results = []
    for precision, switch in (("high", nullcontext()), ("highest", kernels.without())):
        monkeypatch.setattr(torch, "get_float32_matmul_precision", lambda given=precision: given)
        with switch:
            scores = extractors.chain(*wanted, edges, 0.5, KEY.cuda(), KEY.cuda() + 1)
            found = torch.autograd.grad((scores * above).sum(), wanted)
            results.append((scores, *found))
    for half, exact, most in zip(*results, (2e-3, 4e-2, 4e-2, 4e-2, 4e-3)):
        # Sides graph by graph.
        half, exact = (one.flatten(1 if one.ndim == 3 else 0) for one in (half, exact))
        assert ((half - exact).norm(dim=-1) <= most * exact.norm(dim=-1)).all()
