"""Are results complete, and are they what was asked for? The same answer on both machines."""

import itertools
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from brio_core.cohorts.checksums import input_checksums
from brio_core.cohorts.splits import read_split
from brio_core.reporting.diagnostics import ABOUT
from brio_core.reporting.results import PREDICTION_COLUMNS, read_history, read_meta, read_table
from brio_core.system.errors import BrioError
from brio_core.system.files import read_json

RUN_FILES = ("predictions.csv", "history.csv", "meta.json")
DIAGNOSTICS = ("folds.csv", "rois.csv", "meta.json")


def check_cell(wanted: Namespace, same_inputs: bool = True) -> None:
    """Raise unless ``wanted.out_dir`` holds what train.py writes for these arguments."""
    folder = wanted.out_dir
    _require(folder, RUN_FILES)
    split = read_split(wanted.split)
    meta = read_meta(folder)
    expected = {
        "cohort": split["cohort"],
        "protocol": split["protocol"],
        "variant": wanted.variant,
        "seed": wanted.seed,
        **{key: wanted.params[key] for key in ABOUT},
        "split_checksum": split["checksum"],
    }
    _compare(folder, meta, expected | _made_of(wanted, same_inputs))
    search = wanted.params.get("search", {})
    tries = [dict(zip(search, choice)) for choice in itertools.product(*search.values())]
    if [one.get("chosen") for one in meta.get("tries", [])] != tries:
        raise BrioError(f"{folder}/meta.json tells of another search than the configuration has")
    _check_predictions(folder / "predictions.csv", split)
    names = {fold["name"] for fold in split["folds"]}
    if set(read_history(folder)["fold"]) != names:
        raise BrioError(f"{folder}/history.csv has other folds than {wanted.split}")


def check_diagnostics(wanted: Namespace, same_inputs: bool = True) -> None:
    """Raise unless ``wanted.out_dir`` holds what diagnose.py writes for these arguments."""
    from brio_core.evaluation.diagnostics.run import CELL, stored_auc

    folder = wanted.out_dir
    _require(folder, DIAGNOSTICS)
    split = read_split(wanted.split)
    cell = read_meta(wanted.run)
    expected = {key: cell[key] for key in CELL}
    expected |= {"diagnostics": wanted.settings, "split_checksum": split["checksum"]}
    expected |= _made_of(wanted, same_inputs)
    _compare(folder, read_json(folder / "meta.json", *expected), expected)
    # The scores of the predictions stand in the diagnostics: these must be of the same cell.
    tested = stored_auc(wanted.run / "predictions.csv")
    tested = [
        (cell["variant"], str(cell["seed"]), fold, f"{auc:.9g}") for fold, auc in tested.items()
    ]
    columns = ("variant", "seed", "fold", "test_auc")
    found = read_table(folder / "folds.csv", columns)[list(columns)]
    if sorted(found.itertuples(index=False, name=None)) != sorted(tested):
        raise BrioError(f"{folder}/folds.csv was made of another cell than the one that is there")
    for path in folder.glob("*.csv"):
        read_table(path)


def _made_of(wanted: Namespace, same_inputs: bool) -> dict[str, Any]:
    expected = {"code": wanted.code}
    if same_inputs:
        expected["inputs"] = input_checksums(wanted.cohort_dir, wanted.block_length)
    return expected


def _require(folder: Path, names: Sequence[str]) -> None:
    for name in names:
        if not (folder / name).is_file():
            raise BrioError(f"{folder} is not complete, it has no {name}")


def _compare(folder: Path, meta: dict, expected: dict[str, Any]) -> None:
    for key, value in expected.items():
        found = meta.get(key)
        # Results that were made with other files or code are accepted on request only.
        if value in (found, meta.get("accepted", {}).get(key)):
            continue
        what = f"{key!r} {found!r} instead of {value!r}"
        if isinstance(value, dict) and isinstance(found, dict):
            names = sorted({*value, *found})
            other = next(name for name in names if value.get(name) != found.get(name))
            what = f"another {other!r} in {key!r}"
        raise BrioError(f"{folder} was made with {what}; make it again by the present plan")


def _check_predictions(path: Path, split: dict) -> None:
    """Every row that the split asks for, in its order, with a finite logit."""
    table = read_table(path, PREDICTION_COLUMNS, ("logit",))
    rows = [
        (split["subjects"][row], split["site"][row], fold["name"], part, str(split["label"][row]))
        for fold in split["folds"]
        for part in ("validation", "test")
        for row in fold[part]
    ]
    if len(table) != len(rows):
        raise BrioError(f"{path} has {len(table)} rows, but the split asks for {len(rows)}")
    if list(table[list(PREDICTION_COLUMNS[:-1])].itertuples(index=False, name=None)) != rows:
        raise BrioError(f"{path} has other subjects, sites, folds or labels than the split")
    if not table["logit"].abs().lt(float("inf")).all():
        raise BrioError(f"{path} holds logits that are not finite")
