"""Each method against BRIO over sites, and how much of the spread between sites is sampling."""

import math

import numpy as np
import pandas as pd

from brio_core.evaluation.scores import Estimate
from brio_core.evaluation.site_statistics import (
    holm,
    mean_over_sites,
    resampled_sites,
    signed_rank,
    smallest_p,
)
from brio_core.reporting.blocks import by_cohort, part_of
from brio_core.reporting.given import Given
from brio_core.reporting.results import (
    IDENTITY,
    REFERENCE,
    SCORES,
    ordered,
    place_title,
    read_sites,
    read_summaries,
)
from brio_core.reporting.table import NONE, Cell, Table, p_text, percent, plural, with_interval

OUTPUT = {
    "files": ["summaries", "sites"],
    "page": "comparison",
    "title": "Noise or difference",
    "caption": "Each method against BRIO at the same unseen sites, and how much sites of these "
    "sizes differ by sampling alone.",
}

SIGNIFICANT = 0.05
COLUMNS = (
    "Method", "AUC", "Pooled AUC", "Difference to BRIO", "Better, worse", "p", "p (Holm)", "SD",
    "SD by sampling",
)  # fmt: skip


def make(given: Given) -> tuple[pd.DataFrame, Table]:
    """One row per cohort, protocol, score and variant; the table shows AUC."""
    summaries, sites = read_summaries(given.files["summaries"]), read_sites(given.files["sites"])
    parts = []
    for place in ordered(zip(summaries["cohort"], summaries["protocol"])):
        own, folds = part_of(summaries, *place), part_of(sites, *place)
        for score in SCORES:
            rows = _score_rows(own, folds[folds["auc"].notna()], score, place)
            parts.append(rows.assign(p_holm=holm(rows["p"].to_numpy(float))))
    rows = pd.concat(parts, ignore_index=True)
    shown = rows[rows["score"] == "auc"]
    places = ordered(zip(shown["cohort"], shown["protocol"]))
    table = given.table(
        COLUMNS,
        by_cohort(shown, given, COLUMNS, _cells),
        _explanation({protocol for _, protocol in places}),
        _spread(shown),
        *(_power(part_of(shown, *one), place_title(given.datasets, *one)) for one in places),
    )
    return rows, table


def _score_rows(
    summaries: pd.DataFrame, folds: pd.DataFrame, score: str, place: tuple
) -> pd.DataFrame:
    values = folds.pivot(index="fold", columns="variant", values=score)
    chosen = resampled_sites(max(len(values), 1), place)
    rows = []
    for _, row in summaries.iterrows():
        differences = np.array([])
        if REFERENCE in values and row["variant"] != REFERENCE:
            differences = (values[row["variant"]] - values[REFERENCE]).to_numpy()
        rows.append(
            {
                **{name: row[name] for name in IDENTITY},
                "score": score,
                "sites": len(values),
                "mean": row[f"{score}_mean"],
                "mean_low": row[f"{score}_sites_low"],
                "mean_high": row[f"{score}_sites_high"],
                "sd": row[f"{score}_sd"],
                **_only_auc(row, score),
                "reference": REFERENCE if len(differences) else "",
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
        difference if tested else Cell(NONE),
        Cell(f"{row['sites_better']}, {row['sites_worse']}" if tested else NONE),
        Cell(p_text(row["p"])),
        Cell(p_text(row["p_holm"]), bold=clear),
        Cell(percent(row["sd"])),
        with_interval(row["sd_sampling"], row["sd_sampling_low"], row["sd_sampling_high"]),
    )


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
