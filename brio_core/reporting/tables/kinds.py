"""What the kind of connectivity changes: every method on each kind, in the same folds."""

from dataclasses import replace

import pandas as pd

from brio_core.connectivity import FISHER_Z, KINDS
from brio_core.evaluation.site_statistics import signed_rank
from brio_core.reporting.blocks import by_cohort
from brio_core.reporting.given import Given
from brio_core.reporting.results import PLACE, in_paper_order, read_meta, read_sites
from brio_core.reporting.table import NONE, Cell, Table, p_text, percent, points

OUTPUT = {"files": ["sites", "runs"], "page": "training"}

NAMES = {"fisher-z": "Fisher z", "logarithm": "Logarithm", "partial": "Partial correlation"}
OTHERS = tuple(kind for kind in KINDS if kind != FISHER_Z)


def make(given: Given) -> tuple[pd.DataFrame, Table]:
    """One row per cohort, protocol, method and kind.

    ``auc`` is the mean over test folds, each averaged over seeds. ``difference`` is this kind minus
    Fisher z in the same folds, with its standard error and the p of a signed-rank test.
    """
    by_fold = read_sites(given.files["sites"]).set_index([*PLACE, "fold"])["auc"].sort_index()
    metas = {}
    for folder in given.files["runs"]:
        meta = read_meta(folder)
        metas.setdefault(tuple(meta[key] for key in PLACE), []).append(meta)
    rows = []
    for place, runs in metas.items():
        first = runs[0]
        row = {key: first[key] for key in ("cohort", "protocol", "method", "group")}
        row |= {"kind": first["hyperparameters"].get("connectivity", FISHER_Z)}
        row |= {"label": first["label"], "seeds": len(runs), "auc": by_fold[place].mean()}
        rows.append(row | {"folds": by_fold[place]})
    table = pd.DataFrame(rows)
    plain = table[table["kind"] == FISHER_Z].set_index(["cohort", "protocol", "method"])["folds"]
    for index, row in table.iterrows():
        own = (row["cohort"], row["protocol"], row["method"])
        if row["kind"] == FISHER_Z or own not in plain:
            continue
        difference = (row["folds"] - plain[own]).dropna()
        found = {"difference": difference.mean(), "difference_se": difference.sem()}
        found["p"] = signed_rank(difference.to_numpy())[1]
        table.loc[index, list(found)] = list(found.values())
    table = in_paper_order(table.drop(columns="folds").assign(variant=table["method"]))
    return table.drop(columns="variant"), _table(table, given)


def _table(table: pd.DataFrame, given: Given) -> Table:
    columns = ("Method", NAMES[FISHER_Z])
    columns += tuple(head for kind in OTHERS for head in (NAMES[kind], "Difference", "p"))

    def cells(own: pd.DataFrame) -> list[Cell]:
        by_kind = own.set_index("kind")
        found = [_auc(by_kind, FISHER_Z)]
        for kind in OTHERS:
            row = by_kind.loc[kind] if kind in by_kind.index else {}
            difference = points(row.get("difference"), row.get("difference_se"))
            found += [_auc(by_kind, kind), Cell(difference), Cell(p_text(row.get("p")))]
        return found

    named = table.groupby("method")["label"].transform(lambda labels: min(labels, key=len))
    return given.table(
        columns,
        by_cohort(table.assign(label=named), replace(given, planned={}), columns, cells),
        "AUC in %, the mean over test sites and seeds. Difference: this kind minus Fisher z at the "
        "same sites, ± its standard error over sites; p: Wilcoxon's signed-rank test, not "
        "corrected for the number of tests.",
    )


def _auc(by_kind: pd.DataFrame, kind: str) -> Cell:
    return Cell(percent(by_kind.loc[kind, "auc"]) if kind in by_kind.index else NONE)
