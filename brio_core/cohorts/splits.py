"""Who trains, who validates and who is tested: leave one site out, and stratified folds."""

import hashlib
import json
import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from brio_core.cohorts import MATCHED, ONE_FOLD
from brio_core.cohorts.subsets import DRAWN, FEWEST_PAIRS, drawn_folds, motion_matched
from brio_core.cohorts.tables import MISSING
from brio_core.system.errors import BrioError
from brio_core.system.files import read_json
from brio_core.system.seeds import numpy_generator

# One site is tested, two validate, and alignment needs two more to train on.
MIN_SITES = 5
N_FOLDS = 10
# One fold, in which every site trains: a model for sites that are not in the cohort.
ALL_SITES = "all-sites"
PERMUTED = re.compile(r"loso-permuted-(\d+)")


def _one_group_each(group) -> np.ndarray:
    """Group names as numbers; a subject without a group is alone in one."""
    names = [f"\x1f{i}" if name == MISSING else str(name) for i, name in enumerate(group)]
    return np.unique(names, return_inverse=True)[1]


def _fold(name: str, test, validation_groups, train) -> dict:
    as_list = lambda index: [int(one) for one in np.sort(index)]  # noqa: E731
    return {
        "name": name,
        "test": as_list(test),
        "validation": as_list(np.concatenate(validation_groups)),
        "train": as_list(train),
        "validation_groups": [as_list(index) for index in validation_groups],
    }


def _check_classes(site: np.ndarray, label: np.ndarray, index, sites, fold: str, part: str) -> None:
    for one in sites:
        classes = set(label[index][site[index] == one].tolist())
        if classes != {0, 1}:
            raise BrioError(
                f"site {one!r} does not have both classes in the {part} part of fold {fold!r}; "
                "raise inclusion.min_subjects_per_class or leave the site out, and look at "
                "columns.group if it is set: of a group that spans sites, only one side of a fold "
                "keeps its members"
            )


def loso(site, label, group, seed: int) -> list[dict]:
    """Leave one site out: one fold per site, two validation sites, the rest train.

    The validation sites of a fold are the next two in a seeded ring of all sites. A subject whose
    group has a member at the test site neither trains nor validates in that fold, and one whose
    group has a member at a validation site does not train; nobody changes sides.
    """
    site, label, group = np.asarray(site), np.asarray(label), _one_group_each(group)
    sites = np.unique(site)
    if len(sites) < MIN_SITES:
        raise BrioError(
            f"leave-one-site-out needs at least {MIN_SITES} usable sites (one tests, two "
            f"validate, two or more train), but the cohort has {len(sites)}: "
            f"{', '.join(map(str, sites))}; add sites"
        )
    ring = numpy_generator("site-ring", seed).permutation(sites)
    folds = []
    for held_out in sites:
        place = int(np.flatnonzero(ring == held_out)[0])
        next_sites = [ring[(place + step) % len(ring)] for step in (1, 2)]
        test = np.flatnonzero(site == held_out)
        free = ~np.isin(group, group[test])
        validation = [np.flatnonzero((site == one) & free) for one in next_sites]
        free &= ~np.isin(group, group[np.concatenate(validation)])
        train = np.flatnonzero(free & ~np.isin(site, [held_out, *next_sites]))
        rest = sites[~np.isin(sites, [held_out, *next_sites])]
        _check_classes(site, label, np.concatenate(validation), next_sites, held_out, "validation")
        _check_classes(site, label, train, rest, held_out, "training")
        folds.append(_fold(str(held_out), test, validation, train))
    return folds


def _parts(site: np.ndarray, label: np.ndarray, group: np.ndarray, seed: int) -> np.ndarray:
    """Part of every subject: equal shares of each (site, class), whole groups together.

    A subject joins a part that has fewest of its site and class. Of several that do, one with
    fewest of the class is taken, then with fewest subjects, then with fewest of the site. Class
    after class, so without groups the parts differ by one at most in each but the last.
    """
    site = np.unique(site, return_inverse=True)[1]
    cell = 2 * site + label
    order = numpy_generator("id-parts", seed).permutation(group.max() + 1)
    members = [np.flatnonzero(group == one) for one in order]
    # Large groups first: single subjects can fill the gaps that these leave.
    members.sort(key=lambda who: (-len(who), label[who[0]], site[who[0]]))
    # By part, site and class.
    held = np.zeros((N_FOLDS, site.max() + 1, 2), int)
    part = np.empty(len(site), int)
    for who in members:
        of_class = held.sum(1)
        crowding = (
            np.arange(N_FOLDS),
            held.sum(2)[:, site[who]].sum(1),
            of_class.sum(1),
            of_class[:, label[who]].sum(1),
            held.reshape(N_FOLDS, -1)[:, cell[who]].sum(1),
        )
        emptiest = np.lexsort(crowding)[0]
        part[who] = emptiest
        np.add.at(held[emptiest], (site[who], label[who]), 1)
    # Three neighbours test and validate together, so those filled one after the other lie apart.
    return 3 * part % N_FOLDS


