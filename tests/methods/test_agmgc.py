"""The properties that the reimplemented AGMGC must have."""

import math

import pytest
import torch
from synthetic import settings_of
from torch.func import grad
from torch.nn import functional

from brio_core.cohorts.stores import Rois
from brio_core.connectivity.graphs import neighbours_per_roi
from brio_core.methods.agmgc import (
    Agmgc,
    MultiGraphConvolution,
    SplineConvolution,
    hat_basis,
    nt_xent,
    product_basis,
    spline_operator,
)
from brio_core.methods.interface import Batch, binary_cross_entropy
from brio_core.methods.training_scans import TrainView
from brio_core.system.errors import BrioError

LABEL = torch.tensor([0, 1, 1, 0, 1])


def random_fc(n_rois=24, batch=5):
    generator = torch.Generator().manual_seed(0)
    fc = torch.randn(batch, n_rois, n_rois, generator=generator).double() * 0.6
    return (fc + fc.mT) * ~torch.eye(n_rois, dtype=torch.bool)


def make(n_rois=24, **overrides):
    torch.manual_seed(1)
    return Agmgc(settings_of("agmgc", **overrides), n_rois, 4).double()


def make_batch(model, **features):
    features = {**model.features({"fc": random_fc()}), **features}
    return Batch(features, LABEL, torch.zeros(5), torch.tensor(3))


def test_edges_lie_on_the_spline_by_their_correlation():
    model = make()
    splines = model.features({"fc": random_fc()})["splines"]
    assert splines.shape == (5, 24, 5, 24)
    # However large Fisher z is, an edge counts once in the mean over neighbours.
    torch.testing.assert_close(splines.sum((-1, -2)), torch.ones(5, 24).double())
    fc = random_fc()
    u, v = 3, int(fc[0, 3].abs().argmax())
    near = splines[0, u].sum(0) > 0
    wanted = hat_basis((fc[0, u, v].tanh() + 1) / 2, 5) / near.sum()
    torch.testing.assert_close(splines[0, u, :, v], wanted)


@pytest.mark.parametrize("scale", [1.0, 1e4])
def test_learnt_graph_is_symmetric_non_negative_hollow_and_sparse(scale):
    model = make()
    with torch.no_grad():
        # At the larger scale tanh is exactly 1 for many edges: ties must not add edges.
        model.learner.query.weight.mul_(scale)
    learnt = model.learner(model.stem(random_fc()))
    assert torch.equal(learnt, learnt.mT) and (learnt >= 0).all()
    assert (learnt.diagonal(dim1=1, dim2=2) == 0).all()
    k = neighbours_per_roi(24, 0.2)
    assert k == 5
    count = (learnt > 0).sum((-1, -2))
    assert (count <= 2 * k * 24).all() and (count > 0).all()


def test_the_classification_loss_teaches_the_learner():
    model = make()
    batch = make_batch(model)
    logits = model.logits(batch.features)
    wanted = [model.learner.query.weight, model.learner.key.weight]
    for slope in torch.autograd.grad(binary_cross_entropy(logits, LABEL), wanted):
        assert (slope != 0).any()


def test_kept_edges_are_differentiated_and_their_choice_is_not():
    model = make()
    hidden = model.stem(random_fc()).detach()
    slope = grad(lambda hidden: model.learner(hidden).sum())(hidden)
    # The same with the mask held fixed by hand.
    mask = model.learner(hidden) > 0

    def fixed(hidden):
        query, key = model.learner.query(hidden), model.learner.key(hidden)
        scores = (query @ key.mT + key @ query.mT) / (2 * query.shape[-1] ** 0.5)
        return (scores.tanh().relu() * mask).sum()

    torch.testing.assert_close(slope, grad(fixed)(hidden))


def test_contrast_compares_the_two_graphs_through_the_same_weights():
    model = make()
    batch = make_batch(model)
    encoded = model.encode(batch.features, views=True)
    alone = []
    for number in (0, 1):
        one = make()
        with torch.no_grad():
            for layer in one.multigraphs:
                layer.mixing.copy_(torch.tensor([50.0, -50.0] if number == 0 else [-50.0, 50.0]))
        views = one.encode(batch.features, views=False).views
        torch.testing.assert_close(encoded.views[:, :, number + 1], views[:, :, 0])
        projected = model.projector(views[:, :, 0].mean(1))
        alone.append(projected / projected.norm(dim=-1, keepdim=True))
    torch.testing.assert_close(model.contrast(encoded.views), nt_xent(*alone, 0.5))


def test_loss_is_risk_plus_contrast_plus_mean_learnt_weight():
    model = make(dropout=0.0, lambda_contrast=0.7, lambda_sparsity=0.3)
    batch = make_batch(model)
    loss, logs = model.loss(batch, "train")
    encoded = model.encode(batch.features, views=True)
    risk = binary_cross_entropy(model.logits(batch.features), LABEL)
    wanted = risk + 0.7 * model.contrast(encoded.views) + 0.3 * encoded.learnt.mean()
    torch.testing.assert_close(loss, wanted)
    assert 0 < logs["overlap"] < 1
    same = make_batch(model, correlations=torch.ones(5, 24, 24).double())
    assert model.loss(same, "train")[1]["overlap"] == 1


