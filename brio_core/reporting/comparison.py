"""Each method against BRIO over sites, and how much of the spread between sites is sampling."""

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from brio_core.evaluation.scores import MEASURES, Estimate
from brio_core.evaluation.site_statistics import (
    holm,
    mean_over_sites,
    resampled_sites,
    signed_rank,
    smallest_p,
)
from brio_core.reporting.results import (
    cohort_title,
    ordered,
    protocol_title,
    read_table,
)
from brio_core.reporting.results_table import SCORES, blocks_of_rows
from brio_core.reporting.tables import Cell, Table, percent, plural, with_interval

REFERENCE = "brio"
SIGNIFICANT = 0.05
SITE_WORDS = ("cohort", "protocol", "variant", "method", "label", "group", "fold")


def read_sites(paths: Sequence[str | Path]) -> pd.DataFrame:
    """The long table: one row per variant and test fold, of several files."""
    numbers = ("n", "positives", *MEASURES)
    return pd.concat([read_table(path, SITE_WORDS, numbers) for path in paths], ignore_index=True)


def comparison_rows(
    summaries: pd.DataFrame, sites: pd.DataFrame, reference: str = REFERENCE
) -> pd.DataFrame:
    """One row per cohort, protocol, score and variant, with its test against the reference."""
    parts = []
    for key in ordered(zip(summaries["cohort"], summaries["protocol"])):
        own, folds = (
            table[(table["cohort"] == key[0]) & (table["protocol"] == key[1])]
            for table in (summaries, sites)
        )
        for score in SCORES:
            rows = _score_rows(own, folds[folds["auc"].notna()], score, key, reference)
            rows["p_holm"] = holm(rows["p"].to_numpy(float))
            parts.append(rows)
    return pd.concat(parts, ignore_index=True)


def _score_rows(
    summaries: pd.DataFrame, folds: pd.DataFrame, score: str, key: tuple, reference: str
) -> pd.DataFrame:
    values = folds.pivot(index="fold", columns="variant", values=score)
    chosen = resampled_sites(max(len(values), 1), key)
    rows = []
    for _, row in summaries.iterrows():
        differences = np.array([])
        if reference in values and row["variant"] != reference:
            differences = (values[row["variant"]] - values[reference]).to_numpy()
        rows.append(
            {
                **{name: row[name] for name in SITE_WORDS[:-1]},
                "score": score,
                "sites": len(values),
                "mean": row[f"{score}_mean"],
                "mean_low": row[f"{score}_sites_low"],
                "mean_high": row[f"{score}_sites_high"],
                "sd": row[f"{score}_sd"],
                **_only_auc(row, score),
                "reference": reference if len(differences) else "",
                **_test(differences, chosen),
            }
        )
    return pd.DataFrame(rows)


def _only_auc(row: pd.Series, score: str) -> dict:
    names = {
        f"{start}{end}": f"{column}{end}"
        for start, column in (("sd_sampling", "auc_sd_sampling"), ("pooled", "pooled_auc"))
        for end in ("", "_low", "_high")
    }
    return {name: row[column] if score == "auc" else math.nan for name, column in names.items()}


def _test(differences: np.ndarray, chosen: np.ndarray) -> dict:
    if not len(differences):
        difference, better, worse, (statistic, p) = Estimate(*[math.nan] * 3), "", "", (None, None)
    else:
        difference = mean_over_sites(differences, chosen)
        better, worse = int((differences > 0).sum()), int((differences < 0).sum())
        statistic, p = signed_rank(differences)
    return {
        "difference": difference.value,
        "difference_low": difference.low,
        "difference_high": difference.high,
        "sites_better": better,
        "sites_worse": worse,
        "signed_rank": statistic,
        "p": p,
    }