def id_folds(site, label, group, seed: int) -> list[dict]:
    """Folds stratified by site and class: one part tests, the next two validate, the rest train."""
    site, label, group = np.asarray(site), np.asarray(label), _one_group_each(group)
    part = _parts(site, label, group, seed)
    folds = []
    for number in range(N_FOLDS):
        name = f"fold-{number + 1:02d}"
        held_back = [(number + step) % N_FOLDS for step in (1, 2)]
        train = np.flatnonzero(~np.isin(part, [number, *held_back]))
        _check_classes(site, label, train, np.unique(site), name, "training")
        validation, test = np.isin(part, held_back), part == number
        if len(set(label[validation].tolist())) < 2 or not test.any():
            what = "validates with one class only" if test.any() else "tests nobody"
            raise BrioError(
                f"{name} {what}; protocol id needs at least {N_FOLDS} subjects of each class, and "
                "as many groups if columns.group is set"
            )
        folds.append(_fold(name, np.flatnonzero(test), [np.flatnonzero(validation)], train))
    return folds


def one_class_folds(split: dict) -> str:
    """A sentence on the test folds that have no AUC; empty if all have one."""
    label = np.array(split["label"])
    poor = [fold["name"] for fold in split["folds"] if len(set(label[fold["test"]].tolist())) < 2]
    if not poor:
        return ""
    return (
        f"{len(poor)} of {len(split['folds'])} folds of protocol {split['protocol']} test one "
        f"class only, e.g. {poor[0]}; they have no AUC, so tables leave them out"
    )


def permute_within_site(site, label, number: int) -> np.ndarray:
    """Labels shuffled among the subjects of each site."""
    site, label = np.asarray(site), np.array(label)
    generator = numpy_generator("permuted-labels", number)
    for one in np.unique(site):
        here = np.flatnonzero(site == one)
        label[here] = label[generator.permutation(here)]
    return label


def split_checksum(split: dict) -> str:
    """SHA-256 of everything in a split but the checksum itself."""
    rest = {key: value for key, value in split.items() if key != "checksum"}
    text = json.dumps(rest, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def read_split(path: str | Path) -> dict:
    """A split file that is still what was written."""
    split = read_json(path, "checksum", "subjects", "folds")
    if split["checksum"] != split_checksum(split):
        raise BrioError(
            f"{path} was damaged or edited, its checksum does not fit; delete it and run the "
            "workflow again"
        )
    return split


def plain_rows(split: dict):
    """A split as a table: one row per fold and subject that takes part in it."""
    import pandas as pd

    return pd.DataFrame(
        [
            (split["subjects"][row], fold["name"], part)
            for fold in split["folds"]
            for part in ("train", "validation", "test")
            for row in fold[part]
        ],
        columns=["subject", "fold", "split"],
    )


def all_sites(table, cohort: str, without: Sequence[str] = ()) -> dict:
    """A split of one fold, in which all sites train; those ``without`` are what it tests.

    All training sites choose for one another wherever left-out sites choose.
    """
    site, label = (table[name].to_numpy() for name in ("site", "label"))
    test = np.isin(site, list(without))
    parts = [np.flatnonzero(site == one) for one in np.unique(site[~test])]
    if len(parts) < 2:
        raise BrioError(
            f"cohort {cohort!r} has {len(parts)} sites to train on, and two or more are needed, "
            "so that each can be left out; add sites"
        )
    split = {
        "cohort": cohort,
        "protocol": ALL_SITES,
        "subjects": table["subject"].tolist(),
        "site": [str(one) for one in site],
        "label": [int(one) for one in label],
        "folds": [_fold(ALL_SITES, np.flatnonzero(test), parts, np.flatnonzero(~test))],
    }
    return {**split, "checksum": split_checksum(split)}


def make_split(table, cohort: str, protocol: str, split_seed: int, ring: int = 0) -> dict:
    """The contents of a split file from participants.tsv; the first ring bears no number."""
    site, label, group = (table[name].to_numpy() for name in ("site", "label", "group"))
    permuted, drawn = PERMUTED.fullmatch(protocol), DRAWN.fullmatch(protocol)
    if permuted:
        label = permute_within_site(site, label, int(permuted[1]))
    if protocol in ("loso", ONE_FOLD) or permuted or drawn:
        folds = loso(site, label, group, split_seed)
        if protocol == ONE_FOLD:
            folds = folds[:1]
        if drawn:
            folds = drawn_folds(folds, site, label, cohort, drawn)
    elif protocol == MATCHED:
        rows = motion_matched(site, label, table["mean_fd"])
        if (usable := len(np.unique(site[rows]))) < MIN_SITES:
            raise BrioError(
                f"cohort {cohort!r} has {usable} sites with {FEWEST_PAIRS} or more pairs of a "
                f"patient and a control who moved alike, and {MIN_SITES} are needed; leave the "
                "cohort or the experiment 'motion-matched' out"
            )
        folds = [
            _fold(
                fold["name"],
                rows[fold["test"]],
                [rows[part] for part in fold["validation_groups"]],
                rows[fold["train"]],
            )
            for fold in loso(site[rows], label[rows], group[rows], split_seed)
        ]
    elif protocol == "id":
        folds = id_folds(site, label, group, split_seed)
    else:
        raise BrioError(
            f"there is no protocol {protocol!r}; choose loso, id, loso-permuted-<number>, "
            f"{MATCHED}, {ONE_FOLD}, or loso-sites-<number>-draw-<number>, also with subjects for "
            "sites"
        )
    split = {
        "cohort": cohort,
        "protocol": protocol,
        "split_seed": split_seed,
        "permutation": int(permuted[1]) if permuted else None,
        "subjects": table["subject"].tolist(),
        "site": [str(one) for one in site],
        "label": [int(one) for one in label],
        "folds": folds,
    } | ({"ring": ring} if ring else {})
    return {**split, "checksum": split_checksum(split)}
