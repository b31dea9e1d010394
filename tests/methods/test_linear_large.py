"""The linear rows of cohorts that are too large for exact fits, on small ones."""

import warnings

import numpy as np
import pytest
import torch
from synthetic import make_cohort, make_problem, settings_of
from torch.utils._python_dispatch import TorchDispatchMode

from brio_core.connectivity import tangent
from brio_core.methods import registry
from brio_core.methods.linear import base as linear
from brio_core.methods.linear import iterative
from brio_core.methods.training_scans import TrainView
from brio_core.system import blocks
from brio_core.training import penalty_path as path
from brio_core.training.checkpoints import Checkpoints
from brio_core.training.penalty_path import fit_path
from brio_core.training.results import fold_logits
from brio_core.training.trainer import train

NAMES = ["linear-correlation", "linear-combat", "linear-reestimation", "linear-tangent"]


@pytest.fixture
def large(monkeypatch):
    """Call it and every cohort is large."""

    def pretend():
        monkeypatch.setattr(linear, "EXACT_SUBJECTS", 5)
        monkeypatch.setattr(linear, "EXACT_FEATURES", 10)

    return pretend


@pytest.fixture
def threads():
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


def made_up_view(name, subjects, n_rois, frames=60):
    """Training subjects without shared features, as those of a cohort larger than memory."""
    generator = torch.Generator().manual_seed(0)
    bold = torch.randn(subjects, frames, n_rois, generator=generator)
    label = torch.arange(subjects) % 2
    bold[:, :, 1] += 0.5 * label[:, None] * bold[:, :, 0]
    fc = torch.stack([torch.corrcoef(scan.T) for scan in bold]).clamp(-0.99, 0.99).arctanh()
    inputs = {
        "fc": fc,
        "bold": bold,
        "frames": torch.full((subjects,), frames),
        "covariates": torch.randn(subjects, 3, generator=generator),
        "site_number": torch.arange(subjects) % 3,
    }
    needs = registry.find(name).needs
    return TrainView(
        site=torch.arange(subjects) % 3, label=label, n_sites=3, n_rois=n_rois,
        **{need: inputs[need] for need in needs},
    )  # fmt: skip


def prepared(name, view):
    module = registry.find(name)(settings_of(name), view.n_rois, view.n_sites)
    module.prepare(view)
    return module


class Allocations(TorchDispatchMode):
    """Where the storages lie that exceed a number of bytes, except those that were there before."""

    def __init__(self, limit, before):
        super().__init__()
        self.limit = limit
        self.before = {tensor.untyped_storage().data_ptr() for tensor in before}
        self.found = set()

    def __torch_dispatch__(self, function, types, arguments=(), options=None):
        result = function(*arguments, **(options or {}))
        for tensor in result if isinstance(result, tuple | list) else [result]:
            if isinstance(tensor, torch.Tensor):
                storage = tensor.untyped_storage()
                if storage.nbytes() > self.limit and storage.data_ptr() not in self.before:
                    self.found.add((storage.data_ptr(), storage.nbytes()))
        return result


