"""Which subjects stand in a batch."""

from collections import Counter
from types import SimpleNamespace

import numpy as np
import pytest

from brio_core.training.batches import schedule, steps_per_epoch

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
