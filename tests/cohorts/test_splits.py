"""Splits."""

from collections import Counter
from itertools import chain

import numpy as np
import pandas as pd
import pytest

from brio_core.cohorts.splits import (
    id_folds,
    loso,
    make_split,
    one_class_folds,
    permute_within_site,
    split_checksum,
)
from brio_core.system.errors import BrioError


def make_table(n_sites: int = 7, per_class: int = 9, families: bool = False) -> pd.DataFrame:
    rows = [
        (f"sub-{site}-{label}-{number}", f"site{site}", label, "n/a")
        for site in range(n_sites)
        for label in (0, 1)
        for number in range(per_class + site % 3)
    ]
    table = pd.DataFrame(rows, columns=["subject", "site", "label", "group"])
    if families:
        generator = np.random.default_rng(0)
        for family in range(12):
            members = generator.choice(len(table), generator.integers(2, 4), replace=False)
            table.loc[members, "group"] = f"family{family}"
    return table


def groups_of(table: pd.DataFrame, index) -> set:
    return set(table["group"].iloc[index]) - {"n/a"}


def test_rings_test_the_same_sites_and_let_each_validate_equally_often():
    table = make_table()
    first = make_split(table, "toy", "loso", 0)
    assert make_split(table, "toy", "loso", 0, 0) == first and "ring" not in first
    pairs = set()
    for ring in range(1, 6):
        split = make_split(table, "toy", "loso", 10 + ring, ring)
        assert split["ring"] == ring and split["checksum"] == split_checksum(split)
        assert split["checksum"] != first["checksum"]
        validates = Counter()
        for fold, usual in zip(split["folds"], first["folds"]):
            assert (fold["name"], fold["test"]) == (usual["name"], usual["test"])
            sites = [set(table["site"].iloc[group]) for group in fold["validation_groups"]]
            assert all(len(one) == 1 for one in sites) and fold["name"] not in set.union(*sites)
            validates.update(set.union(*sites))
            pairs.add((fold["name"], frozenset(set.union(*sites))))
        assert validates == dict.fromkeys(table["site"].unique(), 2)
    assert len(pairs) > len(first["folds"]), "rings differ"


@pytest.mark.parametrize("protocol", ["loso", "id", "loso-permuted-3"])
@pytest.mark.parametrize("families", [False, True])
def test_every_subject_is_tested_once_and_sides_do_not_meet(protocol, families):
    table = make_table(families=families)
    split = make_split(table, "toy", protocol, 0)
    assert split["subjects"] == table["subject"].tolist() and split["site"] == list(table["site"])
    tested = Counter(index for fold in split["folds"] for index in fold["test"])
    assert tested == Counter(range(len(table)))
    label = np.array(split["label"])
    for fold in split["folds"]:
        sides = [set(fold[part]) for part in ("train", "validation", "test")]
        assert sum(map(len, sides)) == len(set.union(*sides))
        if not families or protocol == "id":
            assert len(set.union(*sides)) == len(table)
        assert sorted(chain(*fold["validation_groups"])) == fold["validation"]
        families_of = [groups_of(table, sorted(side)) for side in sides]
        assert sum(map(len, families_of)) == len(set.union(*families_of))
        for site in table["site"].iloc[fold["train"]].unique():
            at_site = [index for index in fold["train"] if table["site"].iloc[index] == site]
            assert set(label[at_site]) == {0, 1}


def test_loso_folds_are_sites_and_validation_rotates():
    table = make_table()
    folds = make_split(table, "toy", "loso", 0)["folds"]
    sites = sorted(table["site"].unique())
    assert [fold["name"] for fold in folds] == sites
    validates = Counter()
    for fold in folds:
        assert set(table["site"].iloc[fold["test"]]) == {fold["name"]}
        groups = [set(table["site"].iloc[group]) for group in fold["validation_groups"]]
        assert [len(group) for group in groups] == [1, 1]
        validates.update(set.union(*groups))
        train_sites = set(table["site"].iloc[fold["train"]])
        assert train_sites == set(sites) - {fold["name"]} - set.union(*groups)
    assert set(validates.values()) == {2} and set(validates) == set(sites)


