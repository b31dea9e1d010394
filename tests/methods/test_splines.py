"""Degree-1 splines and their convolution."""

import pytest
import torch

from brio_core.methods.agmgc.splines import (
    SplineConvolution,
    hat_basis,
    product_basis,
    spline_operator,
)

GENERATOR = torch.Generator().manual_seed(0)
FC = torch.randn(3, 8, 8, generator=GENERATOR).double()
COORDINATES = ((FC + FC.mT).tanh() + 1) / 2
MASK = torch.rand(3, 8, 8, generator=GENERATOR) > 0.6
NODES = torch.randn(3, 8, 4, generator=GENERATOR).double()


@pytest.mark.parametrize("points", [2, 3, 5])
def test_basis_is_a_partition_of_unity_with_two_members_at_most(points):
    basis = hat_basis(torch.linspace(0, 1, 201).double(), points)
    assert (basis >= 0).all() and ((basis > 1e-12).sum(-1) <= 2).all()
    torch.testing.assert_close(basis.sum(-1), torch.ones(201).double())
    ends = torch.eye(points).double()
    torch.testing.assert_close(hat_basis(torch.linspace(0, 1, points).double(), points), ends)


def test_product_basis_is_a_partition_of_unity_too():
    places = torch.rand(40, 3, generator=torch.Generator().manual_seed(3)).double()
    basis = product_basis(places, 3)
    assert basis.shape == (40, 27) and ((basis > 0).sum(-1) <= 8).all()
    torch.testing.assert_close(basis.sum(-1), torch.ones(40).double())
    x, y, z = hat_basis(places, 3).unbind(-2)
    torch.testing.assert_close(basis.view(40, 3, 3, 3)[:, 2, 0, 1], x[:, 2] * y[:, 0] * z[:, 1])


def test_convolution_equals_a_loop_over_edges():
    torch.manual_seed(1)
    layer = SplineConvolution(4, 6, 5).double()
    found = layer(NODES, spline_operator(hat_basis(COORDINATES, 5), MASK))
    thetas = layer.thetas.weight.unflatten(1, (5, 4))
    for graph in range(3):
        for u in range(8):
            wanted = layer.root(NODES[graph, u])
            near = MASK[graph, u].nonzero().flatten().tolist()
            for v in near:
                basis = hat_basis(COORDINATES[graph, u, v], 5)
                kernel = (basis[None, :, None] * thetas).sum(1)
                wanted = wanted + kernel @ NODES[graph, v] / len(near)
            torch.testing.assert_close(found[graph, u], wanted)


def test_equal_matrices_make_it_a_mean_over_neighbours():
    torch.manual_seed(2)
    layer = SplineConvolution(4, 6, 5).double()
    one = torch.randn(6, 4).double()
    with torch.no_grad():
        layer.thetas.weight.copy_(one.repeat(1, 5))
    mean = MASK.double() / MASK.sum(-1, keepdim=True).clamp_min(1)
    wanted = mean @ NODES @ one.T + layer.root(NODES)
    torch.testing.assert_close(
        layer(NODES, spline_operator(hat_basis(COORDINATES, 5), MASK)), wanted
    )
