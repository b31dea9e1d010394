"""Variants of methods: hyperparameters, kinds of connectivity, block lengths."""

from collections.abc import Callable
from dataclasses import replace

import pandas as pd

from brio_core.reporting import results
from brio_core.reporting.blocks import by_cohort, part_of, scored
from brio_core.reporting.catalogue import Given, output
from brio_core.reporting.choices import choices, chosen_variants, differences
from brio_core.reporting.cohorts import block_lengths, read_block_lengths
from brio_core.reporting.paired import HEADS, compared, difference_cells
from brio_core.reporting.table import (
    NONE,
    NOT_RUN,
    Cell,
    Row,
    Table,
    heading,
    number,
    percent,
    points,
)

SEARCHED = "searched"
TEXTS = ("setting", "values", "folds_chosen", "shipped")
SPANS = {
    "validation": "Validation AUC, chosen",
    "crossed": "Validation AUC, cross-selected",
    "auc": "Test AUC",
}
FOLDS_CHOSEN = "Folds that chose each"
NESTED = "Test AUC, nested"
PREFERENCE_NOTE = (
    "The cross-selected AUC says which to prefer; where there is none, chosen does. Nested: "
    "every site takes what is preferred by folds in which it neither validates nor is tested, "
    "though it trains there; the preference of all folds has seen its labels. –: there is nothing "
    "to compare."
)
SEARCH_NOTE = (
    "Values: those that were tried, and how many folds chose each by their validation sites. So no "
    "choice has seen its test site. Cross-selection covers the choice of an epoch, not that of a "
    "hyperparameter. The trainings of a search draw other random numbers than the one try, and "
    "this is in the difference too. –: there is nothing to search, "
    "such as for linear models, which choose their penalty along a path."
)


@output(
    files=["summaries", "sites", "runs"],
    page="training",
    options=["names", "margin"],
)
def variants_table(given: Given) -> tuple[pd.DataFrame, Table]:
    """Each method against a variant of it: other hyperparameters, or several to choose from.

    One row per cohort, protocol and method.

    ``names`` says what columns call a method itself and its variant; of the names ``one`` and
    ``searched``, runs with several tries have the latter. For both there are ``validation`` (AUC of
    the selected checkpoints), ``crossed`` (of one validation site at the epoch that the others
    choose), ``auc`` (on test sites) and its ``rank``. ``crossed_difference`` is variant minus
    method in the same folds and seeds; ``auc_difference`` is that of test AUCs, tested over sites.
    ``auc_nested`` is on test sites, each with what other folds prefer.
    ``status`` tells a variant that was planned and not run from one that does not exist.
    """
    names = given.entry.get("names", ["method", "variant"])
    scores = results.read_variants(given.files["summaries"])["auc_mean"]
    sites = results.read_sites(given.files["sites"])
    by_fold = sites.set_index([*results.PLACE, "fold"])["auc"].sort_index()
    planned = given.planned.get("variants", [])
    both = {one["method"] for one in planned if one["variant"] != one["method"]}
    found: dict[tuple, dict[str, list]] = {}
    for folder in given.files["runs"]:
        meta = results.read_meta(folder)
        is_variant = meta["variant"] != meta["method"]
        if names[1] == SEARCHED:
            is_variant = len(meta.get("tries", ())) > 1
        place = (meta["cohort"], meta["protocol"], meta["method"])
        trained = found.setdefault(place, {}).setdefault(names[is_variant], [])
        trained.append((meta, pd.DataFrame(choices(folder))))
    rows = []
    for (cohort, protocol, method), trained in found.items():
        first = trained[names[names[0] not in trained]][0][0]
        row = {"cohort": cohort, "protocol": protocol, "method": method}
        own, other = (trained[name][0][0]["variant"] if name in trained else "" for name in names)
        row |= {"variant": other, "reference": own if other else ""}
        row |= {key: first[key] for key in ("group", "label")}
        row |= _search([meta for meta, _ in trained.get(names[1], [])], first["hyperparameters"])
        row |= _scores(trained, names, scores, by_fold)
        row["status"] = NOT_RUN if method in both and len(trained) == 1 else "run"
        rows.append(row)
    table = pd.DataFrame(rows)
    table, notes = compared(table, sites, given, table["reference"], names[0])
    # One row is a method, whichever of its variants the difference is of.
    table = _ranked(results.in_paper_order(table.assign(variant=table["method"])), names)
    is_search = table["tries"].notna().any()
    printed = _table(table, given, names, is_search, notes)
    # Cross-selection does not cover the choice of a hyperparameter, so it prefers nothing there.
    unused = ["preferred", "auc_nested"] if is_search else [*TEXTS, "tries", "validation_shipped"]
    named = {name: f"auc_{name}" for name in table if name.startswith("difference")}
    table = table.drop(columns=["variant", "reference", *unused])
    return table.rename(columns=named), printed