def test_loso_drops_relatives_and_moves_nobody():
    table = make_table()
    # One family at sites 0, 1 and 2.
    family = [table.index[table["site"] == f"site{site}"][0] for site in (0, 1, 2)]
    table.loc[family, "group"] = "family"
    plain = loso(table["site"], table["label"], ["n/a"] * len(table), 0)
    related = loso(table["site"], table["label"], table["group"], 0)
    for before, after in zip(plain, related, strict=True):
        assert before["test"] == after["test"]
        parts = ("train", "validation", "test")
        side = {part: [one for one in family if one in before[part]] for part in parts}
        gone_validation = side["validation"] if side["test"] else []
        gone_train = side["train"] if side["test"] or side["validation"] else []
        assert sorted(set(before["validation"]) - set(after["validation"])) == gone_validation
        assert sorted(set(before["train"]) - set(after["train"])) == gone_train
        assert set(after["train"]) <= set(before["train"])


def test_groups_that_cost_a_site_a_class_are_named():
    """The controls of one site were all scanned at another one too."""
    table = make_table()
    for site in ("site0", "site1"):
        travelling = table.index[(table["site"] == site) & (table["label"] == 0)][:9]
        table.loc[travelling, "group"] = [f"person{number}" for number in range(9)]
    loso(table["site"], table["label"], ["n/a"] * len(table), 0)
    with pytest.raises(BrioError, match=r"'site0' does not have both classes .* columns\.group"):
        loso(table["site"], table["label"], table["group"], 0)


def counted(folds, site, label) -> np.ndarray:
    """Counts of tested subjects by fold, site and class."""
    counts = np.zeros((10, max(site) + 1, 2), int)
    for number, fold in enumerate(folds):
        np.add.at(counts[number], (site[fold["test"]], label[fold["test"]]), 1)
    return counts


def spread(counts: np.ndarray) -> int:
    """By how much folds, the first axis, differ at most."""
    return int((counts.max(0) - counts.min(0)).max())


def drawn_sites(draw) -> tuple[np.ndarray, np.ndarray]:
    """Sites and labels of a cohort of any shape; every site has four subjects of each class."""
    sizes = draw.integers(4, draw.choice([6, 15, 60]), size=(draw.integers(5, 20), 2))
    site = np.repeat(np.arange(len(sizes)), sizes.sum(1))
    return site, np.concatenate([np.repeat([0, 1], size) for size in sizes])


def test_id_folds_share_every_site_and_class_equally():
    """Whatever the sizes: folds differ by one in each (site, class), each class, and in all."""
    draw = np.random.default_rng(0)
    cohorts = [drawn_sites(draw) for _ in range(60)]
    # Six sites of ten, whose folds were of one class; sites of 30; one class rare.
    for per_class in ((5, 5), (15, 15), (4, 40)):
        label = np.concatenate([np.repeat([0, 1], per_class)] * 6)
        cohorts.append((np.repeat(np.arange(6), sum(per_class)), label))
    for seed, (site, label) in enumerate(cohorts):
        folds = id_folds(site, label, ["n/a"] * len(site), seed)
        counts = counted(folds, site, label)
        assert counts.sum() == len(site)
        assert (
            spread(counts) <= 1 and spread(counts.sum(1)) <= 1 and spread(counts.sum((1, 2))) <= 1
        )
        assert spread(counts.sum(2)) <= 2
        assert (counts.sum(1) > 0).all()


def test_id_folds_keep_groups_whole_and_singles_fill_the_gaps():
    """People with up to four scans: a (site, class) differs by no more than one person's."""
    draw = np.random.default_rng(1)
    for seed in range(30):
        site, label = drawn_sites(draw)
        scans = np.where(draw.random(len(site)) < 0.2, draw.integers(2, 5, len(site)), 1)
        person = np.repeat(np.arange(len(site)), scans)
        site, label = np.repeat(site, scans), np.repeat(label, scans)
        folds = id_folds(site, label, person.astype(str), seed)
        owner = [set(person[fold["test"]]) for fold in folds]
        assert sum(map(len, owner)) == len(set.union(*owner)) == len(scans)
        assert spread(counted(folds, site, label)) <= 4
    # Families across sites and classes have no such bound, but nobody is lost.
    table = make_table(per_class=20, families=True)
    folds = id_folds(table["site"], table["label"], table["group"], 0)
    counts = counted(folds, table["site"].str[4:].astype(int).to_numpy(), table["label"].to_numpy())
    assert spread(counts) <= 3 and counts.sum() == len(table)


