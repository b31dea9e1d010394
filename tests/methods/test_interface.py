"""What every method owes to the trainer and to its users."""

import inspect
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml
from synthetic import inputs_of, make_cohort, make_problem, settings_of

from brio_core.cohorts.stores import Rois
from brio_core.methods import registry
from brio_core.methods.interface import TRAIN, Batch, GradientMethod, PathMethod
from brio_core.methods.training_scans import TrainView
from brio_core.training.checkpoints import Checkpoints
from brio_core.training.gradient import GradientFit
from brio_core.training.results import fold_logits, read_models, write_models
from brio_core.training.trainer import groups, train

CONFIG = Path(__file__).parents[2] / "config" / "methods"
METHODS = registry.names()
GRADIENT = [name for name in METHODS if issubclass(registry.find(name), GradientMethod)]

# Its convolutions have gradients of which some are rounding noise; Adam makes full steps of them.
SLOWER = {"xg-gnn": {"learning_rate": 1e-4, "inner_learning_rate": 1e-4}}


def fit(problem, tmp_path, **options):
    return train(
        problem,
        Checkpoints(tmp_path / "unfinished", "test", 1e9),
        **{"group_size": None, **options},
    )


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """``trained(name)`` is a problem and the results of all its folds, which are trained once."""

    @cache
    def make(name):
        problem, _ = make_problem(name, **SLOWER.get(name, {}))
        return problem, fit(problem, tmp_path_factory.mktemp("trained"))

    return make


@pytest.fixture(scope="module")
def last():
    """``last(name)`` is a problem of one fold, its initial state and its last one."""

    @cache
    def make(name):
        problem, _ = make_problem(name, *make_cohort(), folds=slice(0, 1))
        return problem, *states(problem)

    return make


def same_state(one, other):
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


@pytest.mark.parametrize("name", METHODS)
class TestMethod:
    def test_presets_are_complete(self, name):
        presets = yaml.safe_load((CONFIG / f"{name}.yaml").read_text())["presets"]
        settings = registry.find(name).Hyperparameters
        settings.of(presets["common"], name)
        settings.of({**presets["common"], **presets.get("published", {})}, name)

    def test_predictions_see_neither_label_nor_site(self, name):
        method = registry.find(name)
        assert list(inspect.signature(method.logits).parameters) == ["self", "features"]
        assert list(inspect.signature(method.represent).parameters) == ["self", "features"]
        made_of = list(inspect.signature(method.features).parameters)
        assert made_of == ["self", "inputs", "precision"]

    def test_nothing_fitted_depends_on_validation_or_test_scans(self, name, last):
        cohort, table = make_cohort()
        problem, _, state = last(name)
        fold = problem.data.folds[0]
        changed, _ = make_cohort(seed=1)
        outside = np.setdiff1d(np.arange(len(cohort.subjects)), fold.train)
        replaced = replace_scans(cohort, changed, outside)
        other, _ = make_problem(name, replaced, table, folds=slice(0, 1))
        assert not np.array_equal(problem.data.cohort.fc, other.data.cohort.fc)
        assert same_state(state, states(other)[1])

    def test_evaluation_is_deterministic_and_independent_of_the_batch(self, name, trained):
        problem, (result, *_) = trained(name)
        fold = problem.data.folds[0]
        module = problem.restored(fold, result.state, result.chosen)
        with torch.no_grad():
            together = module.logits(module.features(inputs_of(problem)))
            again = module.logits(module.features(inputs_of(problem)))
            alone = [
                module.logits(module.features(inputs_of(problem, [row])))
                for row in range(len(problem.data.cohort.subjects))
            ]
            alone = torch.cat(alone)
        assert torch.equal(together, again)
        torch.testing.assert_close(together, alone, rtol=1e-5, atol=1e-5)

    def test_models_survive_the_disk(self, name, trained, tmp_path):
        problem, results = trained(name)
        write_models(tmp_path / "models.pt", problem, results)
        models = read_models(tmp_path / "models.pt")
        assert models.names == tuple(fold.name for fold in problem.data.folds)
        for index, (fold, result) in enumerate(zip(problem.data.folds, results)):
            module = problem.restored(fold, models.states[index], models.chosen[index])
            chosen = inputs_of(problem, fold.test)
            with torch.no_grad():
                logits = module.logits(module.features(chosen)).numpy()
            np.testing.assert_allclose(
                logits, fold_logits(problem, result, fold)["test"], atol=1e-5
            )

    def test_representation_is_one_finite_vector_per_subject(self, name, tmp_path):
        problem, _ = make_problem(name)
        module = problem.module(problem.data.folds[0]).eval()
        represented = module.represent(module.features(inputs_of(problem)))
        assert represented.shape[0] == len(problem.data.cohort.subjects) and represented.ndim == 2
        assert torch.isfinite(represented).all()

    @pytest.mark.parametrize(("n_rois", "n_sites"), [(24, 2), (116, 3), (200, 2), (24, 25)])
    def test_sizes(self, name, n_rois, n_sites):
        generator = torch.Generator().manual_seed(0)
        site = torch.arange(n_sites).repeat_interleave(4)
        label = torch.arange(2).repeat(2 * n_sites)
        fc = torch.randn(len(site), n_rois, n_rois, generator=generator) * 0.3
        inputs = {
            "fc": (fc + fc.mT).fill_diagonal_(0) if fc.ndim == 2 else without_diagonal(fc + fc.mT),
            "bold": torch.randn(len(site), 60, n_rois, generator=generator),
            "frames": torch.full((len(site),), 60),
            "covariates": torch.randn(len(site), 3, generator=generator),
            "row": torch.arange(len(site)),
            "site_number": site,
        }
        method = registry.find(name)
        inputs = {need: inputs[need] for need in method.needs}
        module = method(settings_of(name), n_rois, n_sites)
        rois = Rois.named(f"roi{index}" for index in range(n_rois))
        module.prepare(
            TrainView(site=site, label=label, n_sites=n_sites, n_rois=n_rois, rois=rois, **inputs)
        )
        if isinstance(module, PathMethod):
            module.fit(0)
        assert torch.isfinite(module.eval().logits(module.features(inputs))).all()


