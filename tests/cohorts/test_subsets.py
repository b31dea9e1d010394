"""Draws of training sites and subjects, and pairs matched by motion."""

from itertools import combinations, permutations

import numpy as np
import pandas as pd
import pytest

from brio_core.cohorts.splits import make_split
from brio_core.cohorts.subsets import CALLIPER, motion_matched
from brio_core.system.errors import BrioError
from tests.cohorts.test_splits import make_table

POOLS = {"train": ("train",), "sources": ("train", "validation")}


def drawn(table: pd.DataFrame, arm: str, sites: int, draw: int = 1, cohort: str = "toy") -> list:
    return make_split(table, cohort, f"loso-{arm}-{sites}-draw-{draw}", 0)["folds"]


@pytest.mark.parametrize("families", [False, True])
@pytest.mark.parametrize("arm", ["sites", "subjects"])
def test_nobody_trains_who_did_not_before(arm, families):
    """No test subject, no excluded one; validation and test stay as they are."""
    table = make_table(n_sites=9, families=families)
    plain = make_split(table, "toy", "loso", 0)["folds"]
    for fold, whole in zip(drawn(table, arm, 3), plain):
        for part in ("name", "test", "validation", "validation_groups"):
            assert fold[part] == whole[part]
        for part, pool in POOLS.items():
            allowed = {row for name in pool for row in whole[name]}
            assert set(fold[part]) < allowed and not set(fold[part]) & set(whole["test"])
            assert fold[part] == sorted(set(fold[part]))


def test_both_curves_have_the_same_numbers_of_each_class():
    table = make_table(n_sites=9, per_class=6)
    table = table.drop(index=table.index[table["site"] == "site4"][:4]).reset_index(drop=True)
    label, site = table["label"].to_numpy(), table["site"].to_numpy()
    for size in (2, 3, 5):
        for few, spread in zip(drawn(table, "sites", size), drawn(table, "subjects", size)):
            for part, n_sites in (("train", 6), ("sources", 8)):
                assert len(set(site[few[part]])) == size
                assert len(set(site[spread[part]])) == n_sites, "all sites"
                counts = [np.bincount(label[fold[part]]) for fold in (few, spread)]
                assert np.array_equal(*counts)
                for one in set(site[spread[part]]):
                    own = label[[row for row in spread[part] if site[row] == one]]
                    assert set(own) == {0, 1}


def test_every_site_gives_the_same_share():
    table = make_table(n_sites=9, per_class=20)
    plain = make_split(table, "toy", "loso", 0)["folds"]
    site = table["site"].to_numpy()
    for fold, whole in zip(drawn(table, "subjects", 3), plain):
        share = len(fold["train"]) / len(whole["train"])
        for one in set(site[whole["train"]]):
            own, all_ = ((site[part["train"]] == one).sum() for part in (fold, whole))
            assert abs(own - share * all_) <= 2, "of two classes, one each by rounding"


def test_where_a_class_is_smaller_than_the_number_of_sites_some_sites_are_left_out():
    table = make_table(n_sites=12, per_class=3)
    for few, spread in zip(drawn(table, "sites", 2), drawn(table, "subjects", 2)):
        label = table["label"].to_numpy()
        site = table["site"].iloc[spread["train"]]
        counts = np.bincount(label[few["train"]])
        assert np.array_equal(counts, np.bincount(label[spread["train"]]))
        assert 2 < site.nunique() == min(9, counts.min())
        assert (table.iloc[spread["train"]].groupby("site")["label"].nunique() == 2).all()


@pytest.mark.parametrize("arm", ["sites", "subjects"])
def test_draws_differ_and_repeat(arm):
    table = make_table(n_sites=9)
    first = drawn(table, arm, 3)
    assert first == drawn(table, arm, 3)
    others = [drawn(table, arm, 3, draw=2), drawn(table, arm, 3, cohort="other")]
    assert all(first != other for other in others)


def test_more_sites_contain_fewer():
    table = make_table(n_sites=9)
    for small, large in zip(drawn(table, "sites", 2), drawn(table, "sites", 4)):
        for part in POOLS:
            assert set(small[part]) < set(large[part])