def _scores(trained: dict, names: list[str], scores: pd.Series, by_fold: pd.Series) -> dict:
    row: dict = {f"{measure}_{name}": None for measure in SPANS for name in names}
    row |= {"crossed_difference": None, "crossed_difference_se": None}
    folds, tested = {}, {}
    for name, runs in trained.items():
        folds[name] = pd.concat([one for _, one in runs])
        place = tuple(runs[0][0][key] for key in results.PLACE)
        row[f"validation_{name}"] = folds[name]["validation_auc"].mean()
        row[f"crossed_{name}"] = folds[name]["validation_crossed"].mean()
        row[f"auc_{name}"], tested[name] = scores[place], by_fold[place]
    if len(trained) < len(names):
        return row | {"preferred": "", "auc_nested": None}
    own, other = names
    nested = chosen_variants(pd.concat(folds.values()))[1]
    by_variant = {folds[name]["variant"].iloc[0]: tested[name] for name in names}
    row["auc_nested"] = pd.Series([by_variant[one][fold] for fold, one in nested.items()]).mean()
    found = differences(pd.concat(folds.values()), folds[own]["variant"].iloc[0])
    better, error = found.iloc[0]
    row |= {"crossed_difference": better, "crossed_difference_se": error}
    if pd.isna(better):
        better = row[f"validation_{other}"] - row[f"validation_{own}"]
    return row | {"preferred": other if better > 0 else own}


def _search(metas: list[dict], shipped: dict) -> dict:
    """What the trainings of all seeds tried, and how many folds chose it."""
    tries = [one["chosen"] for one in metas[0].get("tries", [])] if metas else []
    if len(tries) < 2:
        return dict.fromkeys(TEXTS, "") | {"tries": None, "validation_shipped": None}
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


def _ranked(rows: pd.DataFrame, names: list[str]) -> pd.DataFrame:
    own, other = (rows[f"auc_{name}"].astype(float) for name in names)
    # Without a variant the method itself is also the best.
    for name, values in zip(names, (own, other.fillna(own))):
        groups = values.groupby([rows["cohort"], rows["protocol"]])
        rows[f"rank_{name}"] = groups.rank(ascending=False, method="min").astype("Int64")
    return rows.astype({"tries": "Int64"})


