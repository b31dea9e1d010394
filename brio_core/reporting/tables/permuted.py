"""Permuted labels: without a leak the AUC is that of chance, whatever the method."""

import pandas as pd

from brio_core.evaluation.intervals import interval_over_sites
from brio_core.evaluation.scores import Estimate
from brio_core.reporting.blocks import by_group, pairs
from brio_core.reporting.given import Given
from brio_core.reporting.results import (
    IDENTITY,
    PERMUTED,
    PLACE,
    in_paper_order,
    ordered,
    read_summaries,
)
from brio_core.reporting.table import Cell, Table, plural, with_interval
from brio_core.reporting.tables.results import spans
from brio_core.system.errors import BrioError

OUTPUT = {"files": ["summaries"], "page": "permuted"}

CHANCE = 0.5
ENOUGH = 5


def make(given: Given) -> tuple[pd.DataFrame, Table]:
    """The mean over permutations, with an interval that should contain chance."""
    summaries = read_summaries(given.files["summaries"])
    if not summaries["protocol"].str.fullmatch(PERMUTED.pattern).all():
        raise BrioError("--summaries mixes permuted and true labels; make a table of each")
    rows = permuted_rows(summaries)
    places = pairs(rows, Given(given.output))
    columns = ("Method", *["AUC", "50 inside?"] * len(places))

    def cells(row: pd.Series) -> list[Cell]:
        auc = with_interval(row["auc_mean"], row["auc_low"], row["auc_high"])
        return [auc, Cell(row["contains_chance"], bold=row["contains_chance"] == "no")]

    counts = ordered(map(str, sorted(rows["permutations"])))
    how = (
        "the interval is Student's over permutations"
        if rows["permutations"].min() >= ENOUGH
        else "the interval is Student's over sites"
    )
    table = given.table(
        columns,
        by_group(rows, Given(given.output), columns, cells),
        f"AUC in %, mean over folds and over {' or '.join(counts)} "
        f"permutation{'' if counts == ['1'] else 's'} of the labels, with its 95 % interval in "
        f"brackets: {how}. Without leakage it contains 50 for about 19 of 20 methods.",
        spans=spans(places, given.datasets, 2),
    )
    return rows, table


def permuted_rows(summaries: pd.DataFrame) -> pd.DataFrame:
    """One row per cohort, protocol and variant: the mean over permutations of the labels.

    The interval is Student's over permutations. Fewer than :data:`ENOUGH` say too little about
    their spread; then their own intervals over sites are combined, as of independent repeats.
    """
    base = summaries["protocol"].map(lambda name: PERMUTED.fullmatch(name)[1])
    rows = []
    groups = summaries.assign(protocol=base).groupby(PLACE, sort=False)
    for _, part in groups:
        value, low, high = _mean_of_permutations(part)
        first = part.iloc[0]
        row = {key: first[key] for key in IDENTITY} | {"permutations": len(part)}
        row |= {"subjects": first["subjects"], "auc_mean": value, "auc_low": low, "auc_high": high}
        row["contains_chance"] = "yes" if low <= CHANCE <= high else "no"
        rows.append(row | {"pooled_auc": part["pooled_auc"].mean()})
    return in_paper_order(pd.DataFrame(rows))


def _mean_of_permutations(part: pd.DataFrame) -> Estimate:
    if len(part) >= ENOUGH:
        return interval_over_sites(part["auc_mean"])
    mean = part["auc_mean"].mean()
    below, above = (
        ((part["auc_mean"] - part[end]) ** 2).sum() ** 0.5 / len(part)
        for end in ("auc_sites_low", "auc_sites_high")
    )
    return Estimate(mean, mean - below, mean + above)


def verdict(rows: pd.DataFrame) -> str:
    """One sentence on the permuted labels, for the overview page."""
    outside = rows[rows["contains_chance"] == "no"]
    if outside.empty:
        which = "the interval contains" if len(rows) == 1 else f"all {len(rows)} intervals contain"
        return (
            f"With permuted labels {which} chance (0.50): there is no sign of labels leaking from "
            "test to training."
        )
    several = rows["cohort"].nunique() > 1
    names = ", ".join(
        f"{row['label']}{' on ' + row['cohort'] if several else ''} "
        f"[{row['auc_low']:.2f}, {row['auc_high']:.2f}]"
        for _, row in outside.iterrows()
    )
    return (
        f"With permuted labels {len(outside)} of {plural(len(rows), 'interval')} "
        f"{'misses' if len(outside) == 1 else 'miss'} chance (0.50): {names}. "
        "One in twenty does so without any leak; more than that calls for a closer look."
    )
