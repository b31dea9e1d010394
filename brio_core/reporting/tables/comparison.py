"""Are methods different, and what is there beyond AUC?"""

import math

import numpy as np
import pandas as pd
from scipy.special import expit, logit

from brio_core.evaluation.scores import score_folds, usable
from brio_core.evaluation.site_statistics import ranks_over_sites
from brio_core.reporting import results
from brio_core.reporting.blocks import by_cohort
from brio_core.reporting.catalogue import Given, output
from brio_core.reporting.paired import HEADS, compared, difference_cells
from brio_core.reporting.summary import by_variant
from brio_core.reporting.table import (
    NONE,
    Cell,
    Table,
    interval_cell,
    percent,
    with_sd,
    with_spread,
)

# Columns of the summaries that a row repeats, by its own names.
COPIED = {
    "seeds": "seeds",
    "mean": "{}_mean", "mean_low": "{}_sites_low", "mean_high": "{}_sites_high", "sd": "{}_sd",
    "new_low": "auc_new_low", "new_high": "auc_new_high",
    "sd_sampling": "auc_sd_sampling", "sd_sampling_low": "auc_sd_sampling_low",
    "sd_sampling_high": "auc_sd_sampling_high", "pooled": "pooled_auc",
    "pooled_low": "pooled_auc_low", "pooled_high": "pooled_auc_high",
}  # fmt: skip
RANKS = ["rank", "rank_low", "rank_high"]
EXPLANATION = (
    "AUC in %: mean over held-out sites with Student's 95 % interval, in which sites, subjects and "
    "seeds vary. New site: where the AUC of a site that is not among these is to be expected "
    "(95 %, sampling error taken out). Pooled: all test subjects together (DeLong); it mixes the "
    "scores of several models. Rank: by mean AUC, with the 95 % interval of ranks when sites are "
    "drawn again. Better, worse: number of sites above and below the reference."
)
SEEN = (
    " For sites seen in training, test folds take the place of sites; they share training "
    "subjects, so their p is too small."
)
COMPARISON_COLUMNS = (
    "Method", "AUC", "Rank", "New site", "Pooled AUC", "Difference", *HEADS, "Better, worse", "SD",
    "SD by sampling",
)  # fmt: skip


