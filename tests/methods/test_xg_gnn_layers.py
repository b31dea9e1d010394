"""A stack of convolutions and BatchNorms as one kernel, against the stack itself."""

import pytest
import torch
from torch import nn
from torch.nn import functional

from brio_core.methods.layers.series import standardised
from brio_core.methods.xg_gnn.layers import (
    Constructor,
    LinearConvolutions,
    Propagation,
    RegionLinear,
    SiteNorm,
    class_difference,
    disagreement,
    learnt_graphs,
    sparsity,
    window_moments,
)
from brio_core.methods.xg_gnn.method import adam_step, add_moments
from brio_core.system.devices import float32_products

SITES, SUBJECTS, ROIS, FRAMES = 3, 4, 5, 61


class Stack(nn.Module):
    """The same layers, one after another."""

    def __init__(self, layer):
        super().__init__()
        self.convolutions = layer.convolutions
        self.norms = nn.ModuleList()
        for number, norm in enumerate(layer.norms):
            own = nn.BatchNorm1d(len(norm.weight)).double()
            own.weight = norm.weight
            if number == len(layer.norms) - 1:
                own.bias = layer.bias
            self.norms.append(own)
        self.stride, self.bins = layer.stride, layer.bins

    def forward(self, series):
        """Pooled responses (N, C, bins) of series (N, T)."""
        hidden = series[:, None]
        for number, (convolution, norm) in enumerate(zip(self.convolutions, self.norms)):
            stride = self.stride if number == 0 else 1
            hidden = norm(functional.conv1d(hidden, convolution.weight, stride=stride))
        return functional.adaptive_max_pool1d(hidden, self.bins)


def make(frames=FRAMES):
    torch.manual_seed(0)
    layer = LinearConvolutions((6, 5, 4), (4, 8, 8), stride=2, bins=2).double()
    with torch.no_grad():
        for norm in layer.norms:
            norm.weight.uniform_(0.5, 2)
        layer.bias.normal_()
    series = torch.randn(SITES, SUBJECTS, ROIS, frames).double().cumsum(-1)
    return layer, Stack(layer), standardised(series, -2)


@pytest.mark.parametrize("frames", [34, 60, FRAMES])
def test_training_equals_one_site_after_another(frames):
    layer, stack, series = make(frames)
    found = layer(series, torch.full((SITES, SUBJECTS), frames))
    wanted = torch.stack(
        [stack(site.flatten(0, 1)).unflatten(0, site.shape[:2]) for site in series]
    )
    torch.testing.assert_close(found, wanted)
    # The stack's own biases are missing here: the next norm takes them away.
    learnt = dict(layer.named_parameters())
    weights = torch.randn(found.shape, generator=torch.Generator().manual_seed(1)).double()
    one, other = (
        torch.autograd.grad((out * weights).sum(), list(learnt.values())) for out in (found, wanted)
    )
    torch.testing.assert_close(one, other)
    for norm, own in zip(layer.norms, stack.norms):
        torch.testing.assert_close(norm.running_var, own.running_var)
        torch.testing.assert_close(own.running_mean, torch.zeros_like(own.running_mean))


def test_evaluation_equals_each_scan_alone_at_its_own_length():
    layer, stack, series = make()
    layer(series, torch.full((SITES, SUBJECTS), FRAMES))
    stack(series.flatten(0, 2))
    for norm, own in zip(layer.norms, stack.norms):
        own.running_var.copy_(norm.running_var)
        own.running_mean.zero_()
    layer.eval(), stack.eval()
    frames = torch.tensor([34, 37, 50, FRAMES])
    short = series[:1] * (torch.arange(FRAMES) < frames[:, None])[:, None]
    found = layer(short, frames[None])
    for row, count in enumerate(frames.tolist()):
        torch.testing.assert_close(found[0, row], stack(short[0, row, :, :count]))