@pytest.mark.parametrize("arm", ["sites", "subjects"])
def test_all_sites_are_the_plain_split(arm):
    table = make_table(families=True)
    plain = make_split(table, "toy", "loso", 0)["folds"]
    for fold, whole in zip(drawn(table, arm, 99), plain):
        sources = fold.pop("sources")
        assert fold == whole
        assert sources == sorted([*whole["train"], *whole["validation"]])


def most_pairs(negative, positive, widest):
    """By trying all: the most pairs that are close enough, and the smallest sum of differences."""
    for size in range(min(len(negative), len(positive)), 0, -1):
        sums = [
            sum(abs(one - other) for one, other in zip(chosen, others))
            for chosen in combinations(negative, size)
            for others in permutations(positive, size)
            if all(abs(one - other) <= widest for one, other in zip(chosen, others))
        ]
        if sums:
            return size, min(sums)
    return 0, 0.0


def test_pairs_are_the_most_and_the_closest(monkeypatch):
    monkeypatch.setattr("brio_core.cohorts.subsets.FEWEST_PAIRS", 1)
    monkeypatch.setattr("brio_core.cohorts.subsets.CALLIPER", 0.8)
    generator = np.random.default_rng(0)
    site, label = np.repeat(["a", "b", "c"], 9), np.tile([0, 0, 0, 0, 0, 1, 1, 1, 1], 3)
    for _ in range(5):
        motion = np.exp(generator.normal(size=27) + 0.7 * label)
        rows = motion_matched(site, label, motion)
        log = np.log(motion)
        cells = [log[(site == one) & (label == side)] for one in "abc" for side in (0, 1)]
        deviation = np.sqrt(sum(((cell - cell.mean()) ** 2).sum() for cell in cells) / (27 - 6))
        for one in "abc":
            classes = [(site == one) & (label == side) for side in (0, 1)]
            size, _ = most_pairs(*(log[cell] for cell in classes), 0.8 * deviation)
            assert [cell[rows].sum() for cell in classes] == [size, size]


def test_matched_classes_move_alike_and_only_they_take_part():
    generator = np.random.default_rng(1)
    table = make_table(per_class=40)
    motion = np.exp(generator.normal(size=len(table)) + 0.8 * table["label"])
    table["mean_fd"] = motion.map("{:.4f}".format)
    table.loc[::17, "mean_fd"] = "n/a"
    split = make_split(table, "toy", "loso-motion-matched", 0)
    assert split["subjects"] == table["subject"].tolist()
    tested = sorted(row for fold in split["folds"] for row in fold["test"])
    own = table.iloc[tested]
    assert len(tested) == len(set(tested)) > 300 and (own["mean_fd"] != "n/a").all()
    counts = own.groupby(["site", "label"]).size().unstack()
    assert (counts[0] == counts[1]).all()
    log = np.log(own["mean_fd"].astype(float)).groupby([own["site"], own["label"]]).mean().unstack()
    assert (log[1] - log[0]).abs().max() < CALLIPER
    for fold in split["folds"]:
        sides = [set(fold[part]) for part in ("train", "validation", "test")]
        assert set.union(*sides) == set(tested) and sum(map(len, sides)) == len(tested)
        assert set(own.loc[fold["test"], "site"]) == {fold["name"]}


def test_too_few_pairs_are_told():
    table = make_table(per_class=6)
    table["mean_fd"] = np.where(table["label"] == 1, "0.5", "0.1")
    with pytest.raises(BrioError, match="cohort 'toy' has 0 sites with 3 or more pairs"):
        make_split(table, "toy", "loso-motion-matched", 0)


def test_without_motion_a_sentence_says_what_to_do():
    with pytest.raises(BrioError, match="columns: mean_fd"):
        make_split(make_table().assign(mean_fd="n/a"), "toy", "loso-motion-matched", 0)


def test_one_fold_is_the_first_one():
    table = make_table()
    whole, one = (make_split(table, "toy", name, 0) for name in ("loso", "loso-one-fold"))
    assert one["folds"] == whole["folds"][:1] and one["subjects"] == whole["subjects"]