def _table(
    rows: pd.DataFrame, given: Given, names: list[str], is_search: bool, notes: list[str]
) -> Table:
    """What was tried, if several values were, and both beside each other."""
    tried = {"setting": "Hyperparameter", "values": "Values", "folds_chosen": FOLDS_CHOSEN}
    before = tried if is_search else {}
    behind = {} if is_search else {"preferred": "Preferred by validation"}
    both = [name.capitalize() for name in names]
    heads = ("Method", *before.values(), *both, *[*both, "Difference"] * 2, *HEADS)
    heads += (*behind.values(), *(() if is_search else (NESTED,)))
    # The first columns have no heading above them, nor have the last.
    widths = (2, 3, 3 + len(HEADS))
    spans = [("", 1 + len(before)), *zip(SPANS.values(), widths)]
    spans += [] if is_search else [("", 1), ("", 1)]

    def cells(own: pd.DataFrame) -> list[Cell]:
        row = own.iloc[0]
        missing = NOT_RUN if row["status"] == NOT_RUN else NONE
        found = [Cell(row[key] or missing) for key in before]
        for measure in SPANS:
            for name in names:
                value = row[f"{measure}_{name}"]
                preferred = measure == "crossed" and not is_search and name == row["preferred"]
                found.append(Cell(missing if pd.isna(value) else percent(value), bold=preferred))
            if measure == "crossed":
                difference = row["crossed_difference"], row["crossed_difference_se"]
                found.append(Cell(points(*difference)))
        found += [*difference_cells(row), *(Cell(row[key] or missing) for key in behind)]
        return found if is_search else [*found, Cell(percent(row["auc_nested"]))]

    words = ("Method", *before.values(), *behind.values())
    return given.table(
        heads,
        by_cohort(rows, replace(given, planned={}), heads, cells),
        "AUC in %, as means over folds and seeds. Chosen: of the checkpoint that the validation "
        "sites chose; the more there is to choose from, the higher it is. Cross-selected: of one "
        "validation site at the epoch that the other chooses. Test: the mean over unseen sites; it "
        f"decides nothing here. Difference of validation: {names[1]} minus {names[0]} in the same "
        "folds, ± its standard error over folds, which counts that folds share validation sites.",
        SEARCH_NOTE if is_search else PREFERENCE_NOTE,
        *notes,
        spans=tuple(spans),
        left=tuple(index for index, head in enumerate(heads) if head in words),
    )


SCALE = "block_length_scale"


@output(
    files=["summaries", "sites", "block_lengths"],
    options=["reference", "margin"],
)
def block_lengths_table(given: Given) -> tuple[pd.DataFrame, Table]:
    """BRIO with shorter and longer blocks: frames, seconds and scores, cohorts one below the other.

    One row per cohort, protocol and planned variant; lengths are medians over folds.
    """
    lengths = read_block_lengths(given.files["block_lengths"])
    index = results.read_variants(given.files["summaries"])
    rows = []
    for place in map(tuple, given.planned["pairs"]):
        for one in given.planned["variants"]:
            scale = float(one.get("change", {}).get(SCALE, 1.0))
            row = {"status": NOT_RUN, **dict(zip(("cohort", "protocol"), place))}
            row |= {"variant": one["variant"], "label": one["label"], "scale": scale}
            if place in lengths:
                frames, seconds = block_lengths(lengths[place], scale)
                row |= {"frames": frames.median(), "frames_min": frames.min()}
                row |= {"frames_max": frames.max(), "seconds": seconds.median()}
            key = (*place, one["variant"])
            if key in index.index:
                scores = [f"{s}_{what}" for s in results.SCORES for what in ("mean", "sd")]
                row |= {"status": "run"}
                row |= {name: index.loc[key, name] for name in ("seeds", *scores)}
            rows.append(row)
    sites = results.read_sites(given.files["sites"])
    table, notes = compared(pd.DataFrame(rows), sites, given, name="the estimated length")
    scores, lines = scored(table), []
    for place in map(tuple, given.planned["pairs"]):
        lines.append(heading(results.place_title(given.datasets, *place)))
        lines += [Row(_block_cells(row, scores)) for _, row in part_of(table, *place).iterrows()]
    printed = given.table(
        ("Block length", "Frames", "Seconds", "AUC", "ACC", "Difference", *HEADS),
        lines,
        "Frames and seconds: median over folds, in brackets their range where folds differ. AUC "
        "and ACC in %: mean ± standard deviation over held-out sites, each averaged over seeds "
        "first. Bold: the highest of a cohort as printed.",
        *notes,
    )
    return table, printed


def _block_cells(row: pd.Series, scores: Callable[[pd.Series], list[Cell]]) -> tuple[Cell, ...]:
    scale = Cell(f"{row['scale']:g} ×")
    if row["status"] == NOT_RUN:
        return scale, *[Cell(NOT_RUN)] * (5 + len(HEADS))
    low, high = row["frames_min"], row["frames_max"]
    span = "" if low == high else f"[{low:g}, {high:g}]"
    seconds = Cell(number(row["seconds"], ".1f"))
    return scale, Cell(f"{row['frames']:g}", span), seconds, *scores(row), *difference_cells(row)
