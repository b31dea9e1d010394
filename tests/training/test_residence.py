"""Where data reside, what is tried on them, and which subjects stand in a batch."""

import threading
from collections import Counter
from dataclasses import FrozenInstanceError, replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from synthetic import make_problem
from torch import Tensor

from brio_core.cohorts.stores import read_fc, read_series, write_fc, write_series
from brio_core.methods import registry
from brio_core.methods.stack import FoldStack
from brio_core.methods.training_scans import FeatureStore, training_rows
from brio_core.system.residence import half_of_free_memory, place_on_device, rows_of, tabulate
from brio_core.training.batches import schedule, steps_per_epoch
from brio_core.training.checkpoints import Checkpoints, fingerprint
from brio_core.training.trainer import train


def histories(tmp_path, device, budget):
    problem, _ = make_problem("brio", folds=slice(0, 3))
    problem.data.device, problem.data.budget = torch.device(device), budget
    results = train(problem, Checkpoints(tmp_path / str(budget), "test", 1e9), None)
    return problem, [result.history for result in results]


def test_rows_come_to_the_index():
    table = torch.arange(12.0).view(6, 2)
    index = torch.tensor([[4, 0], [1, 1]])
    assert torch.equal(rows_of(table, index), table[index])


def test_features_that_are_not_kept_are_made_again(tmp_path):
    _, kept = histories(tmp_path, "cpu", 1 << 30)
    _, again = histories(tmp_path, "cpu", 0)
    assert kept == again


def on_disk(problem, folder):
    """The cohort of a problem as it comes from its files."""
    cohort = problem.data.cohort
    folder.mkdir()
    scans = cohort.series.scans(range(len(cohort.subjects)))
    write_series(folder / "series.h5", cohort.subjects, scans, cohort.series.rois, {})
    write_fc(folder / "fc.h5", cohort.subjects, cohort.fc)
    fc = read_fc(folder / "fc.h5")[1]
    return replace(cohort, series=read_series(folder / "series.h5"), fc=fc)


@pytest.mark.parametrize("name", registry.names())
def test_what_does_not_fit_is_read_from_its_file_and_nothing_changes(name, tmp_path):
    results = []
    for number, budget in enumerate((1 << 30, 0)):
        problem, _ = make_problem(name, folds=slice(0, 2))
        problem.data.cohort = on_disk(problem, tmp_path / str(number))
        problem.data.budget = budget
        results.append(train(problem, Checkpoints(tmp_path / f"c{number}", "test", 1e9), None))
        scans = {need for need in problem.trial.method.needs if need in ("fc", "bold")}
        if not problem.trial.fits_paths:
            assert all(isinstance(problem.inputs[one], Tensor) == (number == 0) for one in scans)
    for resident, streamed in zip(*results):
        for one, other in zip(resident.history, streamed.history, strict=True):
            # Features of other batches may differ in the last digit.
            assert one == pytest.approx(other, rel=1e-4, abs=1e-8)


def test_training_rows_hand_out_no_others():
    table = torch.arange(12.0).view(6, 2)
    rows = training_rows(table, torch.tensor([4, 1, 3]))
    assert len(rows) == 3 and rows.shape == (3, 2)
    assert torch.equal(rows[:], table[[4, 1, 3]])
    assert torch.equal(rows[torch.tensor([False, True, True])], table[[1, 3]])
    with pytest.raises(IndexError):
        rows[torch.tensor([3])]


def test_a_table_is_made_in_parts_or_not_at_all():
    asked, device = [], torch.device("cpu")

    def make(rows):
        asked.append(rows.tolist())
        return {"square": rows.double().square(), "pair": torch.stack([rows, -rows], 1)}

    needed = 7 * (8 + 2 * 8)
    made = tabulate(make, 7, 3, needed, device)
    assert asked == [[0, 1, 2], [3, 4, 5], [6]]
    assert made["square"].tolist() == [0, 1, 4, 9, 16, 25, 36]
    assert made["pair"].tolist() == [[n, -n] for n in range(7)]
    asked.clear()
    assert tabulate(make, 7, 3, needed - 1, device) is None and len(asked) == 1


def test_memory_of_the_job_bounds_what_is_kept():
    cpu = torch.device("cpu")
    assert half_of_free_memory(cpu, limit=1) == 0
    assert 0 < half_of_free_memory(cpu, limit=1 << 34) <= min(1 << 33, half_of_free_memory(cpu))


