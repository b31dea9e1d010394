"""Each method against one reference, and how much of the spread between sites is sampling."""

import math

import pandas as pd

from brio_core.reporting import results
from brio_core.reporting.blocks import by_cohort
from brio_core.reporting.given import Given
from brio_core.reporting.paired import HEADS, compared, difference_cells
from brio_core.reporting.table import NONE, Cell, Table, percent, with_interval

OUTPUT = {
    "files": ["summaries", "sites"],
    "page": "comparison",
    "title": "Paired tests over sites",
    "caption": "Each method against one reference at the same unseen sites, and how much sites of "
    "these sizes differ by sampling alone.",
    "options": ["reference", "margin"],
}

# Columns of the summaries that a row repeats, by its own names.
COPIED = {
    "mean": "{}_mean", "mean_low": "{}_sites_low", "mean_high": "{}_sites_high", "sd": "{}_sd",
    "new_low": "auc_new_low", "new_high": "auc_new_high",
    "sd_sampling": "auc_sd_sampling", "sd_sampling_low": "auc_sd_sampling_low",
    "sd_sampling_high": "auc_sd_sampling_high", "pooled": "pooled_auc",
    "pooled_low": "pooled_auc_low", "pooled_high": "pooled_auc_high",
}  # fmt: skip
EXPLANATION = (
    "AUC in %: mean over held-out sites with Student's 95 % interval, in which sites, subjects and "
    "seeds vary. New site: where the AUC of a site that is not among these is to be expected "
    "(95 %, sampling error taken out). Pooled: all test subjects together (DeLong); it mixes the "
    "scores of several models. Better, worse: number of sites above and below the reference."
)
SEEN = (
    " For sites seen in training, test folds take the place of sites; they share training "
    "subjects, so their p is too small."
)
COLUMNS = (
    "Method", "AUC", "New site", "Pooled AUC", "Difference", *HEADS, "Better, worse", "SD",
    "SD by sampling",
)  # fmt: skip


def make(given: Given) -> tuple[pd.DataFrame, Table]:
    """One row per cohort, protocol, score and variant; the table shows AUC.

    All are compared with the ``reference``, a variant.
    """
    summaries = results.read_summaries(given.files["summaries"])
    sites = results.read_sites(given.files["sites"])
    found = [
        compared(_scored(summaries, score), sites, given, score=score) for score in results.SCORES
    ]
    rows, (_, notes) = pd.concat([one for one, _ in found], ignore_index=True), found[0]
    shown = rows[rows["score"] == "auc"]
    has_seen = "id" in set(shown["protocol"])
    table = given.table(
        COLUMNS,
        by_cohort(shown, given, COLUMNS, _cells),
        EXPLANATION + (SEEN if has_seen else ""),
        *notes,
        _spread(shown),
    )
    return rows, table


def _scored(summaries: pd.DataFrame, score: str) -> pd.DataFrame:
    """One row per variant, with what the summaries say of a score."""
    rows = summaries[list(results.IDENTITY)].assign(score=score)
    for name, column in COPIED.items():
        # Only AUC has these of all subjects and of sampling.
        known = score == "auc" or column.startswith("{}")
        rows[name] = summaries[column.format(score)] if known else math.nan
    return rows


def _cells(own: pd.DataFrame) -> tuple[Cell, ...]:
    row = own.iloc[0]

    def interval(name: str) -> Cell:
        return with_interval(row[name], row[f"{name}_low"], row[f"{name}_high"])

    tested = not pd.isna(row["difference"])
    return (
        interval("mean"),
        Cell(f"{percent(row['new_low'])} to {percent(row['new_high'])}"),
        interval("pooled"),
        *difference_cells(row),
        Cell(f"{row['sites_better']}, {row['sites_worse']}" if tested else NONE),
        Cell(percent(row["sd"])),
        interval("sd_sampling"),
    )


def _spread(rows: pd.DataFrame) -> str:
    known = rows[rows["sd_sampling"].notna()]
    inside = known["sd"].between(known["sd_sampling_low"], known["sd_sampling_high"])
    return (
        "SD: standard deviation of AUC over sites. SD by sampling: what sites of these sizes would "
        "show if the true AUC were the same at all of them, in brackets 95 % of simulations. A SD "
        f"inside is no evidence that sites differ; {int(inside.sum())} of {len(known)} are inside."
    )