@pytest.mark.parametrize("name", GRADIENT)
class TestGradientMethod:
    def test_a_fold_does_not_depend_on_its_neighbours(self, name, trained, tmp_path):
        together, some = trained(name)[1], slice(0, None, 3)
        problem, _ = make_problem(name, folds=some, **SLOWER.get(name, {}))
        alone = fit(problem, tmp_path / "alone", group_size=1)
        for fold, one, other in zip(problem.data.folds, together[some], alone):
            assert one.selected_epoch == other.selected_epoch
            for split, logits in fold_logits(problem, one, fold).items():
                other_logits = fold_logits(problem, other, fold)[split]
                np.testing.assert_allclose(logits, other_logits, rtol=1e-3, atol=1e-3)

    def test_every_parameter_learns(self, name, last):
        _, before, after = last(name)
        assert before and [key for key in before if torch.equal(after[key], before[key])] == []

    def test_loss_is_pure_given_the_key(self, name):
        problem, _ = make_problem(name)
        run = GradientFit(problem, problem.data.folds[:1], memory_budget=1 << 30)
        index, label, site = run.batches.take(torch.tensor([0]))
        phase = run.method.phase(problem.trial.hyperparameters, 1)
        batch = Batch(
            {key: value[0] for key, value in run.features.gather(index).items()},
            label[0],
            site[0],
            torch.tensor(7),
        )
        module = problem.module(problem.data.folds[0]).train()
        state = {key: value.clone() for key, value in module.state_dict().items()}
        first = module.loss(batch, phase)[0]
        module.load_state_dict(state)
        torch.rand(3)
        assert torch.equal(first, module.loss(batch, phase)[0])

    def test_an_interrupted_run_ends_with_the_same_numbers(self, name, trained, tmp_path):
        class Killed(Exception):
            pass

        def kill(run):
            checkpoints.save([fold.name for fold in group], run.snapshot(), always=True)
            if run.epoch == 4:
                raise Killed

        problem, undisturbed = trained(name)
        checkpoints = Checkpoints(tmp_path / "unfinished", "test", 1e9)
        group = next(groups(problem, None))
        with pytest.raises(Killed):
            GradientFit(problem, group, 1 << 30).run(kill, "test")
        problem, _ = make_problem(name, **SLOWER.get(name, {}))
        for one, other in zip(undisturbed, train(problem, checkpoints, None)):
            assert one.history == other.history
            assert same_state(one.state, other.state)


def without_diagonal(matrices):
    return matrices * ~torch.eye(matrices.shape[-1], dtype=torch.bool)


def replace_scans(cohort, changed, rows):
    """The cohort with the scans, FC and covariates of ``rows`` taken from another one."""
    from dataclasses import replace

    scans = [
        (changed if row in set(rows) else cohort).series.scan(row)
        for row in range(len(cohort.subjects))
    ]
    series = replace(
        cohort.series,
        bold=np.concatenate(scans),
        offsets=np.cumsum([0] + [len(scan) for scan in scans]),
    )
    fc, covariates = cohort.fc.copy(), cohort.covariates.copy()
    fc[rows], covariates[rows] = changed.fc[rows], changed.covariates[rows]
    return replace(cohort, series=series, fc=fc, covariates=covariates)


def states(problem):
    """Initial parameters, and all that is fitted on a fold before validation chooses an epoch."""
    if issubclass(problem.trial.method, PathMethod):
        module = problem.module(problem.data.folds[0])
        module.fit(module.path_length - 1)
        return {}, module.state_dict()
    run = GradientFit(problem, problem.data.folds, memory_budget=1 << 30)
    before = {key: value.clone() for key, value in run.stack.parameters.items()}
    run.run(lambda _: None, "test")
    return before, run.stack.state()


@pytest.mark.parametrize("method", ["coral", "irm", "cepg"])
def test_a_batch_with_stand_ins_is_the_batch_without(method):
    problem, _ = make_problem(method, folds=slice(0, 1), dropout=0.0)
    fold = problem.data.folds[0]
    rows = torch.as_tensor(fold.train[:24])
    generator = torch.Generator().manual_seed(0)
    fc = torch.as_tensor(problem.data.cohort.fc)[rows]
    strange = torch.randn(8, *fc.shape[1:], generator=generator)
    label = torch.arange(24) % 2
    site = torch.arange(24) % 3
    key = torch.zeros(2, dtype=torch.int64)

    def outcome(fc, label, site):
        module = problem.module(fold).train()
        batch = Batch(module.features({"fc": fc}), label, site, key)
        loss, logs = module.loss(batch, TRAIN)
        loss.backward()
        gradients = {name: one.grad for name, one in module.named_parameters()}
        return {"loss": loss, **logs}, gradients, dict(module.named_buffers())

    found = outcome(
        torch.cat([fc, strange @ strange.mT]),
        torch.cat([label, torch.ones(8, dtype=label.dtype)]),
        torch.cat([site, torch.full((8,), -1)]),
    )
    for ours, expected in zip(found, outcome(fc, label, site)):
        torch.testing.assert_close(ours, expected, rtol=1e-4, atol=1e-6)
