"""Choices that the paper leaves open."""

from collections.abc import Iterator, Sequence
from functools import reduce
from operator import getitem
from pathlib import Path

import pandas as pd
import yaml

from brio_core.reporting.catalogue import REFERENCE, Given, output, remarks
from brio_core.reporting.table import Cell, Row, Table, heading
from brio_core.system.errors import BrioError
from brio_core.system.files import ROOT, own_or_shipped

SCHEMAS = ROOT / "workflow" / "schemas"
COLUMNS = ("concerns", "part", "file", "choice", "value", "key", "remark")
NOT_IN_PAPER = "Linear"
LONG = 40
WITHOUT_KEY = (
    "Three choices have no key: a subject counts as class 1 above a probability of one half, and "
    "beside that above a threshold of validation (brio_core/evaluation/scores.py); the validation "
    "sites of a fold are the next two on a ring of sites that split_seeds draw "
    "(brio_core/cohorts/splits.py); of the checkpoints the one with the best mean AUC over "
    "validation sites is kept, among equals the lowest log-loss (brio_core/training/selection.py)."
)


@output(
    files=["config", "methods"],
    page="settings",
    title="Choices that the paper leaves open",
    caption="What the paper does not state, our value in this run, and where to change it.",
    options=["other_methods"],
    reads=["workflow/schemas/*.yaml"],
)
def settings_table(given: Given) -> tuple[pd.DataFrame, Table]:
    """Choices that the paper leaves open: our values, and where to change them.

    What concerns BRIO and all methods, or with ``other_methods`` all methods but BRIO.
    """
    (config,) = given.files["config"]
    rows = open_choices(config, given.files["methods"])
    others = rows["concerns"] == "other methods"
    rows = rows[others if given.entry.get("other_methods") else ~others]
    return rows, choices_table(rows, given)


def read_yaml(path: str | Path) -> dict:
    """A YAML file of the configuration."""
    try:
        return yaml.safe_load(Path(path).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise BrioError(f"{path} does not exist; run the workflow once, which writes it") from None
    except yaml.YAMLError as error:
        raise BrioError(f"{path} is not valid YAML ({error}); correct it") from None


def open_choices(config: str | Path, methods: Sequence[str | Path]) -> pd.DataFrame:
    """One row per choice: what the paper does not state, as the resolved configuration has it."""
    run = read_yaml(config)
    paths = map(own_or_shipped, methods)
    files = {path.stem: path for path in paths}
    default = read_yaml(SCHEMAS / "method.schema.yaml")["properties"]["stated"]["default"]
    used = [name for name in run["variants"] if name in files]
    used.sort(key=lambda name: name != REFERENCE)
    rows = []
    for name in used:
        if run["variants"][name]["group"] != NOT_IN_PAPER:
            stated = read_yaml(files[name]).get("stated", default)
            rows += _method_rows(name, run["variants"][name], stated, remarks(files[name]))
    main = "the main configuration"
    rows += _schema_rows(SCHEMAS / "config.schema.yaml", run["config"], "All methods", main)
    for cohort, values in run["datasets"].items():
        title = values.get("title") or cohort
        file = f"config/datasets/{cohort}.yaml"
        rows += _schema_rows(SCHEMAS / "dataset.schema.yaml", values, title, file)
    return pd.DataFrame(rows, columns=list(COLUMNS))


def _method_rows(name: str, params: dict, stated: Sequence[str], notes: dict) -> Iterator[tuple]:
    for key, value in params["hyperparameters"].items():
        searched = params.get("search", {})
        # What folds choose is our choice, also where the paper states a value.
        if key in searched or key not in stated:
            if key in searched:
                value = f"in every fold the best on validation of {_text(searched[key])}"
            concerns = "BRIO" if name == REFERENCE else "other methods"
            where = (f"config/methods/{name}.yaml", key, _text(value), f"overrides.{name}.{key}")
            yield concerns, params["label"], *where, notes.get(key, "")


def _schema_rows(path: Path, values: dict, part: str, file: str) -> Iterator[tuple]:
    for key, rule in _unstated(read_yaml(path)):
        value = reduce(getitem, key.split("."), values)
        if value != {}:
            yield "all methods", part, file, key, _text(value), key, rule["description"].strip()


def _unstated(rules: dict, above: str = "") -> Iterator[tuple[str, dict]]:
    """Keys of a schema that are marked ``stated: false``, dotted."""
    for key, rule in rules.get("properties", {}).items():
        if rule.get("stated") is False:
            yield above + key, rule
        yield from _unstated(rule, f"{above}{key}.")


def _text(value: object) -> str:
    if isinstance(value, dict):
        return "; ".join(f"{key}: {_text(one)}" for key, one in value.items())
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def choices_table(rows: pd.DataFrame, given: Given) -> Table:
    """The choices by method, configuration and cohort."""
    notes = [
        "The file stands behind each heading. Hyperparameters of methods are its presets.common; "
        "the key changes them from the main configuration. A change repeats the runs of its "
        "method and what is made of them, nothing else."
    ]
    if not given.entry.get("other_methods"):
        notes.append(WITHOUT_KEY)
    lines = []
    for part, own in rows.groupby("part", sort=False):
        lines.append(heading(f"{part}, {own['file'].iloc[0]}"))
        shown = own[["choice", "value", "key", "remark"]].to_numpy()
        lines += [Row(tuple(map(Cell, texts))) for texts in shown]
    return given.table(
        ("Choice", "Value", "Key", "Remark"),
        lines,
        *notes,
        left=(0, 1, 2, 3),
        folded=len(rows) > LONG,
    )
