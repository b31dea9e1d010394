"""The tables of results: methods as rows, cohorts as columns."""

import re

import pandas as pd

from brio_core.evaluation import Estimate
from brio_core.intervals import mean_of_repeats
from brio_core.reporting.results import (
    PROTOCOLS,
    cohort_title,
    in_paper_order,
    ordered,
    protocol_title,
)
from brio_core.reporting.tables import (
    NOT_RUN,
    Cell,
    Row,
    Table,
    best,
    is_best,
    plural,
    with_interval,
    with_sd,
)

PERMUTED = re.compile(r"(.+)-permuted-(\d+)")
CHANCE = 0.5
ENOUGH = 5


def results_table(summaries: pd.DataFrame, experiment: dict, datasets: dict) -> Table:
    """AUC and ACC as mean ± sd over folds, and the pooled AUC with its interval."""
    blocks = _blocks(summaries)
    index = {
        key: part.set_index("variant")
        for key, part in summaries.groupby(["cohort", "protocol"], sort=False)
    }
    highest = {
        (key, column): best(part[column].tolist())
        for key, part in index.items()
        for column in ("auc_mean", "acc_mean", "pooled_auc")
    }

    def cells(variant: str) -> list[Cell]:
        row = []
        for key in blocks:
            if variant not in index[key].index:
                row += [Cell(NOT_RUN)] * 3
                continue
            one = index[key].loc[variant]
            bold = {
                c: is_best(one[c], highest[key, c]) for c in ("auc_mean", "acc_mean", "pooled_auc")
            }
            row += [
                with_sd(one["auc_mean"], one["auc_sd"], bold["auc_mean"]),
                with_sd(one["acc_mean"], one["acc_sd"], bold["acc_mean"]),
                with_interval(
                    one["pooled_auc"], one["pooled_auc_low"], one["pooled_auc_high"],
                    bold["pooled_auc"],
                ),
            ]  # fmt: skip
        return row

    return Table(
        title=experiment.get("title", "Results"),
        caption=experiment.get("caption", ""),
        columns=("Method", *["AUC", "ACC", "Pooled AUC"] * len(blocks)),
        rows=_rows(summaries, cells),
        notes=(_explanation(summaries), *(_counts(index[key], key, datasets) for key in blocks)),
        spans=_spans(blocks, datasets, 3),
    )


def permuted_rows(summaries: pd.DataFrame) -> pd.DataFrame:
    """One row per cohort, protocol and variant: the mean over permutations of the labels.

    The interval is Student's over permutations. Fewer than :data:`ENOUGH` say too little about
    their spread; then their own intervals over subjects are combined, as of independent repeats.
    """
    base = summaries["protocol"].map(lambda name: PERMUTED.fullmatch(name)[1])
    rows = []
    for (cohort, protocol, variant), part in summaries.assign(protocol=base).groupby(
        ["cohort", "protocol", "variant"], sort=False
    ):
        value, low, high = _mean_of_permutations(part)
        first = part.iloc[0]
        rows.append(
            {
                "cohort": cohort,
                "protocol": protocol,
                "variant": variant,
                **{key: first[key] for key in ("method", "label", "group")},
                "permutations": len(part),
                "subjects": first["subjects"],
                "auc_mean": value,
                "auc_low": low,
                "auc_high": high,
                "contains_chance": "yes" if low <= CHANCE <= high else "no",
                "pooled_auc": part["pooled_auc"].mean(),
            }
        )
    return in_paper_order(pd.DataFrame(rows))


def _mean_of_permutations(part: pd.DataFrame) -> Estimate:
    if len(part) >= ENOUGH:
        return mean_of_repeats(part["auc_mean"])
    mean = part["auc_mean"].mean()
    below, above = (
        ((part["auc_mean"] - part[end]) ** 2).sum() ** 0.5 / len(part)
        for end in ("auc_low", "auc_high")
    )
    return Estimate(mean, mean - below, mean + above)


