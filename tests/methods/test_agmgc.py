"""The properties that our reading of AGMGC must have."""

import pytest
import torch
from synthetic import settings_of
from torch.func import grad

from brio_core.cohorts.stores import Rois
from brio_core.connectivity.graphs import neighbours_per_roi
from brio_core.methods.agmgc.contrastive import nt_xent
from brio_core.methods.agmgc.method import Agmgc
from brio_core.methods.agmgc.splines import hat_basis
from brio_core.methods.interface import Batch, binary_cross_entropy
from brio_core.methods.train_view import TrainView
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