@pytest.mark.gpu
def test_a_table_beyond_the_budget_stays_on_the_host():
    array = torch.randn(50, 7, 3).numpy()
    table = place_on_device(array, torch.device("cuda"), array.nbytes - 1)
    assert table.is_pinned() and place_on_device(array, torch.device("cuda"), array.nbytes).is_cuda
    index = torch.randint(50, (4, 5), device="cuda")
    assert torch.equal(rows_of(table, index), torch.as_tensor(array).cuda()[index])


@pytest.mark.gpu
def test_streaming_loses_time_only(tmp_path):
    _, kept = histories(tmp_path, "cuda", None)
    problem, streamed = histories(tmp_path, "cuda", 0)
    assert problem.inputs["fc"].is_pinned() and problem.scans.bold.is_pinned()
    assert kept == streamed


def test_other_hyperparameters_leave_the_trial_as_it_is_and_share_its_scans():
    problem, _ = make_problem("brio", hidden=8)
    other = problem.with_hyperparameters({"hidden": 4})
    assert (problem.trial.hyperparameters.hidden, other.trial.hyperparameters.hidden) == (8, 4)
    assert other.data is problem.data and other.inputs["fc"] is problem.inputs["fc"]
    assert other.scans.bold is problem.scans.bold
    assert problem.with_hyperparameters({}) is problem
    with pytest.raises(FrozenInstanceError):
        problem.trial.seed = 1


def test_what_is_fitted_on_all_folds_belongs_to_its_hyperparameters():
    problem, _ = make_problem("linear-reestimation", folds=slice(0, 2))
    few, many = (problem.with_hyperparameters({"reestimates": count}) for count in (2, 5))
    name = problem.data.folds[0].name
    changes = [one.shared_statistics[name]["change"] for one in (few, many)]
    assert (changes[0] != changes[1]).any()


@pytest.mark.parametrize("what", ["inputs", "code", "hyperparameters"])
def test_unfinished_work_belongs_to_its_inputs_code_and_hyperparameters(what):
    problem, _ = make_problem("gcn")
    mark = fingerprint(problem, {"fc.h5": "one"}, "code")
    changed = {
        "inputs": lambda: fingerprint(problem, {"fc.h5": "two"}, "code"),
        "code": lambda: fingerprint(problem, {"fc.h5": "one"}, "other"),
        "hyperparameters": lambda: fingerprint(
            problem.with_hyperparameters({"hidden": 4}), {"fc.h5": "one"}, "code"
        ),
    }
    assert mark == fingerprint(make_problem("gcn")[0], {"fc.h5": "one"}, "code")
    assert mark != changed[what]()


@pytest.mark.parametrize("name", ["gcn", "brio"])
def test_stacked_modules_are_called_by_one_thread(name, monkeypatch):
    """They lend their code to one call: a second thread would see the numbers of the first."""
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        problem, _ = make_problem(name)
        stack = FoldStack([problem.module(fold) for fold in problem.data.folds])
        called, call = set(), stack.call

        def noted(*words, **options):
            called.add(threading.get_ident())
            return call(*words, **options)

        monkeypatch.setattr(stack, "call", noted)
        FeatureStore(stack, problem.inputs, name == "gcn", 2**30)
    finally:
        torch.set_num_threads(before)
    assert called == {threading.get_ident()}


# Four sites; the second has three subjects of class 1, the third none of class 0.
SIZES = {"a": (9, 12), "b": (8, 3), "c": (0, 8), "d": (20, 30)}
SITE = np.array([name for name, sizes in SIZES.items() for _ in range(sum(sizes))])
LABEL = np.concatenate([np.repeat([0, 1], sizes) for sizes in SIZES.values()])
PER_CLASS = 4


def settings(**changes):
    values = {
        "sampler": "sites",
        "batch_size": 16,
        "subjects_per_site_class": PER_CLASS,
        "sites_per_batch": 3,
        "subjects_per_site": 10,
    }
    return SimpleNamespace(**values | changes)


def draw(n_steps=500, **changes):
    return schedule(settings(**changes), SITE, LABEL, n_steps, np.random.default_rng(0))


