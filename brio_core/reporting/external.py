"""Predictions of external code, checked against the split that they claim and stored like a run."""

from pathlib import Path

import pandas as pd

from brio_core.cohorts.splits import read_split
from brio_core.reporting.results import EXTERNAL, PREDICTION_COLUMNS, read_table
from brio_core.system.errors import BrioError
from brio_core.system.files import digest, write_json, write_text


def adopt(
    predictions: str | Path,
    split_file: str | Path,
    checksum: str,
    variant: str,
    label: str,
    group: str,
    seed: int,
    out_dir: str | Path,
) -> None:
    """Write predictions.csv and meta.json of a run that other code has made."""
    split = read_split(split_file)
    if not split["checksum"].startswith(checksum):
        raise BrioError(
            f"{predictions} was made for the split {checksum[:12]}, but {split_file} is "
            f"{split['checksum'][:12]}; predict again with {Path(split_file).with_suffix('.csv')} "
            "and correct 'split_checksum'"
        )
    table = tested_rows(predictions, split)
    folder = Path(out_dir)
    meta = {key: split[key] for key in ("cohort", "protocol")}
    meta |= {"variant": variant, "method": variant, "label": label, "group": group, "seed": seed}
    meta |= {"hyperparameters": {}, "split_checksum": split["checksum"], "device": EXTERNAL}
    meta["folds"] = [{"name": fold["name"]} for fold in split["folds"]]
    meta["external"] = str(predictions)
    write_text(folder / "predictions.csv", table.to_csv(index=False, lineterminator="\n"))
    write_json(folder / "meta.json", meta | {"predictions": digest(folder / "predictions.csv")})


def tested_rows(predictions: str | Path, split: dict) -> pd.DataFrame:
    """Test rows in the order of the split; every test subject once, in its fold, with a logit.

    Site and label come from the split: an external file need not have them, and cannot change them.
    """
    table = read_table(predictions, ("subject", "fold"), ("logit",), ours=False)
    if "split" in table.columns:
        table = table[table["split"] == "test"]
    found = table.set_index(["subject", "fold"])["logit"]
    twice = found.index[found.index.duplicated()]
    if len(twice):
        raise BrioError(f"{predictions} tests subject {twice[0][0]} in fold {twice[0][1]} twice")
    wanted = [(row, fold["name"]) for fold in split["folds"] for row in fold["test"]]
    keys = [(split["subjects"][row], fold) for row, fold in wanted]
    missing = [key for key in keys if key not in found.index]
    if missing:
        raise BrioError(
            f"{predictions} does not test subject {missing[0][0]} in fold {missing[0][1]} "
            f"({len(missing)} of {len(keys)} are missing); predict every test row of the split"
        )
    strange = found.index.difference(pd.MultiIndex.from_tuples(keys))
    if len(strange):
        raise BrioError(
            f"{predictions} tests subject {strange[0][0]} in fold {strange[0][1]}, which the split "
            "does not; leave out all rows that are not test rows of the split"
        )
    logits = found.loc[keys].to_numpy()
    if not pd.Series(logits).abs().lt(float("inf")).all():
        raise BrioError(f"{predictions} holds logits that are not finite; correct them")
    if ((logits >= 0) & (logits <= 1)).all():
        raise BrioError(
            f"{predictions}: all values of 'logit' lie between 0 and 1, so they seem to be "
            "probabilities; write log-odds instead: log(p / (1 - p)), with p not quite 0 or 1"
        )
    rows = [
        (split["subjects"][row], split["site"][row], fold, "test", split["label"][row], logit)
        for (row, fold), logit in zip(wanted, logits)
    ]
    return pd.DataFrame(rows, columns=list(PREDICTION_COLUMNS))