def permuted_table(rows: pd.DataFrame, experiment: dict, datasets: dict) -> Table:
    """What is left when labels carry no information; :func:`permuted_rows` gives ``rows``."""
    blocks = _blocks(rows)
    index = rows.set_index(["cohort", "protocol", "variant"])

    def cells(variant: str) -> list[Cell]:
        row = []
        for key in blocks:
            if (*key, variant) not in index.index:
                row += [Cell(NOT_RUN)] * 2
                continue
            one = index.loc[(*key, variant)]
            row.append(with_interval(one["auc_mean"], one["auc_low"], one["auc_high"]))
            row.append(Cell(one["contains_chance"], bold=one["contains_chance"] == "no"))
        return row

    counts = ordered(map(str, sorted(rows["permutations"])))
    how = (
        "the interval is Student's over permutations"
        if rows["permutations"].min() >= ENOUGH
        else "the interval comes from a bootstrap of subjects"
    )
    return Table(
        title=experiment.get("title", "Permuted labels"),
        caption=experiment.get("caption", ""),
        columns=("Method", *["AUC", "50 inside?"] * len(blocks)),
        rows=_rows(rows, cells),
        notes=(
            f"AUC in %, mean over folds and over {' or '.join(counts)} "
            f"permutation{'' if counts == ['1'] else 's'} of the labels, with its 95 % interval in "
            f"brackets: {how}. Without leakage it contains 50 for about 19 of 20 methods.",
        ),
        spans=_spans(blocks, datasets, 2),
        section="permuted",
    )


def _blocks(rows: pd.DataFrame) -> list[tuple[str, str]]:
    """Groups of columns: cohorts in order of appearance, ``loso`` before ``id``."""
    cohorts = ordered(rows["cohort"])
    protocols = ordered(rows["protocol"], tuple(PROTOCOLS))
    present = set(zip(rows["cohort"], rows["protocol"]))
    pairs = [(cohort, protocol) for cohort in cohorts for protocol in protocols]
    return [pair for pair in pairs if pair in present]


def _rows(rows: pd.DataFrame, cells) -> tuple[Row, ...]:
    methods = in_paper_order(rows.drop_duplicates("variant"))
    lines, group = [], None
    for _, method in methods.iterrows():
        if method["group"] != group:
            group = method["group"]
            lines.append(Row((Cell(group),), heading=True))
        lines.append(Row((Cell(method["label"]), *cells(method["variant"]))))
    return tuple(lines)


def _spans(blocks: list, datasets: dict, width: int) -> tuple[tuple[str, int], ...]:
    several = len({protocol for _, protocol in blocks}) > 1
    names = [
        cohort_title(datasets, cohort) + (f", {protocol_title(protocol)}" if several else "")
        for cohort, protocol in blocks
    ]
    return (("", 1), *((name, width) for name in names))


def _explanation(summaries: pd.DataFrame) -> str:
    units = {"loso": "held-out sites", "id": "test folds"}
    unit = " or ".join(units.get(p, "folds") for p in ordered(summaries["protocol"], tuple(units)))
    return (
        f"All numbers in %. AUC and ACC: mean ± standard deviation over {unit}, each averaged over "
        "seeds first. Pooled AUC: all test subjects together, in brackets its 95 % confidence "
        "interval (DeLong). Bold: the highest of a column as printed, ties included."
    )


def _counts(part: pd.DataFrame, key: tuple[str, str], datasets: dict) -> str:
    seeds = ordered(str(int(n)) for n in sorted(part["seeds"]))
    seeds_text = plural(int(seeds[0]), "seed") if len(seeds) == 1 else f"{' or '.join(seeds)} seeds"
    first = part.iloc[0]
    left_out = int(first["left_out"])
    aside = f", {plural(left_out, 'fold')} with one class left out" if left_out else ""
    return (
        f"{cohort_title(datasets, key[0])}, {protocol_title(key[1])}: "
        f"{plural(int(first['subjects']), 'subject')}, {plural(int(first['sites']), 'site')}, "
        f"{plural(int(first['folds']), 'test fold')}{aside}, {seeds_text}."
    )


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
