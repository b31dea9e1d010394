"""The properties that FC-HGNN must have, and who hears whom in its population."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from synthetic import make_problem, settings_of

from brio_core.cohorts.stores import Rois
from brio_core.methods.fc_hgnn.method import FcHgnn, mutual
from brio_core.methods.interface import Batch
from brio_core.methods.training_scans import TrainView
from brio_core.system.errors import BrioError
from brio_core.training.checkpoints import Checkpoints
from brio_core.training.gradient import GradientFit
from brio_core.training.results import fold_logits
from brio_core.training.trainer import train

N_TRAIN, N_ROIS, N_SITES = 30, 12, 3
FEMALE, MALE, UNKNOWN = 0.0, 1.0, float("nan")


def subjects(count=N_TRAIN, seed=0, n_rois=N_ROIS, first_row=0):
    """Inputs of subjects of both sexes, one of them unknown."""
    generator = torch.Generator().manual_seed(seed)
    fc = 0.5 * torch.randn(count, n_rois, n_rois, generator=generator)
    fc = (fc + fc.mT) * ~torch.eye(n_rois, dtype=torch.bool)
    covariates = torch.randn(count, 3, generator=generator)
    covariates[:, 1] = torch.arange(count) % 3 == 0
    covariates[1, 1] = UNKNOWN
    return {"fc": fc, "covariates": covariates, "row": first_row + torch.arange(count)}


def view(inputs, order=None, **changes):
    count = len(inputs["row"])
    order = torch.arange(count) if order is None else order
    values = {
        "site": (torch.arange(count) * N_SITES // count)[order],
        "label": (torch.arange(count) % 2)[order],
        "n_sites": N_SITES,
        "n_rois": N_ROIS,
        "rois": Rois.named(f"roi{index}" for index in range(N_ROIS)),
        **{name: value[order] for name, value in inputs.items()},
    }
    return TrainView(**values | changes)


def make_model(train, width=None, **settings):
    """A model with random weights that knows its population, in float64."""
    torch.manual_seed(0)
    model = FcHgnn(settings_of("fc-hgnn", **settings), N_ROIS, N_SITES).double().eval()
    shared = {} if width is None else {"width": torch.tensor(width)}
    model.prepare(replace(train, shared=shared))
    with torch.no_grad():
        places = torch.arange(width or len(train.row))
        present = places < len(train.row)
        chosen = places.where(present, 0)
        inputs = {name: getattr(train, name)[chosen] for name in model.needs}
        model.memory.copy_(model.told(features(model, inputs), present))
    return model


def features(model, inputs):
    return model.features({**inputs, "fc": inputs["fc"].double()})


def predict(model, inputs):
    with torch.no_grad():
        return model.logits(features(model, inputs))


def fit(problem, tmp_path, group_size=None):
    return train(problem, Checkpoints(tmp_path, "test", 1e9), group_size)


# What every population model owes: no leaks, no order.


def test_labels_of_test_subjects_change_neither_training_nor_predictions(tmp_path):
    results, logits = [], []
    for flip in (False, True):
        problem, _ = make_problem("fc-hgnn", folds=slice(0, 1))
        fold = problem.data.folds[0]
        if flip:
            problem.data.label[fold.test] = 1 - problem.data.label[fold.test]
        results.append(fit(problem, tmp_path / str(flip))[0])
        logits.append(fold_logits(problem, results[-1], fold)["test"])
    assert results[0].history == results[1].history
    np.testing.assert_array_equal(*logits)


def test_a_test_subject_changes_its_own_output_only():
    model = make_model(view(subjects()))
    strangers = subjects(6, seed=1, first_row=100)
    before = predict(model, strangers)
    strangers["fc"][2] *= -0.5
    strangers["covariates"][2] = 0
    changed = predict(model, strangers) != before
    assert changed.tolist() == [False, False, True, False, False, False]


@pytest.mark.parametrize("rule", ["nearest", "phenotype"])
def test_training_graphs_are_symmetric_disjoint_and_without_evaluated_subjects(rule):
    train = view(subjects())
    model = make_model(train, width=N_TRAIN + 5, population_edges=rule, neighbours=4)
    found = features(model, subjects())
    graphs = mutual(found["heard"], found["place"], torch.ones(N_TRAIN, dtype=torch.bool))
    assert torch.equal(graphs, graphs.mT) and graphs.any()
    assert not (graphs[0] & graphs[1]).any()
    assert not graphs.diagonal(dim1=1, dim2=2).any()
    # Senders are training subjects; places without one are never heard.
    heard = features(model, subjects(6, seed=1, first_row=100))["heard"]
    assert heard.shape[-1] == N_TRAIN + 5 and not heard[..., N_TRAIN:].any()


@pytest.mark.parametrize("rule", ["nearest", "phenotype"])
def test_the_order_of_subjects_does_not_matter(rule):
    inputs, settings = subjects(), {"population_edges": rule, "neighbours": 4, "dropout": 0.0}
    order = torch.randperm(N_TRAIN, generator=torch.Generator().manual_seed(3))
    strangers = subjects(6, seed=1, first_row=100)
    model, other = make_model(view(inputs), **settings), make_model(view(inputs, order), **settings)
    torch.testing.assert_close(predict(model, strangers), predict(other, strangers))
    torch.testing.assert_close(model.memory[..., order, :], other.memory)
    # A shuffled batch is the same graph.
    present = torch.ones(N_TRAIN, dtype=torch.bool)
    found = features(model, inputs)
    shuffled = {name: value[order] for name, value in found.items()}
    model.train(), other.train()
    torch.testing.assert_close(
        model._together(found, present, None)[0][order],
        other._together(shuffled, present, None)[0],
    )


def test_a_subject_without_any_edge_gets_a_finite_output():
    inputs = subjects()
    inputs["fc"][0] = 0
    inputs["covariates"][:, 1] = MALE
    for rule in ("nearest", "phenotype"):
        model = make_model(view(inputs), population_edges=rule)
        assert not features(model, inputs)["heard"][:, 1].any()
        assert not model.few_edges
        assert torch.isfinite(predict(model, inputs)).all()
        batch = batch_of(model, inputs)
        gradients = torch.autograd.grad(model.train().loss(batch, "train")[0], model.head.weight)
        assert torch.isfinite(gradients[0]).all()


# The population.


def batch_of(model, inputs, absent=0):
    count = len(inputs["row"])
    chosen = torch.cat([torch.arange(count), torch.zeros(absent, dtype=torch.int64)])
    found = features(model, {name: value[chosen] for name, value in inputs.items()})
    site = torch.where(torch.arange(count + absent) < count, 0, -1)
    return Batch(found, chosen % 2, site, torch.tensor(7))


def test_neighbours_are_the_most_similar_others_of_either_sex():
    inputs = subjects()
    model = make_model(view(inputs), neighbours=4)
    queries = {name: torch.cat([value, value[:1]]) for name, value in inputs.items()}
    # The last one is the first subject again, but not by its row: it may hear its twin.
    queries["row"][-1] = -1
    row, column = np.triu_indices(N_ROIS, 1)
    flat = inputs["fc"].double().numpy()[:, row, column]
    flat = (flat - flat.mean(0)) / flat.std(0)
    flat /= np.linalg.norm(flat, axis=1, keepdims=True)
    sex = inputs["covariates"][:, 1].numpy()
    heard = features(model, queries)["heard"]
    for query in range(N_TRAIN + 1):
        own = query if query < N_TRAIN else 0
        order = [other for other in np.argsort(-flat @ flat[own]) if other != query]
        same = [other for other in order if sex[other] == sex[own]][:4]
        opposite = [other for other in order if sex[other] != sex[own]][:4]
        assert set(heard[query, 0].nonzero().flatten().tolist()) == set(same)
        assert set(heard[query, 1].nonzero().flatten().tolist()) == set(opposite)
    # Subject 1 has no known sex: all others are of the other kind.
    assert heard[1].sum(-1).tolist() == [0, 4]


def test_the_published_edges_cut_men_of_an_unseen_site_off():
    """Most subjects are men, so being one is no distance from the mean; a shared site is."""
    inputs = subjects(60)
    inputs["covariates"][:, 1] = torch.where(torch.arange(60) % 6 == 0, FEMALE, MALE)
    train = replace(view(inputs), site=torch.arange(60) // 10, n_sites=6)
    model = make_model(train, population_edges="phenotype")
    found = features(model, inputs)["heard"].any(1)
    sex, same_site = inputs["covariates"][:, 1], train.site[:, None] == train.site
    assert found[sex == MALE].any() and not (found & ~same_site)[sex == MALE].any()
    strangers = subjects(6, seed=1, first_row=100)
    strangers["covariates"][:, 1] = MALE
    assert not features(model, strangers)["heard"].any()
    # The published arithmetic: the diagonal is 0 and belongs to mean and deviation.
    score = (sex[:, None] == sex).double() + same_site
    score.fill_diagonal_(0)
    scaled = (score - score.mean(0)) / score.std(0, correction=0)
    assert torch.equal(found, (scaled > 1.5).T)


def test_stand_ins_count_nowhere():
    inputs = subjects()
    model = make_model(view(inputs), dropout=0.0)
    padded = make_model(view(inputs), width=N_TRAIN + 6, dropout=0.0)
    strangers = subjects(6, seed=1, first_row=100)
    torch.testing.assert_close(predict(model, strangers), predict(padded, strangers))
    assert not padded.memory[..., N_TRAIN:, :].any()
    model.train(), padded.train()
    plain = model.loss(batch_of(model, inputs), "train")[0]
    torch.testing.assert_close(plain, padded.loss(batch_of(padded, inputs, 6), "train")[0])
    for name, value in model.network.norms.state_dict().items():
        torch.testing.assert_close(value, padded.network.norms.state_dict()[name])


def test_folds_of_unequal_size_train_together(tmp_path):
    problem, _ = make_problem("fc-hgnn", folds=slice(0, 2))
    short = replace(problem.data.folds[0], train=problem.data.folds[0].train[:-5])
    logits = []
    for name, folds in (("alone", [short]), ("beside", [short, problem.data.folds[1]])):
        problem, _ = make_problem("fc-hgnn", folds=slice(0, 2))
        problem.data.folds = folds
        result = fit(problem, tmp_path / name)[0]
        assert result.state["memory"].shape[-2] == max(len(fold.train) for fold in folds)
        logits.append(fold_logits(problem, result, short)["test"])
    np.testing.assert_allclose(*logits, rtol=1e-3, atol=1e-3)


def test_a_group_without_the_largest_fold_has_room_for_it_all_the_same(tmp_path):
    """Folds that go on alone, or in smaller groups, keep the shapes that they began with."""
    problem, _ = make_problem("fc-hgnn", folds=slice(0, 3))
    problem.data.folds[1:] = [
        replace(fold, train=fold.train[:-2]) for fold in problem.data.folds[1:]
    ]
    together = fit(problem, tmp_path / "together")
    alone = fit(problem, tmp_path / "alone", group_size=1)
    for fold, one, other in zip(problem.data.folds, together, alone):
        logits = [fold_logits(problem, result, fold)["test"] for result in (one, other)]
        np.testing.assert_allclose(*logits, rtol=1e-3, atol=1e-3)


def test_the_checkpoint_remembers_what_its_training_subjects_told(tmp_path):
    problem, _ = make_problem("fc-hgnn", folds=slice(0, 1))
    run = GradientFit(problem, problem.data.folds, memory_budget=1 << 30)
    run.run(lambda _: None, "test")
    fold = problem.data.folds[0]
    module = problem.restored(fold, {name: value[0] for name, value in run.best.items()}, {})
    inputs = {name: value[fold.train] for name, value in problem.inputs.items()}
    with torch.no_grad():
        told = module.told(module.features(inputs), torch.ones(len(fold.train), dtype=torch.bool))
    assert module.memory.any()
    torch.testing.assert_close(module.memory, told, rtol=1e-4, atol=1e-5)


def test_a_training_subject_is_asked_as_if_it_were_new(tmp_path):
    """It does not hear its own node, neither with its full scan nor with a re-estimate."""
    problem, _ = make_problem("fc-hgnn", folds=slice(0, 1))
    result, fold = fit(problem, tmp_path)[0], problem.data.folds[0]
    module = problem.restored(fold, result.state, result.chosen)
    rows = torch.as_tensor(fold.train)
    inputs = {name: value[rows] for name, value in problem.inputs.items()}
    again = problem.scans.reestimate(rows, torch.tensor(4), 0, 1)[:, 0]
    for fc in (inputs["fc"], again):
        found = module.features({**inputs, "fc": fc})
        assert torch.equal(found["place"], torch.arange(len(rows)))
        assert not found["heard"].diagonal(dim1=0, dim2=2).any()
        before = module.logits(found)
        told = module.memory.clone()
        module.memory[..., 0, :] += 1
        moved = module.logits(found) != before
        assert not moved[0] and moved[1:].any()
        module.memory.copy_(told)


# The graph of a brain; its encoder has a file of its own.


def test_a_density_replaces_a_threshold_that_leaves_hardly_an_edge():
    inputs = subjects()
    weak = {**inputs, "fc": 0.1 * inputs["fc"]}
    model, sparse = make_model(view(inputs)), make_model(view(weak))
    assert not model.few_edges and sparse.few_edges
    fc, edges = model.ordered(inputs["fc"].double())
    assert torch.equal(edges, fc.abs() > 0.65)
    # Decided on the training subjects, for all.
    _, edges = sparse.ordered(subjects(4, seed=1)["fc"].double())
    assert (edges.sum(-1) >= 3).all() and torch.equal(edges, edges.mT)
    assert not edges.diagonal(dim1=1, dim2=2).any()


@pytest.mark.parametrize(
    "change", [{"population_edges": "all"}, {"kept": 0.0}, {"neighbours": 0}, {"sampler": "sites"}]
)
def test_bad_settings_are_named(change):
    with pytest.raises(BrioError, match=next(iter(change))):
        settings_of("fc-hgnn", **change)