def comparison_table(
    rows: pd.DataFrame, experiment: dict, datasets: dict, planned: dict | None = None
) -> Table:
    """What :func:`comparison_rows` found about AUC, cohorts one below the other."""
    rows = rows[rows["score"] == "auc"]
    keys = ordered(zip(rows["cohort"], rows["protocol"]))
    notes = [
        _power(
            rows[(rows["cohort"] == key[0]) & (rows["protocol"] == key[1])],
            f"{cohort_title(datasets, key[0])}, {protocol_title(key[1])}",
        )
        for key in keys
    ]
    return Table(
        title=experiment.get("title", "Comparison"),
        caption=experiment.get("caption", ""),
        columns=(
            "Method", "AUC", "Pooled AUC", "Difference to BRIO", "Better, worse", "p", "p (Holm)",
            "SD", "SD by sampling",
        ),
        rows=tuple(blocks_of_rows(rows, _cells, 8, datasets, planned)),
        notes=(_explanation({protocol for _, protocol in keys}), _spread(rows), *notes),
        section="comparison",
    )  # fmt: skip


def _cells(own: pd.DataFrame) -> tuple[Cell, ...]:
    row = own.iloc[0]
    clear = bool(row["p_holm"] < SIGNIFICANT)
    tested = not math.isnan(row["difference"])
    difference = with_interval(
        row["difference"], row["difference_low"], row["difference_high"], clear
    )
    if tested and row["difference"] > 0:
        difference = Cell(f"+{difference.text}", difference.extra, clear)
    return (
        with_interval(row["mean"], row["mean_low"], row["mean_high"]),
        with_interval(row["pooled"], row["pooled_low"], row["pooled_high"]),
        difference if tested else Cell("–"),
        Cell(f"{row['sites_better']}, {row['sites_worse']}" if tested else "–"),
        Cell(p_text(row["p"])),
        Cell(p_text(row["p_holm"]), bold=clear),
        Cell(percent(row["sd"])),
        with_interval(row["sd_sampling"], row["sd_sampling_low"], row["sd_sampling_high"]),
    )


def p_text(p: float) -> str:
    """A p-value with three decimals."""
    if p is None or math.isnan(p):
        return "–"
    return "< 0.001" if p < 0.001 else f"{p:.3f}"


def _explanation(protocols: set[str]) -> str:
    text = (
        "AUC in %: mean over held-out sites with the 95 % interval of a bootstrap of sites; "
        "pooled: all test subjects together (DeLong). Difference to BRIO at the same sites, with "
        "the interval of the same bootstrap, and how many sites are better and worse. p: exact "
        "two-sided Wilcoxon signed-rank test over sites; Holm: corrected for all methods of the "
        f"cohort. Bold: corrected p below {SIGNIFICANT}."
    )
    if "id" in protocols:
        text += (
            " For sites seen in training, test folds take the place of sites; they share training "
            "subjects, so their p is too small."
        )
    return text


def _spread(rows: pd.DataFrame) -> str:
    known = rows[rows["sd_sampling"].notna()]
    inside = known["sd"].between(known["sd_sampling_low"], known["sd_sampling_high"])
    return (
        "SD: standard deviation of AUC over sites. SD by sampling: what sites of these sizes would "
        "show if the true AUC were the same at all of them, in brackets 95 % of simulations. A SD "
        f"inside is no evidence that sites differ; {int(inside.sum())} of {len(known)} are inside."
    )


def _power(part: pd.DataFrame, name: str) -> str:
    tests = int(part["p"].notna().sum())
    if not tests:
        return f"{name}: BRIO was not run or is alone, so nothing is tested."
    sites = int(part["sites"].max())
    smallest = smallest_p(sites)
    text = f"{name}: with {plural(sites, 'site')} the smallest possible p is {p_text(smallest)}"
    if smallest * tests >= SIGNIFICANT:
        return (
            f"{text}, and {plural(tests, 'comparison')} correct it to at least "
            f"{p_text(min(1.0, smallest * tests))}: no method can be told from BRIO here, even if "
            "it wins or loses at every site."
        )
    return f"{text}."
