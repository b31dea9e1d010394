"""What is gained by setting the least certain subjects aside: by stability or by probability?"""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from brio_core.evaluation.abstention import (
    PROBABILITY,
    SHARES,
    STABILITY,
    curve,
    most_certain_first,
)
from brio_core.evaluation.site_statistics import paired
from brio_core.reporting.blocks import by_cohort
from brio_core.reporting.diagnostics import Diagnostics, read_diagnostics
from brio_core.reporting.given import Given
from brio_core.reporting.results import cohort_title
from brio_core.reporting.table import NONE, Cell, Table, percent, plural, with_interval

OUTPUT = {
    "files": ["diagnostics"],
    "page": "diagnostics",
    "title": "Who to set aside",
    "caption": "Accuracy and AUC of those who are kept, when the least certain are set aside.",
    "options": ["margin"],
}

SCORES = ("accuracy", "auc")
# The share of subjects kept that the printed table shows; the CSV has all.
SHOWN = 0.7
COLUMNS = (
    "Method", "All", "By stability", "By probability", "All", "By stability", "By probability",
    "Difference", "Verdict",
)  # fmt: skip
DIFFERENCE = ("difference", "difference_low", "difference_high")


def make(given: Given) -> tuple[pd.DataFrame, Table]:
    """One row per variant, way of abstaining and share of subjects kept."""
    margin = given.entry.get("margin", 0.02)
    found = read_diagnostics(given.files["diagnostics"])
    rows = abstention_rows(found, margin)
    notes = [_note(cohort_title(given.datasets, one.cohort), rows, one) for one in found]
    table = given.table(
        COLUMNS,
        by_cohort(rows, given, COLUMNS, _cells),
        f"In %, the mean over held-out sites, each averaged over seeds. Of every site "
        f"{100 * SHOWN:.0f} % are kept: those whose decision most re-estimates of the scan confirm,"
        " then those whose logit moves least; or those whose logit is farthest from the threshold, "
        "as a probability would have it. Difference: accuracy by stability minus by probability, "
        "averaged over all shares below 100 %, with Student's 95 % interval over sites. The verdict"
        f" is equivalent within {100 * margin:g} points, else by the signed-rank test with Holm's "
        "correction.",
        *notes,
        spans=(("", 1), ("Accuracy", 3), ("AUC", 3), ("Stability − probability", 2)),
        left=(0, 8),
    )
    return rows, table


def abstention_rows(found: Sequence[Diagnostics], margin: float = 0.02) -> pd.DataFrame:
    """``accuracy_mean`` and ``auc_mean`` over sites, with what a paired test of both ways says.

    Sites whose kept subjects lack a class have no AUC at that share.
    """
    rows = []
    for one in found:
        people = one.table("held-out")
        variants = [name for name in one.variants if (people["variant"] == name).any()]
        curves = {
            (name, by): _curves(people[people["variant"] == name], by)
            for name in variants
            for by in (STABILITY, PROBABILITY)
        }
        accuracy = {key: values[:, 0, 1:].mean(1) for key, values in curves.items()}
        differences = [accuracy[name, STABILITY] - accuracy[name, PROBABILITY] for name in variants]
        for name, compared in zip(variants, paired(differences, margin)):
            for by in (STABILITY, PROBABILITY):
                values = curves[name, by]
                for place, share in enumerate(SHARES):
                    row = one.identity(name) | {"by": by, "share": share, "sites": len(values)}
                    for score, at in zip(SCORES, values[:, :, place].T):
                        row[f"{score}_mean"] = np.nanmean(at) if np.isfinite(at).any() else np.nan
                    kept = (*DIFFERENCE, "p_holm", "verdict")
                    rows.append(row | {key: compared[key] for key in kept})
    names = ("cohort", "protocol", "variant", "method", "label", "group", "by", "share")
    return pd.DataFrame(rows) if rows else pd.DataFrame(columns=list(names))


def _curves(people: pd.DataFrame, by: str) -> np.ndarray:
    """Accuracy and AUC (sites, 2, shares), averaged over seeds."""
    columns = ["margin", "agreement", "deviation"]
    found: dict[str, list[np.ndarray]] = {}
    for (site, _), own in people.groupby(["fold", "seed"], sort=True):
        order = most_certain_first(by, *(own[name].to_numpy() for name in columns))
        values = curve(own["label"].to_numpy(), own["margin"].to_numpy(), order)
        found.setdefault(site, []).append(values)
    return np.stack([np.mean(values, axis=0) for values in found.values()])


def _cells(own: pd.DataFrame) -> list[Cell]:
    at = own.set_index(["by", "share"])
    cells = []
    for score in SCORES:
        places = [(STABILITY, 1.0), (STABILITY, SHOWN), (PROBABILITY, SHOWN)]
        cells += [Cell(percent(at.loc[place, f"{score}_mean"])) for place in places]
    first = own.iloc[0]
    return [*cells, with_interval(*first[list(DIFFERENCE)]), Cell(first["verdict"] or NONE)]


def _note(title: str, rows: pd.DataFrame, one: Diagnostics) -> str:
    """Whether stability adds anything, in words."""
    own = rows[(rows["cohort"] == one.cohort) & (rows["protocol"] == one.protocol)]
    if own.empty:
        return f"{title}: no stored diagnostics tell about single subjects; diagnose again."
    verdicts = own.drop_duplicates("variant")["verdict"].value_counts()
    words = [f"{word} {verdicts.get(word, 0)}" for word in
             ("better", "worse", "equivalent", "undecided")]  # fmt: skip
    text = (
        f"{title}: setting aside by stability compared with by probability, "
        f"{plural(int(verdicts.sum()), 'method')}: {', '.join(words)}."
    )
    if verdicts.get("better", 0):
        return text
    return f"{text} No method shows that stability adds anything to the probability here."