def test_window_moments_average_over_places():
    series = torch.randn(7, 20, generator=torch.Generator().manual_seed(0)).double()
    windows = series.unfold(-1, 6, 2).reshape(-1, 6)
    wanted = windows.T @ windows / len(windows)
    torch.testing.assert_close(window_moments(series.T @ series / 7, 6, 2), wanted)


def graphs(sites=3, subjects=6, rois=5):
    return torch.randn(sites, subjects, rois, rois, generator=torch.Generator().manual_seed(0))


def test_difference_is_that_of_class_means_standardised_by_column():
    values, label = graphs().double(), torch.tensor([[0, 1, 0, 0, 1, 0]] * 3)
    found, usable = class_difference(values, label)
    assert usable.all()
    raw = (values[:, label[0] == 0].mean(1) - values[:, label[0] == 1].mean(1)).abs()
    wanted = ((raw - raw.mean(1, keepdim=True)) / (raw.std(1, keepdim=True) + 1e-6)).sigmoid()
    torch.testing.assert_close(found, wanted)


def test_a_site_of_one_class_is_not_usable_and_has_finite_gradients():
    values = graphs().requires_grad_()
    label = torch.tensor([[0] * 6, [1] * 6, [0, 1] * 3])
    found, usable = class_difference(values, label)
    assert usable.tolist() == [False, False, True]
    loss = (sparsity(found) * usable).sum() + (disagreement(found) * usable).sum()
    loss.backward()
    assert torch.isfinite(values.grad).all()
    constant = torch.ones(1, 6, 5, 5, requires_grad=True)
    sparsity(class_difference(constant, label[2:])[0]).sum().backward()
    assert torch.isfinite(constant.grad).all()


def test_binary_explanations_agree_with_themselves_and_not_with_disjoint_ones():
    one = torch.zeros(5, 5)
    one[:2] = 1
    pairs = disagreement(torch.stack([one, one, 1 - one]))
    torch.testing.assert_close(pairs, torch.tensor([[0, 0, 1], [0, 0, 1], [1, 1, 0]]).float())


def test_disagreement_is_symmetric_and_positive_for_soft_explanations():
    soft = graphs(sites=2)[:, 0].sigmoid()
    pairs = disagreement(torch.cat([soft, soft[:1]]))
    torch.testing.assert_close(pairs, pairs.T)
    assert 0 < pairs[0, 2] < 1


def test_sparsity_is_an_entropy_of_rows():
    level = torch.tensor([0.2, 0.5])
    found = sparsity(level[None, :, None].expand(1, 2, 7))
    torch.testing.assert_close(found, -(level * level.log()).sum()[None])


def test_steps_equal_those_of_the_optimiser():
    torch.manual_seed(0)
    module = nn.Linear(3, 2)
    add_moments(module)
    buffers = dict(module.named_buffers())
    weights = {name: value.detach().clone() for name, value in module.named_parameters()}
    optimiser = torch.optim.Adam(module.parameters(), lr=0.01, weight_decay=0.1)
    for step in range(3):
        gradients = {name: torch.randn_like(value) for name, value in weights.items()}
        for name, parameter in module.named_parameters():
            parameter.grad = gradients[name]
        optimiser.step()
        weights = adam_step(weights, gradients, buffers, 0.01, 0.1)
        torch.testing.assert_close(weights, dict(module.named_parameters()))
        assert buffers["inner_adam_steps"] == step + 1


def test_without_a_rate_weights_stay_and_moments_move():
    module = nn.Linear(3, 2)
    add_moments(module)
    buffers, weights = dict(module.named_buffers()), dict(module.named_parameters())
    moved = adam_step(weights, weights, buffers, 0.0, 0.0)
    assert all(torch.equal(moved[name], weights[name]) for name in weights)
    assert (buffers["inner_adam_mean"] != 0).any()