def test_permuting_rois_and_the_columns_of_the_stem_changes_nothing():
    model, fc = make(), random_fc()
    before = model.represent(model.features({"fc": fc}))
    order = torch.randperm(24, generator=torch.Generator().manual_seed(2))
    with torch.no_grad():
        model.stem[0].weight.copy_(model.stem[0].weight[:, order])
    after = model.represent(model.features({"fc": fc[:, order][:, :, order]}))
    torch.testing.assert_close(after, before)


def view(centroids):
    rois = Rois(tuple(f"roi{i}" for i in range(24)), centroids, ("n/a",) * 24)
    site = torch.arange(5) % 2
    return TrainView(fc=random_fc(), site=site, label=LABEL, n_sites=2, n_rois=24, rois=rois)


def test_edges_may_lie_on_the_splines_by_the_offsets_of_their_rois():
    generator = torch.Generator().manual_seed(4)
    centroids = 40 * torch.randn(24, 3, generator=generator).numpy()
    model = make(coordinates="offsets", control_points=3)
    model.prepare(view(centroids))
    features = model.features({"fc": random_fc()})
    assert features["splines"].shape == (5, 24, 27, 24)
    torch.testing.assert_close(features["splines"].sum((-1, -2)), torch.ones(5, 24).double())
    basis = model.basis(random_fc())
    # No offset is the middle of the cube; the way back mirrors the way there.
    assert basis[0, 0, 13] == 1
    torch.testing.assert_close(basis[3, 7], basis[7, 3].flip(-1))
    assert torch.isfinite(model.logits(features)).all()


def test_offsets_need_centroids():
    model = make(coordinates="offsets", control_points=3)
    with pytest.raises(BrioError, match="centroids of the ROIs are unknown"):
        model.prepare(view(Rois.named(str(i) for i in range(24)).centroids))


def test_a_spline_needs_two_control_points():
    with pytest.raises(BrioError, match="control_points is 1"):
        make(control_points=1)


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


OPERATORS = [torch.randn(3, 7, 7, generator=GENERATOR) for _ in range(2)]
VIEWS = torch.randn(3, 7, 1, 4, generator=GENERATOR)


def make_convolution(mixing):
    torch.manual_seed(1)
    layer = MultiGraphConvolution(4, 5, 2)
    with torch.no_grad():
        layer.mixing.copy_(torch.tensor(mixing))
    return layer


def wanted(layer, nodes, shares):
    heard = [
        share * (operator @ nodes @ weight.weight.T)
        for share, operator, weight in zip(shares, OPERATORS, layer.weights)
    ]
    return functional.gelu(sum(heard) + layer.own(nodes))


def test_graphs_start_with_equal_shares():
    layer = MultiGraphConvolution(4, 5, 2)
    assert layer.mixing.softmax(0).tolist() == [0.5, 0.5]


def test_views_are_the_mixture_and_every_graph_alone():
    layer = make_convolution([0.3, -0.9])
    found = layer(VIEWS, OPERATORS, views=True)
    shares = [layer.mixing.softmax(0), (1, 0), (0, 1)]
    for view, share in enumerate(shares):
        torch.testing.assert_close(found[:, :, view], wanted(layer, VIEWS[:, :, 0], share))
    torch.testing.assert_close(layer(VIEWS, OPERATORS, views=False), found[:, :, :1])


def test_views_that_come_in_stay_apart():
    layer = make_convolution([0.3, -0.9])
    nodes = torch.randn(3, 7, 3, 4, generator=torch.Generator().manual_seed(2))
    found = layer(nodes, OPERATORS, views=True)
    shares = [layer.mixing.softmax(0), (1, 0), (0, 1)]
    for view, share in enumerate(shares):
        torch.testing.assert_close(found[:, :, view], wanted(layer, nodes[:, :, view], share))


@pytest.mark.parametrize("temperature", [0.1, 0.5, 2.0])
@pytest.mark.parametrize("count", [1, 2, 6])
def test_identical_views_are_found_by_guessing(count, temperature):
    views = functional.normalize(torch.ones(count, 8), dim=-1)
    found = nt_xent(views, views, temperature)
    torch.testing.assert_close(found, torch.tensor(math.log(2 * count - 1)), atol=1e-5, rtol=0)


@pytest.mark.parametrize("temperature", [0.1, 0.5, 2.0])
def test_paired_views_among_orthogonal_ones(temperature):
    views = torch.eye(8)[:6]
    wanted = math.log(1 + (2 * 6 - 2) * math.exp(-1 / temperature))
    found = nt_xent(views, views, temperature)
    torch.testing.assert_close(found, torch.tensor(wanted), atol=1e-5, rtol=1e-5)
    assert nt_xent(views, views[[1, 0, 3, 2, 5, 4]], temperature) > found + 0.1


def test_loss_equals_a_loop_over_both_directions():
    generator = torch.Generator().manual_seed(0)
    one, other = functional.normalize(torch.randn(2, 5, 3, generator=generator), dim=-1)
    views = torch.cat([one, other])
    losses = []
    for i in range(10):
        near = torch.stack([views[i] @ views[j] / 0.5 for j in range(10) if j != i])
        partner = views[i] @ views[(i + 5) % 10] / 0.5
        losses.append(near.logsumexp(0) - partner)
    torch.testing.assert_close(nt_xent(one, other, 0.5), torch.stack(losses).mean())
    torch.testing.assert_close(nt_xent(one, other, 0.5), nt_xent(other, one, 0.5))
