"""The paper's numbers beside ours."""

import math

import pandas as pd

from brio_core.evaluation.intervals import deviation_over_sites
from brio_core.evaluation.scores import Estimate
from brio_core.reporting.catalogue import REFERENCE, Given, output
from brio_core.reporting.cohorts import block_lengths, read_block_lengths, read_cohorts
from brio_core.reporting.results import (
    PLACE,
    REIMPLEMENTED,
    SCORES,
    cohort_title,
    ordered,
    read_variants,
)
from brio_core.reporting.table import NONE, NOT_RUN, Cell, Row, Table, heading, number, plural
from brio_core.reporting.tables.paper import paper_numbers

TITLES = {
    "loso": "Results on unseen sites",
    "id": "Results on sites seen in training",
    "block_length": "Sensitivity to block length",
    "efficiency": "Training time and memory",
    "datasets": "Statistics of the datasets",
}
SCALES = {"brio-block0.5x": 0.5, REFERENCE: 1.0, "brio-block2x": 2.0}
COSTS = {"seconds_per_epoch": "seconds_per_epoch", "gpu_memory_gb": "peak_memory_gb"}
NAMES = {
    "auc_mean": "AUC, mean", "auc_sd": "AUC, SD", "acc_mean": "ACC, mean", "acc_sd": "ACC, SD",
    "seconds_per_epoch": "seconds per epoch", "gpu_memory_gb": "memory (GB)",
    "block_length_frames": "block length (frames)", "block_length_seconds": "block length (s)",
}  # fmt: skip
NOTHING = Estimate(math.nan, math.nan, math.nan)
LONG = 40


@output(
    files=["summaries", "block_lengths", "inclusion", "participants"],
    page="paper",
    title="The paper's numbers and ours",
    caption="Difference, interval, and whether ours contains the paper's number.",
    reads=["config/paper/*.csv"],
)
def paper_vs_ours_table(given: Given) -> tuple[pd.DataFrame, Table, Table]:
    """Each number of the paper beside ours: difference, interval, and whether ours contains it.

    The page and LaTeX leave out what was not run; Markdown lists every number.
    """
    rows = compare(given)
    return rows, compared_table(rows, given, False), compared_table(rows, given, True)


def compare(given: Given) -> pd.DataFrame:
    """All numbers of the paper, with ours where there is one; scores are in %, as in the paper."""
    index = read_variants(given.files["summaries"])
    lengths = read_block_lengths(given.files["block_lengths"])
    cohorts = read_cohorts(given.files["inclusion"], given.files["participants"])
    people = {cohort.name: cohort.statistics for cohort in cohorts}

    def ours(number: pd.Series) -> Estimate:
        key = tuple(number[name] for name in PLACE)
        if number["table"] == "datasets":
            return _cohort_number(people.get(number["cohort"]), number["quantity"])
        if key not in index.index:
            return NOTHING
        if number["quantity"].startswith("block_length"):
            return _block_length(lengths.get(key[:2]), number["quantity"], key[2])
        if number["quantity"] in COSTS:
            return NOTHING._replace(value=index.loc[key, COSTS[number["quantity"]]])
        return _score(index.loc[key], number["quantity"])

    table = paper_numbers().copy()
    found = pd.DataFrame([ours(number) for _, number in table.iterrows()], dtype=float)
    table["ours"], table["difference"] = found["value"], found["value"] - table["paper"]
    table["low"], table["high"] = found["low"], found["high"]
    # Two runs on the same sites differ by their seeds, so seeds are the yardstick.
    own = index.reindex(pd.MultiIndex.from_frame(table[PLACE])).reset_index(drop=True)
    table["sd_seeds"] = math.nan
    for score in SCORES:
        means = table["quantity"] == f"{score}_mean"
        table.loc[means, "sd_seeds"] = 100 * own.loc[means, f"{score}_sd_seeds"]
    table["seed_deviations"] = table["difference"] / table["sd_seeds"]
    inside = table["paper"].between(table["low"], table["high"])
    table["contains"] = inside.map({True: "yes", False: "no"}).where(found.notna().all(axis=1), "")
    table["status"] = found["value"].isna().map({True: NOT_RUN, False: "run"})
    # Ours of these is another method, and can neither agree nor disagree.
    others = own["label"].fillna("").str.endswith(REIMPLEMENTED)
    table.loc[others, "contains"], table.loc[others, "seed_deviations"] = "", math.nan
    for end in ("low", "high"):
        sampling = 100 * own[f"auc_sd_sampling_{end}"]
        table[f"sampling_{end}"] = sampling.where(table["quantity"] == "auc_sd")
    return table


