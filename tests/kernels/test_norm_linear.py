"""Products of normalised rows: the kernel against its twin, the twin against torch's layers."""

from typing import NamedTuple

import pytest
import torch
from torch import nn
from torch.func import functional_call, grad, vmap

from brio_core import kernels
from brio_core.methods.disco.experts import ExpertNorm
from brio_core.methods.layers.norms import MaskedNorm, NodeNorm, norm_linear
from brio_core.system.randomness import dropout

FOLDS, GRAPHS, ROWS, EXPERTS = 2, 3, 190, 3


def draw(*shape, seed=0, dtype=torch.float32):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


class Layer(nn.Module):
    """A norm of some kind and a weight (e, d); experts have one each."""

    def __init__(self, make, before, after):
        super().__init__()
        self.norm = make(before)
        lead = self.norm.weight.shape[:-1]
        self.weight = nn.Parameter(draw(*lead, after, before, seed=9))

    def forward(self, values, key, present, options):
        if not isinstance(self.norm, MaskedNorm):
            return norm_linear(values, self.norm, self.weight, key=key, stream=2, **options)
        rows, shown = values.flatten(0, 1), present.flatten()
        given = (rows, self.norm, self.weight)
        out = norm_linear(*given, key=key, stream=2, present=shown, **options)
        # What absent rows hold is left open, but it is a number.
        return out.view(*values.shape[:-1], -1) * present[..., None]


class Case(NamedTuple):
    """Kind of norm, widths, and how the layer is used."""

    make: type = NodeNorm
    before: int = 32
    after: int = 16
    rate: float = 0.0
    relu: bool = True
    training: bool = True


def expert_norm(width):
    return ExpertNorm(EXPERTS, width)


CASES = [
    *(Case(MaskedNorm, before, after) for before, after in [(32, 16), (16, 1), (5, 3), (3, 1)]),
    # Several tiles of channels, the last of them not full.
    *(Case(before=before, after=after) for before, after in [(64, 64), (128, 64), (70, 130)]),
    *(Case(NodeNorm, 70, after, 0.3) for after in (1, 16)),
    *(Case(MaskedNorm, 32, after, 0.3, training=False) for after in (1, 16)),
    *(Case(NodeNorm, 20, after, relu=False, training=False) for after in (1, 20)),
    *(Case(expert_norm, 20, after, 0.3, relu) for after, relu in [(1, True), (20, False)]),
]


def results(case, device):
    """Values, gradients and running statistics of two folds."""
    layer = Layer(case.make, case.before, case.after).to(device).train(case.training)
    lead = (EXPERTS,) if case.make is expert_norm else ()
    values = draw(FOLDS, *lead, GRAPHS, ROWS, case.before) * 2 + 5
    above = draw(FOLDS, *lead, GRAPHS, ROWS, case.after, seed=1)
    weights = {
        name: draw(FOLDS, *value.shape, seed=number)
        for number, (name, value) in enumerate(layer.named_parameters(), 2)
    }
    # Some rows are absent, not as many in both folds, and no row of the last graph counts.
    present = draw(FOLDS, GRAPHS, ROWS, seed=8) > torch.tensor([0.0, 0.5])[:, None, None]
    present[:, -1] = False
    buffers = {
        name: value.expand(FOLDS, *value.shape).clone() for name, value in layer.named_buffers()
    }
    buffers["norm.running_mean"] += 5.5
    buffers["norm.running_var"] += 3

    def loss(values, weights, buffers, above, key, present):
        options = {"rate": case.rate, "relu": case.relu}
        out = functional_call(layer, (weights, buffers), (values, key, present, options))
        return (out * above).sum(), out

    moved = {name: value.to(device) for name, value in weights.items()}
    buffers = {name: value.to(device) for name, value in buffers.items()}
    keys = torch.tensor([5, 6], device=device)
    inputs = (values.to(device), moved, buffers, above.to(device), keys, present.to(device))
    (to_values, to_weights), out = vmap(grad(loss, argnums=(0, 1), has_aux=True))(*inputs)
    found = {"out": out, "values": to_values, **to_weights, **buffers}
    return {name: value.cpu() for name, value in found.items()}


@pytest.mark.gpu
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize(("precision", "tolerance"), [("highest", 3e-5), ("high", 3e-3)])
def test_kernel_equals_its_twin(case, precision, tolerance):
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(precision)
    try:
        with kernels.recorded() as used:
            fused, plain = results(case, "cuda"), results(case, "cpu")
    finally:
        torch.set_float32_matmul_precision(before)
    assert "norm_linear" in used and fused.keys() == plain.keys()
    for name, value in plain.items():
        error = (fused[name].double() - value.double()).abs().max()
        assert error <= tolerance * value.abs().max(), (name, error)


@pytest.mark.gpu
def test_kernel_gives_a_fold_the_same_alone():
    from brio_core.kernels.norm_linear import NormLinear

    values = draw(FOLDS, 5000, 32).cuda()
    weight, bias, matrix = (draw(FOLDS, *shape).cuda() for shape in [(32,), (32,), (16, 32)])
    keys = torch.tensor([5, 6], device="cuda")
    given, options = (values, weight, bias, matrix, keys), (None, 0.3, 1e-5, True)
    together = NormLinear.apply(*given, *options)[0]
    alone = NormLinear.apply(*(part[1:] for part in given), *options)[0]
    torch.testing.assert_close(together[1:], alone)


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("rate", [0.0, 0.3])
def test_twin_is_norm_relu_dropout_and_linear(training, rate):
    values, key = draw(4, 9, 6, dtype=torch.float64) * 2 + 1, torch.tensor(3)
    norms = [NodeNorm(6).double().train(training), nn.BatchNorm1d(6).double().train(training)]
    linear = nn.Linear(6, 2, bias=False).double()
    for norm in norms:
        norm.running_mean.fill_(0.5), norm.running_var.fill_(2.0)
    wanted = norms[1](values.flatten(0, 1)).view_as(values).relu()
    wanted = linear(dropout(wanted, rate, key, 1))
    found = norm_linear(values, norms[0], linear.weight, rate, key, 1)
    torch.testing.assert_close(found, wanted)
    slopes = [torch.autograd.grad(one.square().sum(), linear.weight) for one in (found, wanted)]
    torch.testing.assert_close(*slopes)
    torch.testing.assert_close(norms[0].running_var, norms[1].running_var)


def test_twin_counts_only_rows_that_are_present():
    rows, weight = draw(30, 6, dtype=torch.float64), draw(2, 6, seed=1, dtype=torch.float64)
    present = torch.arange(30) % 3 > 0
    found = norm_linear(rows, MaskedNorm(6).double(), weight, present=present)[present]
    wanted = nn.BatchNorm1d(6).double()(rows[present]).relu() @ weight.T
    torch.testing.assert_close(found, wanted)


@pytest.mark.gpu
@pytest.mark.parametrize("training", [True, False])
def test_what_is_no_number_stays_none(training):
    layer = Layer(NodeNorm, 32, 16).train(training).cuda()
    torch.nn.init.constant_(layer.norm.weight, torch.nan)
    assert layer(draw(GRAPHS, ROWS, 32).cuda(), None, None, {}).isnan().all()
