"""Each method against one reference, and how much of the spread between sites is sampling."""

import math

import pandas as pd

from brio_core.evaluation import site_statistics
from brio_core.evaluation.intervals import interval_over_sites
from brio_core.evaluation.scores import Estimate
from brio_core.evaluation.site_statistics import SIGNIFICANT
from brio_core.reporting import results
from brio_core.reporting.blocks import by_cohort, part_of
from brio_core.reporting.catalogue import REFERENCE
from brio_core.reporting.given import Given
from brio_core.reporting.table import NONE, Cell, Table, p_text, percent, plural, with_interval

OUTPUT = {
    "files": ["summaries", "sites"],
    "page": "comparison",
    "title": "Noise or difference",
    "caption": "Each method against one reference at the same unseen sites, and how much sites of "
    "these sizes differ by sampling alone.",
    "options": ["reference", "margin"],
}

MARGIN = 0.02
# Columns of the summaries that a row repeats, by its own names.
COPIED = {
    "mean": "{}_mean", "mean_low": "{}_sites_low", "mean_high": "{}_sites_high", "sd": "{}_sd",
    "new_low": "auc_new_low", "new_high": "auc_new_high",
    "sd_sampling": "auc_sd_sampling", "sd_sampling_low": "auc_sd_sampling_low",
    "sd_sampling_high": "auc_sd_sampling_high", "pooled": "pooled_auc",
    "pooled_low": "pooled_auc_low", "pooled_high": "pooled_auc_high",
}  # fmt: skip
TESTED = (
    "reference", "difference", "difference_low", "difference_high", "sites_better", "sites_worse",
    "signed_rank", "p",
)  # fmt: skip
EXPLANATION = (
    "AUC in %: mean over held-out sites with Student's 95 % interval, in which sites, subjects and "
    "seeds vary. New site: where the AUC of a site that is not among these is to be expected "
    "(95 %, sampling error taken out). Pooled: all test subjects together (DeLong); it mixes the "
    "scores of several models. Difference to {} at the same sites, with its interval, and how many "
    "sites are better and worse. p: exact two-sided Wilcoxon signed-rank test over sites; Holm: "
    f"corrected for all methods of the cohort. Bold: corrected p below {SIGNIFICANT}. Verdict: "
    "equivalent if the interval of the difference lies within ± {:.1f} points, else better or "
    "worse if the corrected p says so, else undecided. Folds share training sites, so their AUCs "
    "are not independent."
)
SEEN = (
    " For sites seen in training, test folds take the place of sites; they share training "
    "subjects, so their p is too small."
)
COLUMNS = (
    "Method", "AUC", "New site", "Pooled AUC", "Difference to {}", "Verdict", "Better, worse", "p",
    "p (Holm)", "SD", "SD by sampling",
)  # fmt: skip


def make(given: Given) -> tuple[pd.DataFrame, Table]:
    """One row per cohort, protocol, score and variant; the table shows AUC.

    All are compared with the ``reference``, a variant.
    """
    reference = given.entry.get("reference", REFERENCE)
    margin = given.entry.get("margin", MARGIN)
    summaries = results.read_summaries(given.files["summaries"])
    sites = results.read_sites(given.files["sites"])
    parts = []
    for place in results.ordered(zip(summaries["cohort"], summaries["protocol"])):
        own, folds = part_of(summaries, *place), part_of(sites, *place)
        for score in results.SCORES:
            usable = folds[folds["auc"].notna()]
            parts.append(_score_rows(own, usable, score, reference, margin))
    rows = pd.concat(parts, ignore_index=True)
    shown = rows[rows["score"] == "auc"]
    places = results.ordered(zip(shown["cohort"], shown["protocol"]))
    label = results.label_of(shown, reference)
    columns = tuple(name.format(label) for name in COLUMNS)
    has_seen = any(protocol == "id" for _, protocol in places)
    table = given.table(
        columns,
        by_cohort(shown, given, columns, _cells),
        EXPLANATION.format(label, 100 * margin) + (SEEN if has_seen else ""),
        _spread(shown),
        *(_power(part_of(shown, *place), place, given.datasets, label) for place in places),
    )
    return rows, table


def _score_rows(
    summaries: pd.DataFrame, folds: pd.DataFrame, score: str, reference: str, margin: float
) -> pd.DataFrame:
    """One row per variant: its score, and the difference to the reference."""
    values = folds.pivot(index="fold", columns="variant", values=score)
    rows = summaries[list(results.IDENTITY)].assign(score=score, sites=len(values))
    for name, column in COPIED.items():
        # Only AUC has these of all subjects and of sampling.
        known = score == "auc" or column.startswith("{}")
        rows[name] = summaries[column.format(score)] if known else math.nan
    tested = [_test(values, variant, reference) for variant in rows["variant"]]
    rows = rows.join(pd.DataFrame(tested, index=rows.index))
    rows["p_holm"] = site_statistics.holm(rows["p"].to_numpy(float))
    rows["verdict"] = [_verdict(row, margin) for _, row in rows.iterrows()]
    return rows


def _verdict(row: pd.Series, margin: float) -> str:
    if not row["reference"]:
        return ""
    difference = Estimate(*(row[f"difference{end}"] for end in ("", "_low", "_high")))
    return site_statistics.verdict(difference, margin, row["p_holm"])


def _test(values: pd.DataFrame, variant: str, reference: str) -> dict:
    """The difference to the reference; empty for itself and where it was not run."""
    if reference not in values or variant == reference:
        return dict.fromkeys(TESTED) | {"reference": "", "sites_better": "", "sites_worse": ""}
    differences = (values[variant] - values[reference]).to_numpy()
    found = (
        reference,
        *interval_over_sites(differences),
        int((differences > 0).sum()),
        int((differences < 0).sum()),
        *site_statistics.signed_rank(differences),
    )
    return dict(zip(TESTED, found))


def _cells(own: pd.DataFrame) -> tuple[Cell, ...]:
    row = own.iloc[0]

    def interval(name: str, bold: bool = False) -> Cell:
        return with_interval(row[name], row[f"{name}_low"], row[f"{name}_high"], bold)

    clear = bool(row["p_holm"] < SIGNIFICANT)
    tested = not pd.isna(row["difference"])
    difference = interval("difference", clear)
    if tested and row["difference"] > 0:
        difference = Cell(f"+{difference.text}", difference.extra, clear)
    return (
        interval("mean"),
        Cell(f"{percent(row['new_low'])} to {percent(row['new_high'])}"),
        interval("pooled"),
        difference if tested else Cell(NONE),
        Cell(row["verdict"] if tested else NONE),
        Cell(f"{row['sites_better']}, {row['sites_worse']}" if tested else NONE),
        Cell(p_text(row["p"])),
        Cell(p_text(row["p_holm"]), bold=clear),
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


def _power(part: pd.DataFrame, place: tuple[str, str], datasets: dict, reference: str) -> str:
    name = results.place_title(datasets, *place)
    tests = int(part["p"].notna().sum())
    if not tests:
        return f"{name}: {reference} was not run or is alone, so nothing is tested."
    sites = int(part["sites"].max())
    smallest = site_statistics.smallest_p(sites)
    text = f"{name}: with {plural(sites, 'site')} the smallest possible p is {p_text(smallest)}"
    if smallest * tests >= SIGNIFICANT:
        return (
            f"{text}, and {plural(tests, 'comparison')} correct it to at least "
            f"{p_text(min(1.0, smallest * tests))}: no method can be told from "
            f"{reference} here, even if it wins or loses at every site."
        )
    return f"{text}."
