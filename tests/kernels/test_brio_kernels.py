"""The kernels of BRIO against their plain torch twins."""

import pytest
import torch
from torch.func import functional_call, grad, stack_module_state, vmap
from torch.nn import functional

from brio_core import kernels
from brio_core.connectivity.graphs import node_descriptor, signed_graph
from brio_core.methods.brio.factors import SignedLayer
from brio_core.methods.layers.transport import balanced_assignment


@pytest.mark.gpu
@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("n_rois", [24, 116, 200])
def test_signed_layer_equals_plain_torch_to_eleven_bits(n_rois, shared):
    from brio_core.kernels.signed import SignedGraphs

    torch.manual_seed(0)
    fc = torch.randn(*(() if shared else (3,)), 5, n_rois, n_rois, device="cuda")
    fc = fc + fc.mT
    support = torch.rand(3, n_rois, n_rois, device="cuda") > 0.7
    support = support | support.mT
    support[0, 0] = support[0, :, 0] = False
    layers = [SignedLayer(64).cuda() for _ in range(3)]
    state = {name: value.detach() for name, value in stack_module_state(layers)[0].items()}
    hidden = torch.randn(3, 5, n_rois, 64, device="cuda")
    folds = {"in_dims": (0, 0, None if shared else 0, 0)}

    def fused(state, hidden, fc, support):
        graph, descriptor = SignedGraphs.apply(fc, support)
        return functional_call(layers[0], state, (hidden, graph)), descriptor

    def plain(state, hidden, fc, support):
        graph = signed_graph(fc, support).movedim(-3, -1).flatten(-2)
        return functional_call(layers[0], state, (hidden, graph)), node_descriptor(fc, support)

    given = (state, hidden, fc, support)
    ours, expected = vmap(fused, **folds)(*given), vmap(plain, **folds)(*given)
    torch.testing.assert_close(ours[0], expected[0], rtol=2e-3, atol=2e-3)
    torch.testing.assert_close(ours[1], expected[1])
    with torch.no_grad():
        # Nothing is kept for a gradient, which lets the compiler round in another order.
        torch.testing.assert_close(vmap(fused, **folds)(*given)[0], ours[0])

    def slopes(program, size):
        slope = size * torch.arange(64.0, device="cuda")

        def loss(*given):
            return (program(*given)[0] ** 2 * slope).sum()

        return vmap(grad(loss, argnums=(0, 1)), **folds)(*given)

    # Half precision alone would make zeros of the smaller of these gradients.
    for size in (1.0, 1e-9):
        ours, expected = slopes(fused, size), slopes(plain, size)
        for one, other in [(ours[1], expected[1])] + [(ours[0][k], expected[0][k]) for k in state]:
            assert (one - other).abs().max() < 3e-3 * other.abs().max()


@pytest.mark.gpu
@pytest.mark.parametrize("shape", [(4, 200), (16, 116), (1, 24)])
def test_fused_assignment_equals_plain_torch_in_value_and_gradient(shape):
    torch.manual_seed(0)
    logits = 3 * torch.randn(3, *shape, device="cuda")
    slope = torch.randn(3, *shape, device="cuda")

    def both(logits):
        def loss(logits, slope):
            plan = balanced_assignment(logits)
            return (plan * slope).sum(), plan

        return vmap(grad(loss, has_aux=True))(logits, slope.to(logits.dtype))

    with kernels.recorded() as used:
        ours = both(logits)
    assert used == {"assignment"}
    for one, other in zip(ours, both(logits.double())):
        # With one factor the assignment is fixed, and has no gradient.
        assert (one - other).abs().max() < 1e-5 * other.abs().max() + 1e-8


@pytest.mark.gpu
def test_node_input_equals_plain_torch_in_value_and_gradient():
    from brio_core.kernels.node_input import NodeInput

    torch.manual_seed(0)
    given = [torch.randn(3, *shape, device="cuda") for shape in ((116, 64), (64, 3), (21, 116, 3))]
    slope = torch.arange(64.0, device="cuda")

    def plain(base, local, descriptor):
        return functional.gelu(base + descriptor @ local.mT)

    def both(program):
        def loss(*given):
            return (program(*given) ** 2 * slope).sum()

        return vmap(grad(loss, argnums=(0, 1)))(*given)

    torch.testing.assert_close(vmap(NodeInput.apply)(*given), vmap(plain)(*given))
    for one, other in zip(both(NodeInput.apply), both(plain)):
        assert (one - other).abs().max() < 1e-5 * other.abs().max()
