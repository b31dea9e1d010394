"""Shared layers: convolutions and series."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.func import functional_call, grad_and_value, stack_module_state, vmap
from torch.nn import functional
from torch_geometric.nn import GATConv, GCNConv, GINConv

from brio_core.connectivity.graphs import normalised_adjacency
from brio_core.methods.deci import RunningFilter
from brio_core.methods.gat import DenseGat
from brio_core.methods.layers.convolutions import DenseGcn, DenseGin
from brio_core.methods.layers.series import mirrored_window, shifted, standardised

N_GRAPHS, N_ROIS, WIDTH = 3, 9, 5


@pytest.fixture
def generator():
    return torch.Generator().manual_seed(0)


@pytest.fixture
def nodes(generator):
    return torch.randn(N_GRAPHS, N_ROIS, WIDTH, generator=generator)


@pytest.fixture
def weights(generator):
    """Symmetric non-negative weights without self-loops; one node has no edge at all."""
    weights = torch.rand(N_GRAPHS, N_ROIS, N_ROIS, generator=generator)
    weights = (weights * (weights > 0.6)).triu(1)
    weights = weights + weights.mT
    weights[:, -1] = weights[..., -1] = 0
    return weights


def sparse(convolve, nodes, weights, weighted=False):
    """A PyTorch Geometric layer on every graph; edges go from sender to receiver."""
    answers = []
    for x, graph in zip(nodes, weights):
        receiver, sender = graph.nonzero(as_tuple=True)
        extra = (graph[receiver, sender],) if weighted else ()
        answers.append(convolve(x, torch.stack([sender, receiver]), *extra))
    return torch.stack(answers)


def with_self(mask):
    return mask | torch.eye(N_ROIS, dtype=torch.bool)


def test_gcn_equals_pytorch_geometric(nodes, weights):
    dense, reference = DenseGcn(WIDTH, 4), GCNConv(WIDTH, 4)
    reference.lin.weight.data.copy_(dense.weight)
    reference.bias.data.copy_(dense.bias)
    torch.testing.assert_close(
        dense(nodes, normalised_adjacency(weights)),
        sparse(reference, nodes, weights, weighted=True),
        rtol=0,
        atol=1e-5,
    )


def gat_pair():
    dense, reference = DenseGat(WIDTH, 3, 4), GATConv(WIDTH, 4, heads=3)
    nn.init.normal_(dense.bias)
    reference.lin.weight.data.copy_(dense.project.weight)
    reference.att_dst.data.copy_(dense.receiver[None])
    reference.att_src.data.copy_(dense.sender[None])
    reference.bias.data.copy_(dense.bias)
    return dense, reference


def test_gat_equals_pytorch_geometric(nodes, weights):
    dense, reference = gat_pair()
    torch.testing.assert_close(
        dense(nodes, with_self(weights > 0)),
        sparse(reference, nodes, weights),
        rtol=0,
        atol=1e-5,
    )


def test_gat_tells_receivers_from_senders(nodes, generator):
    """On symmetric masks a slip of the softmax axis would not show."""
    dense, reference = gat_pair()
    directed = torch.rand(N_GRAPHS, N_ROIS, N_ROIS, generator=generator) > 0.6
    directed &= ~torch.eye(N_ROIS, dtype=torch.bool)
    torch.testing.assert_close(
        dense(nodes, with_self(directed)),
        sparse(reference, nodes, directed.float()),
        rtol=0,
        atol=1e-5,
    )


@pytest.mark.parametrize("training", [True, False])
def test_gin_equals_pytorch_geometric(nodes, weights, training):
    dense = DenseGin(WIDTH, 4, learn_epsilon=True)
    dense.epsilon.data.fill_(0.3)
    network = nn.Sequential(
        nn.Linear(WIDTH, 4, bias=False), nn.BatchNorm1d(4), nn.ReLU(), nn.Linear(4, 4, bias=False)
    )
    reference = GINConv(network, eps=0.3, train_eps=True)
    # The layer has just drawn the network's weights anew.
    network[0].weight.data.copy_(dense.first.weight)
    network[3].weight.data.copy_(dense.second.weight)
    dense.train(training), reference.train(training)
    mask = (weights > 0).float()
    # BatchNorm looks at all nodes of a batch: one graph of several components is such a batch.
    together = torch.block_diag(*mask)
    expected = sparse(reference, nodes.flatten(0, 1)[None], together[None])
    torch.testing.assert_close(dense(nodes, mask).flatten(0, 1), expected[0], rtol=0, atol=1e-5)


def test_gat_edge_weights_start_without_effect(nodes, weights):
    layer = DenseGat(WIDTH, 3, 4, weighted=True)
    mask = with_self(weights > 0)
    plain = layer(nodes, mask, weights)
    assert torch.equal(plain, layer(nodes, mask, torch.zeros_like(weights)))
    layer.edge.data.fill_(1.0)
    assert not torch.allclose(plain, layer(nodes, mask, weights))


def test_gat_drops_attention_without_normalising_again(nodes, weights):
    layer, key = DenseGat(WIDTH, 1, 4), torch.tensor(3)
    mask = with_self(weights > 0)
    layer.project.weight.data.fill_(0.0)
    layer.project.weight.data[:, 0] = 1.0
    ones = torch.ones_like(nodes)
    kept = layer(ones, mask, probability=0.5, key=key)[..., 0]
    number = kept * mask.sum(-1) / 2
    torch.testing.assert_close(number, number.round())
    assert (kept == 0).any() and (kept > 1).any()
    assert torch.equal(layer(ones, mask, probability=0.0, key=key), layer(ones, mask))


def test_gat_initial_projections_differ_between_receiver_and_sender():
    layer = DenseGat(WIDTH, 3, 4)
    assert not torch.equal(layer.receiver, layer.sender)


@pytest.mark.parametrize(
    "build",
    [
        lambda: DenseGcn(WIDTH, 4),
        lambda: DenseGat(WIDTH, 2, 2),
        lambda: DenseGin(WIDTH, 4, learn_epsilon=True),
    ],
    ids=["gcn", "gat", "gin"],
)
def test_layers_run_stacked(build, nodes, weights):
    """Stacked folds give what each fold gives alone."""
    layers = [build().eval() for _ in range(2)]
    graph = with_self(weights > 0) if isinstance(layers[0], DenseGat) else weights
    parameters, buffers = stack_module_state(layers)

    def call(parameters, buffers):
        return functional_call(layers[0], (parameters, buffers), (nodes, graph))

    together = vmap(call)(parameters, buffers)
    for layer, answer in zip(layers, together):
        torch.testing.assert_close(answer, layer(nodes, graph), rtol=0, atol=1e-6)


@pytest.mark.gpu
@pytest.mark.parametrize(("rois", "units"), [(24, 16), (116, 16), (200, 32)])
@pytest.mark.parametrize("probability", [0.0, 0.5])
def test_gat_kernel_equals_its_twin(rois, units, probability):
    generator = torch.Generator().manual_seed(0)
    layers = [DenseGat(WIDTH, 3, units) for _ in range(2)]
    nodes = torch.randn(2, N_GRAPHS, rois, WIDTH, generator=generator)
    mask = torch.rand(2, N_GRAPHS, rois, rois, generator=generator) > 0.7
    mask |= torch.eye(rois, dtype=torch.bool)
    above = torch.randn(N_GRAPHS, rois, 3 * units, generator=generator)
    parameters = {k: v.detach() for k, v in stack_module_state(layers)[0].items()}

    skeleton = layers[0].to("meta")

    def derivatives(device):
        def loss(parameters, nodes, mask, key):
            arguments = (nodes, mask, None, probability, key, 2)
            heard = functional_call(skeleton, parameters, arguments)
            return (heard * above.to(device)).sum()

        moved = {name: value.to(device) for name, value in parameters.items()}
        batch = (tensor.to(device) for tensor in (nodes, mask, torch.tensor([3, 4])))
        gradients, value = vmap(grad_and_value(loss, argnums=(0, 1)))(moved, *batch)
        return [part.cpu() for part in (*gradients[0].values(), gradients[1], value)]

    for cuda, cpu in zip(derivatives("cuda"), derivatives("cpu")):
        torch.testing.assert_close(cuda, cpu, rtol=1e-3, atol=1e-3 * float(cpu.abs().max()))


def frames_of(window):
    return window[0, :, 0].long().tolist()


def window(frames, start, length, padding=3):
    series = torch.arange(frames + padding).float()[None, :, None].expand(1, -1, 2)
    return mirrored_window(series, torch.tensor([frames]), torch.tensor([start]), length)


def test_a_long_scan_is_cropped():
    assert frames_of(window(10, 4, 5)) == [4, 5, 6, 7, 8]


@pytest.mark.parametrize(("frames", "length"), [(78, 176), (4, 15), (2, 5), (1, 3), (6, 6)])
def test_a_short_scan_is_mirrored_to_and_fro(frames, length):
    # A pad that is longer than the scan has to be made of several.
    wanted = np.pad(np.arange(frames), (0, length - frames), mode="reflect")
    assert frames_of(window(frames, 0, length)) == wanted.tolist()


def test_standardised_series_and_a_constant_one():
    series = torch.randn(3, 50, 4, generator=torch.Generator().manual_seed(0)) * 5 + 2
    series[:, :, 1] = 7
    found = standardised(series, 1)
    torch.testing.assert_close(found.mean(1), torch.zeros(3, 4), rtol=0, atol=1e-5)
    spread = found.var(1, correction=0)
    torch.testing.assert_close(spread, torch.tensor([1.0, 0.0, 1.0, 1.0]).expand(3, 4))


def test_copies_are_moved_and_the_rest_is_zero():
    found = shifted(torch.tensor([[1.0, 2.0, 3.0]]), 3, 2)
    wanted = [[[1, 2, 3, 0, 0, 0, 0], [0, 0, 1, 2, 3, 0, 0], [0, 0, 0, 0, 1, 2, 3]]]
    assert found.tolist() == wanted


def test_the_gradient_adds_up_over_copies():
    rows = torch.randn(2, 5, generator=torch.Generator().manual_seed(0), requires_grad=True)
    shifted(rows, 4, 3).sum().backward()
    assert torch.equal(rows.grad, torch.full((2, 5), 4.0))


def test_a_running_filter_is_a_causal_convolution_per_channel():
    draw = torch.Generator().manual_seed(0)
    layer = RunningFilter(3, 6).double()
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.normal_(generator=draw)
    values = torch.randn(3, 4, 6, generator=draw).double()
    # A library convolution multiplies the last weight with the current place.
    wanted = functional.conv1d(
        functional.pad(values.swapaxes(0, 1), (5, 0)),
        layer.kernel.flip(-1)[:, None],
        layer.bias,
        groups=3,
    )
    torch.testing.assert_close(layer(values), wanted.swapaxes(0, 1))


def test_a_running_filter_is_a_running_mean_at_first():
    drift = RunningFilter(2, 8)(torch.full((2, 1, 8), 3.0))
    wanted = 3 * torch.arange(1, 9) / 8
    torch.testing.assert_close(drift, wanted.expand(2, 1, 8))
