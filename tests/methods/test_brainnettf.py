"""The properties that BrainNetTF must have."""

import pytest
import torch
import yaml
from synthetic import METHODS, make_problem, settings_of
from torch.nn import functional

from brio_core.methods.brainnettf.method import BrainNetTf, BrainNetTfHyperparameters
from brio_core.methods.interface import Batch
from brio_core.methods.layers.mixup import Blend, draw_blend, mix
from brio_core.system.errors import BrioError
from brio_core.training.gradient import GradientFit


def full_settings(**overrides):
    presets = yaml.safe_load((METHODS / "brainnettf.yaml").read_text())["presets"]
    return BrainNetTfHyperparameters.of({**presets["common"], **overrides}, "brainnettf")


def random_fc(n_rois, batch=3):
    fc = torch.randn(batch, n_rois, n_rois, generator=torch.Generator().manual_seed(0)) * 0.4
    return (fc + fc.mT) * ~torch.eye(n_rois, dtype=torch.bool)


def make(n_rois=12, **overrides):
    torch.manual_seed(1)
    return BrainNetTf(settings_of("brainnettf", **overrides), n_rois, 4)


def make_batch(model, label, n_rois=12):
    features = model.features({"fc": random_fc(n_rois, len(label))})
    return Batch(features, torch.tensor(label), torch.zeros(len(label)), torch.tensor(3))


def test_centres_stay_orthonormal_while_everything_else_learns():
    problem, _ = make_problem("brainnettf")
    run = GradientFit(problem, problem.data.folds, memory_budget=1 << 30)
    before = run.stack.buffers["clusters.centres"].clone()
    run.run(lambda _: None, "test")
    centres = run.stack.buffers["clusters.centres"]
    assert torch.equal(centres, before) and len(centres) == len(problem.data.folds)
    identity = torch.eye(centres.shape[1]).expand(len(centres), -1, -1)
    torch.testing.assert_close(centres @ centres.mT, identity, rtol=0, atol=1e-5)


def test_permuting_the_centres_permutes_the_clusters_and_nothing_else():
    readout = make().clusters
    nodes = torch.randn(3, 12, 12, generator=torch.Generator().manual_seed(2))
    torch.testing.assert_close(readout.assign(nodes).sum(-1), torch.ones(3, 12))
    before = readout(nodes)
    order = torch.randperm(len(readout.centres), generator=torch.Generator().manual_seed(3))
    readout.centres = readout.centres[order]
    torch.testing.assert_close(readout(nodes), before[:, order])


@pytest.mark.parametrize(
    ("n_rois", "heads", "clusters"), [(24, 4, 12), (116, 4, 100), (200, 4, 100), (10, 2, 5)]
)
def test_sizes_follow_the_number_of_rois(n_rois, heads, clusters):
    model = BrainNetTf(full_settings(), n_rois, 4).eval()
    assert model.layers[0].attention.heads == heads
    assert model.clusters.centres.shape == (clusters, n_rois)
    with torch.no_grad():
        features = model.features({"fc": random_fc(n_rois)})
        represented = model.represent(features)
        assert represented.shape == (3, 32) and model.head(represented).shape == (3, 2)
        logits = model.head(represented)
        torch.testing.assert_close(model.logits(features), logits[:, 1] - logits[:, 0])


def test_sizes_that_cannot_be_are_refused_with_both_numbers():
    with pytest.raises(BrioError, match=r"clusters is 13, .* 12 ROIs"):
        make(clusters=13)
    with pytest.raises(BrioError, match=r"heads is 5, .* 12 ROIs"):
        make(heads=5)
    assert make(clusters=12, heads=3).clusters.centres.shape == (12, 12)


def test_mixup_that_keeps_everything_reproduces_the_unmixed_loss():
    model = make()
    batch = make_batch(model, [0, 1, 1, 0])
    whole = Blend(torch.tensor(1.0), torch.tensor([2, 3, 1, 0]))
    assert torch.equal(model.mixed_loss(batch, whole), model.mixed_loss(batch, None))
    assert torch.equal(make(mixup=False).loss(batch, "train")[0], model.mixed_loss(batch, None))


def test_mixed_labels_give_the_mixture_of_two_cross_entropies():
    model = make(dropout=0.0)
    batch = make_batch(model, [0, 1, 1, 0, 1])
    blend = draw_blend(batch.key, 5)
    logits = model.head(model.encode(mix(batch.features["nodes"], blend), None))
    own = functional.cross_entropy(logits, batch.label, reduction="sum")
    other = functional.cross_entropy(logits, batch.label[blend.partner], reduction="sum")
    wanted = blend.share * own + (1 - blend.share) * other
    torch.testing.assert_close(model.loss(batch, "train")[0], wanted)


def test_the_loss_of_a_batch_is_the_sum_over_its_subjects():
    model = make(dropout=0.0, mixup=False)
    batch = make_batch(model, [0, 1, 1, 0])
    alone = [
        model.loss(
            Batch({"nodes": batch.features["nodes"][[i]]}, batch.label[[i]], None, batch.key), ""
        )[0]
        for i in range(4)
    ]
    torch.testing.assert_close(model.loss(batch, "train")[0], sum(alone))


def test_the_bottleneck_sees_the_whole_graph():
    model = make().eval()
    nodes = torch.randn(1, 144, generator=torch.Generator().manual_seed(4), requires_grad=True)
    model.bottleneck(nodes)[0, 0].backward()
    assert (nodes.grad != 0).all()


def test_inputs_are_bounded_and_pearson_has_a_diagonal_of_ones():
    fc = random_fc(12)
    fc[0, 0, 1] = fc[0, 1, 0] = 9.0
    nodes = make().features({"fc": fc})["nodes"]
    assert abs(nodes[0, 0, 1].tanh() - 0.999) < 1e-5
    assert torch.equal(nodes.diagonal(dim1=1, dim2=2), torch.zeros(3, 12))
    pearson = make(input="pearson").features({"fc": fc})["nodes"]
    torch.testing.assert_close(pearson - torch.eye(12), nodes.tanh())