def test_every_step_draws_distinct_sites_and_no_subject_twice():
    for row in draw(50):
        present = row[row >= 0]
        assert len(set(present)) == len(present)
        places = np.where(row < 0, ~row, row)
        sites = SITE[places].reshape(3, 2 * PER_CLASS)
        assert (sites == sites[:, :1]).all()
        assert len(set(sites[:, 0])) == 3


def test_rows_are_ordered_by_site_class_and_subject():
    for row in draw(50):
        cells = row.reshape(3, 2, PER_CLASS)
        for number, cell in enumerate(cells.reshape(-1, PER_CLASS)):
            assert (LABEL[cell[cell >= 0]] == number % 2).all()


def test_a_class_with_too_few_subjects_gives_all_it_has():
    for row in draw(50):
        cells = row.reshape(3, 2, PER_CLASS)
        for pair in cells:
            site = SITE[pair[1, 0]]
            for side, cell in enumerate(pair):
                assert (cell >= 0).sum() == min(PER_CLASS, SIZES[site][side])


def test_sites_and_their_subjects_are_drawn_uniformly():
    rows = draw(4000)
    drawn = Counter(SITE[rows.reshape(-1, 3, 2, PER_CLASS)[:, :, 1, 0]].ravel())
    for site in SIZES:
        assert drawn[site] == pytest.approx(3000, rel=0.05)
    counts = np.bincount(rows[rows >= 0], minlength=len(SITE))
    inside = counts[(SITE == "d") & (LABEL == 1)]
    assert inside == pytest.approx(np.full(30, 3000 * PER_CLASS / 30), rel=0.25)


def test_all_sites_are_drawn_where_there_are_few():
    rows = draw(20, sites_per_batch=8)
    assert rows.shape == (20, 4 * 2 * PER_CLASS)
    assert (SITE[np.where(rows < 0, ~rows, rows)[:, :: 2 * PER_CLASS]] == list("abcd")).all()


def test_an_episode_has_equally_many_subjects_of_every_site_in_random_order():
    rows = draw(200, sampler="episodes").reshape(200, 3, 10)
    sites = SITE[rows]
    assert (sites == sites[:, :, :1]).all()
    assert all(len(set(step)) == 3 for step in sites[:, :, 0])
    # Every site comes first, second and third: which ones rehearse the unseen is left to chance.
    assert all(set(place) == set(SIZES) for place in sites[:, :, 0].T)


def test_an_episode_takes_subjects_in_turn():
    rows = draw(200, sampler="episodes").reshape(-1, 10)
    for site, sizes in SIZES.items():
        stream = rows[SITE[rows[:, 0]] == site].ravel()
        for start in range(0, len(stream) - sum(sizes), sum(sizes)):
            assert set(stream[start : start + sum(sizes)]) == set(np.flatnonzero(site == SITE))


def test_an_episode_repeats_the_subjects_of_a_small_site():
    rows = draw(20, sampler="episodes").reshape(-1, 10)
    small = rows[SITE[rows[:, 0]] == "c"]
    assert len(small) and all(8 >= len(set(row)) >= 5 for row in small)


def test_everyone_stands_in_every_step_and_small_folds_are_padded():
    rows = draw(3, sampler="everyone")
    assert (rows == np.arange(len(SITE))).all() and rows.shape == (3, len(SITE))
    padded = schedule(
        settings(sampler="everyone"), SITE, LABEL, 3, np.random.default_rng(0), len(SITE) + 4
    )
    assert (padded[:, : len(SITE)] == rows).all()
    assert padded.shape == (3, len(SITE) + 4) and (padded[:, len(SITE) :] == ~0).all()


@pytest.mark.parametrize("sampler", ["shuffled", "balanced", "episodes"])
def test_other_samplers_have_no_empty_places(sampler):
    site = np.where(SITE == "c", "b", SITE)
    rows = schedule(settings(sampler=sampler), site, LABEL, 50, np.random.default_rng(0))
    assert (rows >= 0).all()


@pytest.mark.parametrize(
    ("sampler", "n_sites", "steps"),
    [
        ("shuffled", 17, 56),
        ("balanced", 17, 7),
        ("everyone", 17, 1),
        ("sites", 17, 38),
        ("sites", 2, 56),
        ("episodes", 17, 30),
        ("episodes", 2, 45),
    ],
)
def test_an_epoch_sees_the_largest_training_set_about_once(sampler, n_sites, steps):
    assert steps_per_epoch(settings(sampler=sampler), [700, 890], n_sites) == steps