@output(
    files=["summaries", "sites"],
    page="comparison",
    title="Paired tests over sites",
    caption="Each method against one reference at the same unseen sites, and how much sites of "
    "these sizes differ by sampling alone.",
    options=["reference", "margin"],
)
def comparison_table(given: Given) -> tuple[pd.DataFrame, Table]:
    """Each method against one reference, and how much of the spread between sites is sampling.

    One row per cohort, protocol, score and variant; the table shows AUC.

    All are compared with the ``reference``, a variant.
    """
    summaries = results.read_summaries(given.files["summaries"])
    sites = results.read_sites(given.files["sites"])
    found = [
        compared(_scored(summaries, score), sites, given, score=score) for score in results.SCORES
    ]
    rows, (_, notes) = pd.concat([one for one, _ in found], ignore_index=True), found[0]
    rows = rows.join(_ranks(rows, sites).astype("Int64"))
    shown = rows[rows["score"] == "auc"]
    has_seen = "id" in set(shown["protocol"])
    table = given.table(
        COMPARISON_COLUMNS,
        by_cohort(shown, given, COMPARISON_COLUMNS, _comparison_cells),
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


def _ranks(rows: pd.DataFrame, sites: pd.DataFrame) -> pd.DataFrame:
    """Ranks of the rows of a cohort, protocol and score, over the sites that all of them have."""
    sites = sites[sites["auc"].notna()]
    parts = []
    for place, own in rows.groupby(["cohort", "protocol", "score"], sort=False):
        here = sites[(sites["cohort"] == place[0]) & (sites["protocol"] == place[1])]
        scores = here.pivot(index="fold", columns="variant", values=place[2])[own["variant"]]
        found = ranks_over_sites(scores.dropna().to_numpy(), place)
        parts.append(pd.DataFrame(found, own.index).set_axis(RANKS, axis=1))
    return pd.concat(parts)


def _comparison_cells(own: pd.DataFrame) -> tuple[Cell, ...]:
    row = own.iloc[0]
    tested = not pd.isna(row["difference"])
    return (
        interval_cell(row, "mean"),
        Cell(f"{row['rank']}", f"[{row['rank_low']}, {row['rank_high']}]"),
        Cell(f"{percent(row['new_low'])} to {percent(row['new_high'])}"),
        interval_cell(row, "pooled"),
        *difference_cells(row),
        Cell(f"{row['sites_better']}, {row['sites_worse']}" if tested else NONE),
        Cell(percent(row["sd"])),
        interval_cell(row, "sd_sampling"),
    )


def _spread(rows: pd.DataFrame) -> str:
    known = rows[rows["sd_sampling"].notna()]
    inside = known["sd"].between(known["sd_sampling_low"], known["sd_sampling_high"])
    return (
        "SD: standard deviation of AUC over sites. SD by sampling: what sites of these sizes would "
        "show if the true AUC were the same at all of them, in brackets 95 % of simulations. A SD "
        f"inside is no evidence that sites differ; {int(inside.sum())} of {len(known)} are inside."
    )


SHARES = {
    "sensitivity": "Sensitivity",
    "specificity": "Specificity",
    "balanced_accuracy": "Balanced accuracy",
}
CALIBRATION = ("Brier score", "Calibration in the large", "Calibration slope")
SPANS = (
    ("", 1), ("At probability 0.5", 3), ("At the threshold", 3), ("As predicted", 3),
    ("Recalibrated", 3),
)  # fmt: skip
SITE_COLUMNS = ("Method", *(*SHARES.values(),) * 2, *CALIBRATION * 2)


@output(
    files=["sites"],
    page="comparison",
    title="Beyond AUC",
    caption="Sensitivity, specificity and calibration on unseen sites.",
)
def site_scores_table(given: Given) -> tuple[pd.DataFrame, Table]:
    """Sensitivity, specificity and calibration: every site in the CSV, means over sites in print.

    The long table, and mean ± standard deviation over sites.
    """
    sites = results.read_sites(given.files["sites"])
    table = given.table(
        SITE_COLUMNS,
        by_cohort(sites, given, SITE_COLUMNS, _site_cells),
        "Mean ± standard deviation over test folds (held-out sites); shares in %. Brier score: "
        "0.25 is always saying 0.5. Calibration in the large: mean probability minus share of "
        "class 1, best 0. Slope: median over sites, 1 is calibrated and less is overconfident. In "
        "brackets: the number of sites with a slope; where the classes do not overlap there is "
        "none.",
        "Threshold: the logit with the best balanced accuracy of the fold's validation subjects. "
        "Recalibration: a logistic regression of their labels on their logits. Where all source "
        "sites train, both use fits without the subject's site. –: external predictions have no "
        "validation subjects.",
        spans=SPANS,
    )
    return sites, table


def _site_cells(own: pd.DataFrame) -> list[Cell]:
    mean, sd = own.mean(numeric_only=True), own.std(numeric_only=True)
    columns = [f"{name}{end}" for end in ("", "_threshold") for name in SHARES]
    cells = [with_sd(mean[name], sd[name]) for name in columns]
    for end in ("", "_recalibrated"):
        for name, form in ((f"brier{end}", ".3f"), (f"calibration_in_the_large{end}", "+.3f")):
            cells.append(with_spread(mean[name], sd[name], form))
        slopes = own[f"calibration_slope{end}"].dropna()
        known = Cell(f"{slopes.median():.2f}", f"[{len(slopes)}]")
        cells.append(known if len(slopes) else Cell(NONE))
    return cells


LIMITS = np.finfo(float)
ENSEMBLES_COLUMNS = (
    "Method", "Seeds", "AUC, one seed", "AUC, all seeds", "ACC, one seed", "ACC, all seeds",
)  # fmt: skip


@output(
    files=["runs"],
    page="comparison",
    title="Several seeds together",
    caption="What another seed would change, and what all seeds say together.",
)
def ensembles_table(given: Given) -> tuple[pd.DataFrame, Table]:
    """What the seeds of a method say together: the mean of their probabilities.

    One row per cohort, protocol and variant: single seeds, and all of them together.
    """
    places = results.read_places(given.files["runs"])
    rows = []
    for one in (variant for runs in places.values() for variant in by_variant(runs)):
        single = one.single()
        row = {**{key: one.meta[key] for key in results.IDENTITY}, "seeds": len(one.logits)}
        # Sure probabilities stay below one and above zero, so that their logits are finite.
        mean = np.clip(expit(one.logits).mean(0), LIMITS.tiny, 1 - LIMITS.epsneg)
        together = usable(score_folds(one.fold, one.label, logit(mean)))
        several = len(one.logits) > 1
        for score in results.SCORES:
            row[f"{score}_single"] = single[score].mean()
            row[f"{score}_single_sd"] = single[score].std()
            row[f"{score}_together"] = together[score].mean() if several else None
        rows.append(row)
    table = results.in_paper_order(pd.DataFrame(rows))
    printed = given.table(
        ENSEMBLES_COLUMNS,
        # With single seeds there is nothing to say, and pages leave the table out.
        by_cohort(table, given, ENSEMBLES_COLUMNS, _ensembles_cells)
        if (table["seeds"] > 1).any()
        else (),
        "One seed: the mean over sites of one seed's score, then mean and standard deviation over "
        "seeds, which is what another seed would change. All seeds: scores of the mean of their "
        "probabilities. An ensemble needs one training per seed; compare it with other ensembles.",
    )
    return table, printed


def _ensembles_cells(own: pd.DataFrame) -> list[Cell]:
    row = own.iloc[0]
    cells = [Cell(str(row["seeds"]))]
    for score in results.SCORES:
        mean, sd = row[f"{score}_single"], row[f"{score}_single_sd"]
        cells.append(Cell(percent(mean)) if pd.isna(sd) else with_sd(mean, sd))
        cells.append(Cell(percent(row[f"{score}_together"])))
    return cells