def test_site_norm_equals_one_site_after_another():
    values = torch.randn(4, 3, 5, 6, generator=torch.Generator().manual_seed(0)).double() * 3 + 1
    norm, reference = SiteNorm(6).double(), nn.BatchNorm1d(6).double()
    for module in (norm, reference):
        with torch.no_grad():
            module.weight.copy_(torch.linspace(0.5, 2, 6))
            module.bias.copy_(torch.linspace(-1, 1, 6))
    wanted = torch.stack([reference(site.flatten(0, 1)).view(3, 5, 6) for site in values])
    torch.testing.assert_close(norm(values), wanted)
    torch.testing.assert_close(dict(norm.named_buffers()), dict(reference.named_buffers()))
    norm.eval(), reference.eval()
    torch.testing.assert_close(norm(values), reference(values.flatten(0, 2)).view_as(values))


@pytest.mark.parametrize("kind", Propagation.kinds)
def test_propagation_is_its_formula_and_moves_with_the_regions(kind):
    draw = torch.Generator().manual_seed(0)
    factor = torch.randn(3, ROIS, 4, generator=draw).double()
    nodes = torch.randn(3, ROIS, 6, generator=draw).double()
    layer = Propagation(6, 5, kind).double()
    graph = factor @ factor.mT
    mean = graph / (graph.abs().sum(-1, keepdim=True) + 1e-6) @ nodes
    heard = {
        # Node by node, as the released contraction has it: no other node is in the sum.
        "released": torch.einsum("bik,bip->bip", graph, nodes),
        "mean": mean,
        "mean+self": mean + nodes,
    }[kind]
    wanted = heard @ layer.weight.T + layer.bias
    torch.testing.assert_close(layer(nodes, factor), wanted)
    order = torch.randperm(ROIS, generator=draw)
    torch.testing.assert_close(layer(nodes[:, order], factor[:, order]), wanted[:, order])


def test_layers_of_regions_are_linear_layers():
    torch.manual_seed(0)
    layer, plain = RegionLinear(6, 3).double(), torch.nn.Linear(6, 3).double()
    plain.load_state_dict(layer.state_dict())
    hidden = torch.randn(2, 4, ROIS, 6).double()
    torch.testing.assert_close(layer(hidden), plain(hidden))
    slopes = [
        torch.autograd.grad(one(hidden).square().sum(), list(one.parameters()))
        for one in (layer, plain)
    ]
    torch.testing.assert_close(*slopes)


def explained(device="cpu", kind=torch.float32):
    """Class differences of learnt graphs whose regions are nearly alike, and slopes of weights."""
    draw = torch.Generator().manual_seed(0)
    shape = SITES, SUBJECTS, ROIS, 8
    tokens = torch.randn(*shape, generator=draw).to(device, kind).softmax(-1)
    torch.manual_seed(0)
    layer = Constructor(8, heads=4).to(device, kind)
    label = torch.tensor([[0.0, 1.0] * (SUBJECTS // 2)] * SITES, device=device, dtype=kind)
    graphs = learnt_graphs(layer(tokens))
    difference, _ = class_difference(graphs, label)
    value = sparsity(difference).sum() + disagreement(difference).sum()
    return graphs.detach(), difference.detach(), *torch.autograd.grad(value, [*layer.parameters()])


def test_graphs_are_learnt_in_exact_products(monkeypatch):
    """Whatever is asked for, on the way back too."""
    seen, real = [], torch.bmm
    monkeypatch.setattr(
        torch, "bmm", lambda *ab: seen.append(torch.get_float32_matmul_precision()) or real(*ab)
    )
    with float32_products(exact=False):
        explained()
    # Queries, keys, values and graphs: each once forward and, but for two data, twice back.
    assert len(seen) >= 9 and set(seen) == {"highest"}


@pytest.mark.gpu
def test_graphs_of_a_gpu_are_those_of_double_precision():
    """TF32 would miss most of the slopes: it rounds off more than graphs differ by."""
    with float32_products(exact=False):
        found = explained("cuda")
    for part, wanted in zip(found, explained(kind=torch.float64)):
        assert (part.cpu() - wanted).norm() < 5e-2 * wanted.norm()
