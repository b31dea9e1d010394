"""BrainNetTF, and mixup, which it shares with XG-GNN."""

import pytest
import torch
import yaml
from synthetic import METHODS, make_problem, settings_of
from torch import nn
from torch.func import grad, vmap
from torch.nn import functional

from brio_core.methods.brainnettf import (
    BrainNetTf,
    BrainNetTfHyperparameters,
    EncoderLayer,
    OrthonormalReadout,
    attend,
)
from brio_core.methods.interface import Batch
from brio_core.methods.layers.series import Blend, draw_blend, mix
from brio_core.system.errors import BrioError
from brio_core.system.randomness import uniform
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


NODES = torch.randn(3, 12, 12, generator=torch.Generator().manual_seed(0))


def make_layer(width=12, heads=2, rate=0.1):
    torch.manual_seed(1)
    layer = EncoderLayer(width, heads, 20, rate)
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return layer


def library_layer(layer, width, heads):
    """torch's layer with the same weights; its keys have a bias, which is left at zero."""
    reference = nn.TransformerEncoderLayer(
        d_model=width, nhead=heads, dim_feedforward=20, batch_first=True, bias=True
    ).eval()
    attention = layer.attention
    zero = torch.zeros(width)
    with torch.no_grad():
        for target, source in (
            (reference.self_attn.in_proj_weight, attention.enter.weight),
            (
                reference.self_attn.in_proj_bias,
                torch.cat([attention.query_bias, zero, attention.value_bias]),
            ),
            (reference.self_attn.out_proj.weight, attention.leave.weight),
            (reference.self_attn.out_proj.bias, layer.attention_bias),
            (reference.norm1.weight, layer.attention_norm.weight),
            (reference.norm1.bias, layer.attention_norm.bias),
            (reference.linear1.weight, layer.first.weight),
            (reference.linear1.bias, layer.first.bias),
            (reference.linear2.weight, layer.second.weight),
            (reference.linear2.bias, layer.second.bias),
            (reference.norm2.weight, layer.norm.weight),
            (reference.norm2.bias, layer.norm.bias),
        ):
            target.copy_(source)
    return reference


# Heads of 6 and 4 units are filled up with zeros, a head of 16 is not.
@pytest.mark.parametrize(("width", "heads"), [(12, 2), (12, 3), (16, 1)])
def test_layer_equals_the_one_of_torch(width, heads):
    layer = make_layer(width, heads)
    nodes = torch.randn(3, 9, width, generator=torch.Generator().manual_seed(2))
    torch.testing.assert_close(
        layer(nodes), library_layer(layer, width, heads)(nodes), rtol=1e-4, atol=1e-5
    )


def test_permuting_nodes_permutes_the_answer():
    order = torch.randperm(12, generator=torch.Generator().manual_seed(3))
    layer = make_layer()
    torch.testing.assert_close(layer(NODES)[:, order], layer(NODES[:, order]))