def test_id_folds_rotate():
    """7:2:1: a fold validates on what the next two test."""
    table = make_table()
    folds = id_folds(table["site"], table["label"], table["group"], 0)
    assert [fold["name"] for fold in folds] == [f"fold-{number:02d}" for number in range(1, 11)]
    for number, fold in enumerate(folds):
        following = [folds[(number + step) % 10]["test"] for step in (1, 2)]
        assert fold["validation_groups"] == [sorted(chain(*following))]


def few_patients(n_sites: int, patients: int) -> pd.DataFrame:
    rows = [
        (f"s{site}{number}", f"site{site}", int(number < patients), "n/a")
        for site in range(n_sites)
        for number in range(20)
    ]
    return pd.DataFrame(rows, columns=["subject", "site", "label", "group"])


def test_a_fold_of_one_class_is_told():
    """Eight patients for ten folds: two test controls only. Six are too few to validate with."""
    told = one_class_folds(make_split(few_patients(4, 2), "toy", "id", 0))
    assert told.startswith("2 of 10 folds of protocol id test one class only, e.g. fold-")
    assert one_class_folds(make_split(few_patients(5, 2), "toy", "id", 0)) == ""
    with pytest.raises(BrioError, match=r"fold-09 validates with one class only; .* 10 subjects"):
        make_split(few_patients(2, 3), "toy", "id", 0)
    families = make_table(n_sites=1).assign(group=[f"family{i % 9}" for i in range(18)])
    with pytest.raises(BrioError, match=r"fold-08 tests nobody; .* as many groups"):
        make_split(families, "toy", "id", 0)


@pytest.mark.parametrize("protocol", ["loso", "id"])
def test_seeds_decide(protocol):
    table = make_table()
    split = make_split(table, "toy", protocol, 0)
    assert split == make_split(table, "toy", protocol, 0)
    assert split["folds"] != make_split(table, "toy", protocol, 1)["folds"]


def test_permuted_labels_keep_the_counts_and_the_folds():
    table = make_table()
    split, permuted, other = (
        make_split(table, "toy", protocol, 0)
        for protocol in ("loso", "loso-permuted-1", "loso-permuted-2")
    )
    assert split["permutation"] is None and permuted["permutation"] == 1
    assert split["folds"] == permuted["folds"]
    assert len({tuple(one["label"]) for one in (split, permuted, other)}) == 3
    site = table["site"].to_numpy()
    for one in np.unique(site):
        here = np.flatnonzero(site == one)
        assert sorted(np.array(permuted["label"])[here]) == sorted(np.array(split["label"])[here])
    label = table["label"].to_numpy()
    before = label.copy()
    permute_within_site(site, label, 1)
    assert (label == before).all()


def test_checksum_covers_everything():
    split = make_split(make_table(), "toy", "loso", 0)
    assert split["checksum"] == split_checksum(split) and len(split["checksum"]) == 64
    for key, value in {"cohort": "other", "split_seed": 1, "label": split["label"][::-1]}.items():
        assert split_checksum({**split, key: value}) != split["checksum"]


def test_bad_cohorts_are_named():
    with pytest.raises(BrioError, match=r"at least 5 usable sites.* has 4: site0, site1"):
        make_split(make_table(n_sites=4), "toy", "loso", 0)
    table = make_table()
    one_class = table[(table["site"] != "site3") | (table["label"] == 1)]
    for protocol in ("loso", "id"):
        with pytest.raises(BrioError, match="'site3' does not have both classes"):
            make_split(one_class, "toy", protocol, 0)
    with pytest.raises(BrioError, match="no protocol 'kfold'"):
        make_split(table, "toy", "kfold", 0)