def _score(row: pd.Series, quantity: str) -> Estimate:
    score, what = quantity.split("_")
    found = [row[name] for name in (quantity, f"{score}_sites_low", f"{score}_sites_high")]
    if what == "sd":
        found = deviation_over_sites(row[quantity], int(row["folds"]))
    return Estimate(*(100 * float(number) for number in found))


def _block_length(folds: pd.DataFrame | None, quantity: str, variant: str) -> Estimate:
    """Median over folds; the interval is their range."""
    if folds is None:
        return NOTHING
    frames, seconds = block_lengths(folds, SCALES[variant])
    values = frames if quantity == "block_length_frames" else seconds
    return Estimate(values.median(), values.min(), values.max())


def _cohort_number(cohort: dict | None, quantity: str) -> Estimate:
    """Counts are exact: their interval is the count. The paper rounds to two decimals."""
    if cohort is None:
        return NOTHING
    value = round(float(cohort[quantity]), 2)
    return Estimate(value, value, value)


def compared_table(rows: pd.DataFrame, given: Given, every_number: bool) -> Table:
    """The comparison by table and cohort; ``every_number`` also lists what was not run."""
    lines = []
    for key in ordered(zip(rows["table"], rows["cohort"])):
        part = rows[(rows["table"] == key[0]) & (rows["cohort"] == key[1])]
        name = f"{TITLES[key[0]]}, {cohort_title(given.datasets, key[1])}: {_counts(part)}"
        lines.append(heading(name))
        shown = part if every_number else part[part["status"] == "run"]
        lines += [Row(_cells(row)) for _, row in shown.iterrows()]
    return given.table(
        ("Method", "Number", "Paper", "Ours", "Difference", "In seed SDs", "Paper inside?"),
        lines,
        "AUC and ACC in %; ours with the 95 % interval over sites (folds where "
        "sites were seen in training). Block length: median and range over folds. Counts are "
        "exact. Bold: ours does not contain the paper's number. Time and memory have no "
        "interval, because the paper names no hardware; ours are of all folds at once, the paper's "
        "of one. Methods that are reimplemented here can neither agree nor disagree.",
        "The paper presumably tests the same sites. Two runs then differ by less than the interval "
        "over sites, so a number inside it is no proof of agreement. In seed SDs: the difference "
        "over the standard deviation of our single trainings.",
        *_too_small(rows),
        more_caption=f"In the paper: {_counts(rows)}.",
        left=(0, 1),
        folded=len(lines) > LONG or not (rows["status"] == "run").any(),
    )


def _too_small(rows: pd.DataFrame) -> list[str]:
    """Deviations that cannot be those of single sites: sampling alone would give more."""
    # The paper prints BRIO's in two tables.
    printed = ["cohort", "protocol", "variant", "paper"]
    spreads = rows[rows["sampling_low"].notna()].drop_duplicates(printed)
    below = int((spreads["paper"] < spreads["sampling_low"]).sum())
    if not below:
        return []
    return [
        f"{below} of {len(spreads)} standard deviations of AUC in the paper are smaller than "
        "sampling alone would give at sites (or folds) of our sizes, were the true AUC the same at "
        "all of them (95 % of simulations)."
    ]


def _counts(rows: pd.DataFrame) -> str:
    done = rows[rows["status"] == "run"]
    text = plural(len(rows), "number")
    if done.empty:
        return f"{text}, {NOT_RUN}"
    yes, no = ((done["contains"] == word).sum() for word in ("yes", "no"))
    parts = [f"{yes} inside our interval", f"{no} outside"]
    parts += [f"{n} not compared" for n in [len(done) - yes - no] if n]
    parts += [f"{n} {NOT_RUN}" for n in [len(rows) - len(done)] if n]
    return f"{text}, {', '.join(parts)}"


def _cells(row: pd.Series) -> tuple[Cell, ...]:
    what = NAMES.get(row["quantity"], row["quantity"].replace("_", " "))
    head = (Cell(row["method"] or NONE), Cell(what), Cell(f"{row['paper']:g}"))
    if row["status"] == NOT_RUN:
        return *head, *[Cell(NOT_RUN)] * 4
    form = ".2f" if row["unit"] == "%" or row["quantity"].startswith("time_points") else ".4g"
    exact = math.isnan(row["low"]) or row["low"] == row["high"]
    span = "" if exact else f"[{row['low']:{form}}, {row['high']:{form}}]"
    outside = row["contains"] == "no"
    return (
        *head,
        Cell(f"{row['ours']:{form}}", span),
        Cell(f"{row['difference']:+{form}}"),
        Cell(number(row["seed_deviations"], "+.1f")),
        Cell(row["contains"] or NONE, bold=outside),
    )
