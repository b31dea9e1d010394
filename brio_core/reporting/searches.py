"""One setting or several to choose from: what the choice of the validation subjects gains."""

from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from brio_core.reporting.blocks import blocks
from brio_core.reporting.checkpoints import with_error
from brio_core.reporting.results import in_paper_order, read_meta
from brio_core.reporting.tables import NOT_RUN, Cell, Table, percent

PLACE = ["cohort", "protocol", "variant"]
ONE, SEARCHED = "one", "searched"
KINDS = (ONE, SEARCHED)
TEXTS = ("setting", "values", "folds_chosen", "shipped")
DIFFERENCE = "auc_difference"
NONE = "–"


def search_rows(
    summaries: pd.DataFrame,
    sites: pd.DataFrame,
    folders: Sequence[str | Path],
    planned: Sequence[dict] = (),
) -> pd.DataFrame:
    """One row per cohort, protocol and method: AUC with one try and with the best of several.

    ``validation_one`` and ``validation_searched`` are AUCs of the selected checkpoints as means
    over folds and seeds; ``validation_shipped`` is that of the same training as the latter, had
    all folds kept the setting of the former. ``auc_difference`` is searched minus one at the same
    test folds. Ranks are by test AUC; a method with one value has it in both. ``status`` tells a
    search that is ``planned`` and was not run from one that does not exist.
    """
    both = {one["method"] for one in planned if one["variant"] != one["method"]}
    scores = summaries.set_index(PLACE)["auc_mean"]
    # Averaged over seeds already.
    by_fold = sites.set_index([*PLACE, "fold"])["auc"].sort_index()
    found: dict[tuple, dict[str, list[dict]]] = {}
    for folder in folders:
        meta = read_meta(folder)
        kind = SEARCHED if len(meta["tries"]) > 1 else ONE
        place = (meta["cohort"], meta["protocol"], meta["method"])
        found.setdefault(place, {}).setdefault(kind, []).append(meta)
    rows = []
    for (cohort, protocol, method), trained in found.items():
        first = trained[ONE if ONE in trained else SEARCHED][0]
        row = {"cohort": cohort, "protocol": protocol, "method": method, "variant": method}
        row |= {key: first[key] for key in ("group", "label")}
        row |= _search(trained.get(SEARCHED, []), first["hyperparameters"])
        row |= _validation(trained) | _test(trained, scores, by_fold)
        row["status"] = NOT_RUN if method in both and len(trained) == 1 else "run"
        rows.append(row)
    return _ranked(in_paper_order(pd.DataFrame(rows)).drop(columns="variant"))


def _validation(trained: dict[str, list[dict]]) -> dict:
    found = {}
    for kind in KINDS:
        folds = [fold for meta in trained.get(kind, []) for fold in meta["folds"]]
        aucs = pd.Series([fold["validation_auc"] for fold in folds], dtype=float)
        found[f"validation_{kind}"] = aucs.mean()
    return found


def _test(trained: dict[str, list[dict]], scores: pd.Series, by_fold: pd.Series) -> dict:
    means: dict[str, float | None] = {f"auc_{kind}": None for kind in KINDS}
    folds = {}
    for kind, metas in trained.items():
        place = tuple(metas[0][key] for key in PLACE)
        means[f"auc_{kind}"], folds[kind] = scores[place], by_fold[place]
    if len(folds) < len(KINDS):
        return means | {DIFFERENCE: None, f"{DIFFERENCE}_se": None}
    differences = folds[SEARCHED] - folds[ONE]
    return means | {DIFFERENCE: differences.mean(), f"{DIFFERENCE}_se": differences.sem()}


def _search(metas: list[dict], shipped: dict) -> dict:
    """What the trainings of all seeds tried, and how many folds chose it."""
    if not metas:
        return dict.fromkeys(TEXTS, "") | {"tries": None, "validation_shipped": None}
    tries = [one["chosen"] for one in metas[0]["tries"]]
    chosen = [fold["chosen"] for meta in metas for fold in meta["folds"]]
    usual = {key: shipped[key] for key in tries[0]}
    of_usual = [
        one["validation_auc"] for meta in metas for one in meta["tries"] if one["chosen"] == usual
    ]
    return {
        "setting": ", ".join(usual),
        "tries": len(tries),
        "values": ", ".join(map(_text, tries)),
        "folds_chosen": ", ".join(str(chosen.count(one)) for one in tries),
        "shipped": _text(usual),
        "validation_shipped": pd.Series(of_usual, dtype=float).mean(),
    }


def _text(chosen: dict) -> str:
    """The values of one try, ``0.1`` or ``0.1 / 10``."""
    values = chosen.values()
    return " / ".join(f"{one:g}" if isinstance(one, float) else str(one) for one in values)


def _ranked(rows: pd.DataFrame) -> pd.DataFrame:
    aucs = {kind: rows[f"auc_{kind}"].astype(float) for kind in KINDS}
    # Without a search the only try is also the best.
    aucs[SEARCHED] = aucs[SEARCHED].fillna(aucs[ONE])
    for kind, values in aucs.items():
        groups = values.groupby([rows["cohort"], rows["protocol"]])
        rows[f"rank_{kind}"] = groups.rank(ascending=False, method="min").astype("Int64")
    return rows.astype({"tries": "Int64"})


def search_table(rows: pd.DataFrame, experiment: dict, datasets: dict) -> Table:
    """What :func:`search_rows` found, cohorts one below the other."""
    return Table(
        title=experiment.get("title", "Searches"),
        caption=experiment.get("caption", ""),
        columns=(
            "Method", "Setting", "Values", "Folds that chose each", "Shipped", "Best of all",
            "One try", "Several", "Difference",
        ),
        spans=(("", 4), ("Validation AUC", 2), ("Test AUC", 3)),
        rows=blocks(rows, datasets, _cells),
        notes=(
            "AUC in %, as means over folds and seeds. Values: what every fold was trained with, "
            "and behind it how many folds chose each by their validation sites. Validation AUC: "
            "of the checkpoints of these trainings, shipped: with the value that the method has "
            "without a search, best of all: with the one that each fold chose. The best of several "
            "is flattered on the sites that chose it, not on unseen ones. Test: the mean over "
            "unseen sites; it decides nothing here.",
            "Difference: several tries minus one at the same sites, ± its standard error over "
            "folds. The trainings of a search draw other random numbers than the one try, so that "
            f"luck is in the difference too. {NONE}: there is nothing to search, such as for "
            "linear models, which choose their penalty along a path, or the shipped value is not "
            "among those tried.",
        ),
        section="training",
        left=(0, 1, 2, 3),
    )  # fmt: skip


def _cells(row: pd.Series) -> list[Cell]:
    missing = NOT_RUN if row["status"] == NOT_RUN else NONE

    def number(name: str, otherwise: str = missing) -> Cell:
        return Cell(otherwise if pd.isna(row[name]) else percent(row[name]))

    texts = [Cell(row[name] or missing) for name in ("setting", "values", "folds_chosen")]
    # A search that was run lacks this where the shipped value is not among those tried.
    shipped = number("validation_shipped", NONE if row["setting"] else missing)
    return [
        *texts, shipped, number("validation_searched"), number("auc_one"), number("auc_searched"),
        Cell(with_error(row, DIFFERENCE)),
    ]  # fmt: skip