def test_dropout_acts_in_four_places_with_streams_of_their_own():
    key, layer = torch.tensor(5), make_layer(rate=0.3)

    def drop(values, stream):
        return values * (uniform(key, tuple(values.shape), stream) >= 0.3) / 0.7

    attention = layer.attention
    entered = NODES @ attention.enter.weight.T
    query, sent, value = (part.unflatten(-1, (2, 6)) for part in entered.chunk(3, -1))
    query = query + attention.query_bias.view(2, 6)
    value = value + attention.value_bias.view(2, 6)
    scores = torch.einsum("bihd,bjhd->bhij", query, sent) / 6**0.5
    weights = drop(scores.softmax(-1), 7)
    heard = torch.einsum("bhij,bjhd->bihd", weights, value).flatten(-2)
    heard = heard @ attention.leave.weight.T + layer.attention_bias
    nodes = layer.attention_norm(NODES + drop(heard, 8))
    inner = drop(layer.first(nodes).relu(), 9)
    wanted = layer.norm(nodes + drop(layer.second(inner), 10))
    torch.testing.assert_close(layer(NODES, key, 7), wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("n_rois", "heads", "units"), [(9, 2, 8), (60, 3, 16), (116, 2, 16), (200, 4, 56), (400, 2, 16)]
)
def test_attention_kernel_equals_its_twin(n_rois, heads, units):
    torch.manual_seed(0)
    nodes, above = torch.randn(2, 3, n_rois, 12), torch.randn(2, 3, n_rois, heads * units)
    enter = 0.3 * torch.randn(2, 3, heads, units, 12)
    # As a layer has it: the spare places of queries and values come from ones alone.
    enter[:, ::2, :, units - 2] = 0

    def loss(nodes, enter, above, key):
        heard = attend(nodes, enter, units - 2, 0.2, key, 3)
        return (heard * above).sum(), heard

    results = []
    for device in ("cpu", "cuda"):
        inputs = [part.to(device) for part in (nodes, enter, above, torch.tensor([5, 6]))]
        slopes, heard = vmap(grad(loss, argnums=(0, 1), has_aux=True))(*inputs)
        # A fill's own gradient is never asked for.
        slopes[1][:, ::2, :, units - 2] = 0
        results.append([part.cpu() for part in (*slopes, heard)])
    for plain, fused in zip(*results):
        assert (plain - fused).abs().max() < 1e-4 * plain.abs().max()


CLUSTERED = torch.randn(4, 9, 12, generator=torch.Generator().manual_seed(0))


def make_readout(clusters=5):
    torch.manual_seed(1)
    return OrthonormalReadout(clusters, 12)


def test_centres_are_orthonormal_and_no_parameters():
    for clusters in (1, 5, 12):
        centres = make_readout(clusters).centres
        torch.testing.assert_close(centres @ centres.T, torch.eye(clusters), rtol=0, atol=1e-5)
    assert list(make_readout().parameters()) == [] and "centres" in make_readout().state_dict()


def test_assignment_is_a_softmax_of_squared_products():
    readout = make_readout()
    found = readout.assign(CLUSTERED)
    torch.testing.assert_close(found.sum(-1), torch.ones(4, 9))
    powers = torch.tensor([float(CLUSTERED[2, 3] @ centre) ** 2 for centre in readout.centres])
    torch.testing.assert_close(found[2, 3], powers.softmax(0))


def test_clusters_are_sums_of_nodes_by_assignment():
    readout = make_readout()
    wanted = torch.einsum("buk,bud->bkd", readout.assign(CLUSTERED), CLUSTERED)
    torch.testing.assert_close(readout(CLUSTERED), wanted)


VALUES = torch.randn(7, 3, 2, generator=torch.Generator().manual_seed(0))


def test_blend_is_a_share_and_a_permutation_that_depend_on_the_key_alone():
    shares = []
    for seed in range(200):
        share, partner = draw_blend(torch.tensor(seed), 7)
        assert sorted(partner.tolist()) == list(range(7))
        shares.append(share)
    again = draw_blend(torch.tensor(199), 7)
    assert torch.equal(again.share, share) and torch.equal(again.partner, partner)
    shares = torch.stack(shares)
    # Beta(1, 1) is uniform: mean 1/2, variance 1/12.
    assert abs(shares.mean() - 0.5) < 0.06 and abs(shares.var() - 1 / 12) < 0.02


def test_mix_is_the_weighted_sum_of_rows_and_partners():
    share, partner = torch.tensor(0.3), torch.tensor([3, 1, 0, 2, 6, 5, 4])
    wanted = 0.3 * VALUES + 0.7 * VALUES[partner]
    torch.testing.assert_close(mix(VALUES, Blend(share, partner)), wanted)
    assert torch.equal(mix(VALUES, Blend(torch.tensor(1.0), partner)), VALUES)


def test_mix_runs_under_vmap():
    keys, values = torch.arange(3), torch.stack([VALUES, 2 * VALUES, 3 * VALUES])
    mixed = vmap(lambda key, rows: mix(rows, draw_blend(key, 7)))(keys, values)
    for one, key, rows in zip(mixed, keys, values):
        torch.testing.assert_close(one, mix(rows, draw_blend(key, 7)))
