"""The tables of results: methods as rows, cohorts as columns."""

import re

import pandas as pd

from brio_core.evaluation.intervals import mean_of_repeats
from brio_core.evaluation.scores import Estimate
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
SCORES = ("auc", "acc")
COUNTS = ("seeds", "folds", "left_out", "subjects", "sites", "parameters", "permutations")
VARIANT_WORDS = ("variant", "method", "label", "group")
NOTHING_PLANNED = {"settings": [], "variants": []}


def results_table(
    summaries: pd.DataFrame, experiment: dict, datasets: dict, planned: dict | None = None
) -> Table:
    """AUC and ACC as mean ± sd over folds.

    ``planned`` says what belongs into the table (:data:`NOTHING_PLANNED` shows its form); of that,
    what has no results is shown as not run.
    """
    planned = planned or NOTHING_PLANNED
    blocks = _blocks(summaries, planned["pairs"])
    index = {
        key: part.set_index("variant")
        for key, part in summaries.groupby(["cohort", "protocol"], sort=False)
    }
    highest = {
        (key, score): best(part[f"{score}_mean"].tolist())
        for key, part in index.items()
        for score in SCORES
    }

    def cells(variant: str) -> list[Cell]:
        row = []
        for key in blocks:
            if key not in index or variant not in index[key].index:
                row += [Cell(NOT_RUN)] * len(SCORES)
                continue
            one = index[key].loc[variant]
            for score in SCORES:
                mean, sd = one[f"{score}_mean"], one[f"{score}_sd"]
                row.append(with_sd(mean, sd, is_best(mean, highest[key, score])))
        return row

    return Table(
        title=experiment.get("title", "Results"),
        caption=experiment.get("caption", ""),
        columns=("Method", *[score.upper() for score in SCORES] * len(blocks)),
        rows=method_rows(summaries, cells, planned["variants"]),
        notes=(
            _explanation(summaries),
            *(counts(index.get(key), key, datasets) for key in blocks),
        ),
        spans=_spans(blocks, datasets, len(SCORES)),
    )


def with_planned(rows: pd.DataFrame, planned: dict | None) -> pd.DataFrame:
    """Rows for the CSV: those with results, and those that belong there but were not run."""
    planned = planned or NOTHING_PLANNED
    present = set(zip(rows["cohort"], rows["protocol"], rows["variant"]))
    missing = [
        {"status": NOT_RUN, "cohort": cohort, "protocol": protocol}
        | {name: one[name] for name in VARIANT_WORDS}
        for cohort, protocol in planned["pairs"]
        for one in planned["variants"]
        if (cohort, protocol, one["variant"]) not in present
    ]
    done = rows.assign(status="run")
    table = pd.concat([done, pd.DataFrame(missing)]) if missing else done
    whole = [name for name in COUNTS if name in table]
    return table[["status", *rows.columns]].astype(dict.fromkeys(whole, "Int64"))


def blocks_of_rows(
    rows: pd.DataFrame, cells, width: int, datasets: dict, planned: dict | None = None
) -> list[Row]:
    """Cohorts one below the other, each with its variants; planned ones without results say so.

    ``cells`` makes the cells of a variant from its part of ``rows``; there are ``width`` of them.
    """
    planned = planned or NOTHING_PLANNED
    lines = []
    for key in _blocks(rows, planned["pairs"]):
        part = rows[(rows["cohort"] == key[0]) & (rows["protocol"] == key[1])]
        name = f"{cohort_title(datasets, key[0])}, {protocol_title(key[1])}"
        if part.empty:
            lines.append(Row((Cell(f"{name}: {NOT_RUN}"),), heading=True))
            continue
        lines.append(Row((Cell(name),), heading=True))
        columns = list(VARIANT_WORDS)
        everything = pd.concat([part[columns], pd.DataFrame(planned["variants"], columns=columns)])
        for _, method in in_paper_order(everything.drop_duplicates("variant")).iterrows():
            own = part[part["variant"] == method["variant"]]
            values = cells(own) if len(own) else [Cell(NOT_RUN)] * width
            lines.append(Row((Cell(method["label"]), *values)))
    return lines


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
        rows=method_rows(rows, cells),
        notes=(
            f"AUC in %, mean over folds and over {' or '.join(counts)} "
            f"permutation{'' if counts == ['1'] else 's'} of the labels, with its 95 % interval in "
            f"brackets: {how}. Without leakage it contains 50 for about 19 of 20 methods.",
        ),
        spans=_spans(blocks, datasets, 2),
        section="permuted",
    )


def _blocks(rows: pd.DataFrame, planned=()) -> list[tuple[str, str]]:
    """Groups of columns: cohorts in order of appearance, ``loso`` before ``id``."""
    present = ordered([*map(tuple, planned), *zip(rows["cohort"], rows["protocol"])])
    cohorts = ordered(cohort for cohort, _ in present)
    protocols = ordered((protocol for _, protocol in present), tuple(PROTOCOLS))
    pairs = [(cohort, protocol) for cohort in cohorts for protocol in protocols]
    return [pair for pair in pairs if pair in present]


def method_rows(rows: pd.DataFrame, cells, planned=()) -> tuple[Row, ...]:
    """One line per variant, present or planned, under the headings of the paper's groups."""
    columns = list(VARIANT_WORDS)
    everything = pd.concat([rows[columns], pd.DataFrame(planned, columns=columns)])
    methods = in_paper_order(everything.drop_duplicates("variant"))
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
        "seeds first. Bold: the highest of a column as printed, ties included."
    )


def counts(part: pd.DataFrame | None, key: tuple[str, str], datasets: dict) -> str:
    """One sentence on who was tested, or that nobody was."""
    name = f"{cohort_title(datasets, key[0])}, {protocol_title(key[1])}"
    if part is None:
        return f"{name}: {NOT_RUN}."
    first = part.iloc[0]
    left_out = int(first["left_out"])
    aside = f", {plural(left_out, 'fold')} with one class left out" if left_out else ""
    return (
        f"{name}: "
        f"{plural(int(first['subjects']), 'subject')}, {plural(int(first['sites']), 'site')}, "
        f"{plural(int(first['folds']), 'test fold')}{aside}, {_seeds(part)}."
    )


def _seeds(part: pd.DataFrame) -> str:
    """How many seeds most rows have, and which rows have more or fewer."""
    usual = part["seeds"].mode().max()
    text = plural(int(usual), "seed")
    others = part.loc[part["seeds"] != usual].groupby("seeds", sort=True)["label"]
    aside = [f"{int(number)} of {', '.join(labels)}" for number, labels in reversed(list(others))]
    return text + (f" ({'; '.join(aside)})" if aside else "")


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