@pytest.mark.parametrize("name", NAMES)
class TestLargeCohort:
    def test_predictions_are_those_of_the_exact_fit(self, name, large):
        cohort, table = make_cohort()
        exact, _ = make_problem(name, cohort, table, folds=slice(0, 2))
        expected = [fit_path(exact, fold) for fold in exact.data.folds]
        large()
        iterative, _ = make_problem(name, cohort, table, folds=slice(0, 2))
        for fold, one in zip(iterative.data.folds, expected):
            other = fit_path(iterative, fold)
            for found, wanted in zip(other.history, one.history, strict=True):
                assert found == pytest.approx(wanted, rel=1e-3)
            assert other.selected_epoch == one.selected_epoch
            for split, logits in fold_logits(exact, one, fold).items():
                found = fold_logits(iterative, other, fold)[split]
                np.testing.assert_allclose(found, logits, atol=1e-3 * logits.std())

    def test_the_design_is_the_only_large_table(self, name, large, threads, monkeypatch):
        large()
        # Torch follows allocations on its own thread only.
        threads(1)
        monkeypatch.setattr(blocks, "COLUMN_BLOCK", 1)
        monkeypatch.setattr(blocks, "ROW_BLOCK", 2**14)
        monkeypatch.setattr(linear, "SUBJECTS_READ", 32)
        monkeypatch.setattr(iterative, "MOST_VECTORS", 10)
        monkeypatch.setattr(tangent, "CURVATURE_SUBJECTS", 16)
        view = made_up_view(name, subjects=600, n_rois=30)
        module = registry.find(name)(settings_of(name, penalties=(1e-2, 1.0)), 30, 3)
        design = 600 * len(module.weight) * 4
        inputs = [value for value in vars(view).values() if isinstance(value, torch.Tensor)]
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "10 Krylov vectors")
            with Allocations(0.5 * design, inputs) as allocations:
                module.prepare(view)
        assert [size for _, size in allocations.found] == [design]

    def test_neither_threads_nor_chunks_change_bytes(self, name, large, threads, monkeypatch):
        large()
        monkeypatch.setattr(blocks, "ROW_BLOCK", 500)
        view, states = made_up_view(name, subjects=70, n_rois=12), []
        for count, subjects in ((1, 256), (2, 256), (3, 256), (2, 32)):
            threads(count)
            monkeypatch.setattr(linear, "SUBJECTS_READ", subjects)
            module = prepared(name, view)
            module.fit(module.path_length - 1)
            states.append(module.state_dict())
            assert torch.get_num_threads() == count
        for other in states[1:]:
            for key, value in states[0].items():
                assert torch.equal(value, other[key]), key

    def test_nothing_fitted_depends_on_other_subjects(self, name, large):
        large()
        cohort, table = make_cohort()
        changed, _ = make_cohort(seed=1)
        problem, _ = make_problem(name, cohort, table, folds=slice(0, 1))
        outside = np.setdiff1d(np.arange(len(cohort.subjects)), problem.data.folds[0].train)
        for array, other in (
            (cohort.fc, changed.fc),
            (cohort.covariates, changed.covariates),
        ):
            assert not np.array_equal(array[outside], other[outside])
        before = problem.module(problem.data.folds[0])
        before.fit(3)
        before = {key: value.clone() for key, value in before.state_dict().items()}
        cohort.fc[outside] = changed.fc[outside]
        for row in outside:
            cohort.series.scan(row)[:] = 7 * cohort.series.scan(row)[::-1]
        after = make_problem(name, cohort, table, folds=slice(0, 1))[0].module(
            problem.data.folds[0]
        )
        after.fit(3)
        for key, value in after.state_dict().items():
            assert torch.equal(value, before[key]), key


@pytest.mark.parametrize(
    ("subjects", "features", "exact"),
    [(900, 19_900, True), (18_000, 19_900, False), (18_000, 6, True), (18_000, 6_670, False)],
)
def test_the_size_decides_how_a_fit_is_made(subjects, features, exact):
    assert linear.is_exact(subjects, features) is exact


def test_many_subjects_with_covariates_only_are_fitted_exactly():
    view = made_up_view("linear-confounds", subjects=7000, n_rois=4, frames=8)
    module = prepared("linear-confounds", view)
    assert module._weights.shape == (7, 6) and module._weights.dtype == torch.float64


def test_large_folds_are_fitted_one_after_the_other(tmp_path, monkeypatch):
    monkeypatch.setattr(path, "spread", None)
    monkeypatch.setattr(linear, "EXACT_SUBJECTS", 10)
    problem, _ = make_problem("linear-correlation", folds=slice(0, 2))
    assert len(train(problem, Checkpoints(tmp_path, "test", 1e9), None)) == 2


@pytest.mark.parametrize("name", ["linear-logarithm", "linear-correlation"])
def test_a_large_fold_stays_large_without_one_of_its_sites(name, tmp_path, monkeypatch):
    """Between two sizes: all source subjects are too many for an exact fit, fewer are not."""
    chosen = {"folds": slice(0, 1), "selection": "sources", "centre": "train-sites"}
    exact = train(make_problem(name, **chosen)[0], Checkpoints(tmp_path / "a", "test", 1e9), None)
    monkeypatch.setattr(linear, "EXACT_SUBJECTS", 35)
    monkeypatch.setattr(linear, "EXACT_FEATURES", 10)
    problem, _ = make_problem(name, **chosen)
    assert len(problem.data.on_sources().folds[0].train) == 40
    found = train(problem, Checkpoints(tmp_path / "b", "test", 1e9), None)
    assert found[0].selected_epoch == exact[0].selected_epoch
    wanted = exact[0].source_logits
    torch.testing.assert_close(found[0].source_logits, wanted, rtol=0.02, atol=0.02)
