"""Whom to set aside, shorter scans, and regions behind BRIO's factors."""

import math
from collections.abc import Sequence

import numpy as np
import pandas as pd

from brio_core.evaluation.abstention import (
    PROBABILITY,
    SHARES,
    STABILITY,
    curve,
    most_certain_first,
)
from brio_core.evaluation.site_statistics import paired
from brio_core.reporting.blocks import by_cohort, part_of
from brio_core.reporting.catalogue import REFERENCE, Given, output
from brio_core.reporting.diagnostics import Diagnostics, read_diagnostics
from brio_core.reporting.paired import MARGIN
from brio_core.reporting.results import cohort_title
from brio_core.reporting.table import (
    NONE,
    NOT_RUN,
    Cell,
    Row,
    Table,
    heading,
    interval_cell,
    percent,
    plural,
)

SCORES = ("accuracy", "auc")
# The share of subjects kept that the printed table shows; the CSV has all.
KEPT = 0.7
COLUMNS = (
    "Method", "All", "By stability", "By probability", "All", "By stability", "By probability",
    "Difference", "Verdict",
)  # fmt: skip


@output(
    files=["diagnostics"],
    page="diagnostics",
    title="Whom to set aside",
    caption="Accuracy and AUC of those who are kept, when the least certain are set aside.",
    options=["margin"],
)
def abstention_table(given: Given) -> tuple[pd.DataFrame, Table]:
    """What is gained by setting the least certain subjects aside: by stability or by probability?

    One row per variant, way of abstaining and share of subjects kept.
    """
    margin = given.entry.get("margin", MARGIN)
    found = read_diagnostics(given.files["diagnostics"])
    rows = abstention_rows(found, margin)
    notes = [_note(cohort_title(given.datasets, one.cohort), rows, one) for one in found]
    table = given.table(
        COLUMNS,
        by_cohort(rows, given, COLUMNS, _cells),
        f"In %, the mean over held-out sites, each averaged over seeds. Of every site "
        f"{100 * KEPT:.0f} % are kept: those whose decision most re-estimates of the scan confirm,"
        " then those whose logit moves least; or those whose logit is farthest from the threshold, "
        "as a probability would have it. Difference: accuracy by stability minus by probability, "
        "averaged over all shares below 100 %, with Student's 95 % interval over sites. The verdict"
        f" is equivalent within {100 * margin:g} points, else by the signed-rank test with Holm's "
        "correction.",
        *notes,
        spans=(("", 1), ("Accuracy", 3), ("AUC", 3), ("Stability − probability", 2)),
        left=(0, 8),
    )
    return rows, table


def abstention_rows(found: Sequence[Diagnostics], margin: float = MARGIN) -> pd.DataFrame:
    """``accuracy_mean`` and ``auc_mean`` over sites, with what a paired test of both ways says.

    Sites whose kept subjects lack a class have no AUC at that share.
    """
    rows = []
    for one in found:
        people = one.table("held-out")
        variants = [name for name in one.variants if (people["variant"] == name).any()]
        curves = {
            (name, by): _curves(people[people["variant"] == name], by)
            for name in variants
            for by in (STABILITY, PROBABILITY)
        }
        accuracy = {key: values[:, 0, 1:].mean(1) for key, values in curves.items()}
        differences = [accuracy[name, STABILITY] - accuracy[name, PROBABILITY] for name in variants]
        for name, compared in zip(variants, paired(differences, margin)):
            for by in (STABILITY, PROBABILITY):
                values = curves[name, by]
                for place, share in enumerate(SHARES):
                    row = one.identity(name) | {"by": by, "share": share, "sites": len(values)}
                    for score, at in zip(SCORES, values[:, :, place].T):
                        row[f"{score}_mean"] = np.nanmean(at) if np.isfinite(at).any() else np.nan
                    kept = ("difference", "difference_low", "difference_high", "p_holm", "verdict")
                    rows.append(row | {key: compared[key] for key in kept})
    names = ("cohort", "protocol", "variant", "method", "label", "group", "by", "share")
    return pd.DataFrame(rows) if rows else pd.DataFrame(columns=list(names))


def _curves(people: pd.DataFrame, by: str) -> np.ndarray:
    """Accuracy and AUC (sites, 2, shares), averaged over seeds."""
    columns = ["margin", "agreement", "deviation"]
    found: dict[str, list[np.ndarray]] = {}
    for (site, _), own in people.groupby(["fold", "seed"], sort=True):
        order = most_certain_first(by, *(own[name].to_numpy() for name in columns))
        values = curve(own["label"].to_numpy(), own["margin"].to_numpy(), order)
        found.setdefault(site, []).append(values)
    return np.stack([np.mean(values, axis=0) for values in found.values()])


def _cells(own: pd.DataFrame) -> list[Cell]:
    at = own.set_index(["by", "share"])
    cells = []
    for score in SCORES:
        places = [(STABILITY, 1.0), (STABILITY, KEPT), (PROBABILITY, KEPT)]
        cells += [Cell(percent(at.loc[place, f"{score}_mean"])) for place in places]
    first = own.iloc[0]
    return [*cells, interval_cell(first, "difference"), Cell(first["verdict"] or NONE)]


def _note(title: str, rows: pd.DataFrame, one: Diagnostics) -> str:
    """Whether stability adds anything, in words."""
    own = part_of(rows, one.cohort, one.protocol)
    verdicts = own.drop_duplicates("variant")["verdict"].value_counts()
    words = [f"{word} {verdicts.get(word, 0)}" for word in
             ("better", "worse", "equivalent", "undecided")]  # fmt: skip
    text = (
        f"{title}: setting aside by stability compared with by probability, "
        f"{plural(int(verdicts.sum()), 'method')}: {', '.join(words)}."
    )
    if verdicts.get("better", 0):
        return text
    return f"{text} No method shows that stability adds anything to the probability here."


@output(
    files=["diagnostics"],
    page="diagnostics",
    title="Shorter scans",
    caption="Test scans cut to a part of their frames, with models as they were trained.",
)
def scan_length_table(given: Given) -> tuple[pd.DataFrame, Table]:
    """How AUC falls when test scans are cut short, while models stay as they are.

    AUC of whole scans, and its change in percentage points for every fraction.
    """
    rows = scan_length_rows(read_diagnostics(given.files["diagnostics"]))
    fractions = [value for value in rows["fraction"].unique() if value < 1]
    columns = ("Method", "Whole scan", *(f"{100 * value:.0f} %" for value in fractions))

    def cells(own: pd.DataFrame) -> list[Cell]:
        own = own.set_index("fraction")
        found = [Cell(percent(own.loc[1.0, "auc_mean"]))]
        for mean, error in own.reindex(fractions)[["change_mean", "change_se"]].to_numpy():
            change = percent(mean).replace("-", "−")
            found.append(Cell(NONE) if math.isnan(mean) else Cell(change, f"± {percent(error)}"))
        return found

    table = given.table(
        columns,
        by_cohort(rows, given, columns, cells),
        "AUC (%) on held-out sites with whole scans, and its change in percentage points when "
        "connectivity is estimated from a part of the frames, averaged over windows at the "
        "beginning, middle and end. ± is the standard error over sites of the change within a "
        "site. A part that is too short for a method leaves the site out. Models are those of the "
        "main experiment.",
    )
    return rows, table


def scan_length_variants(one: Diagnostics) -> list[str]:
    """The paper's three models: BRIO, w/o RS, and w/o QG with the alignment strength of BRIO."""
    if REFERENCE not in one.variants:
        return []
    strength = one.variants[REFERENCE]["hyperparameters"]["lambda_env"]
    wanted = [
        variant
        for variant, about in one.variants.items()
        if about["hyperparameters"].get("without") in ("RS", "QG")
        and about["hyperparameters"]["lambda_env"] == strength
    ]
    return [REFERENCE, *wanted]


def scan_length_rows(found: Sequence[Diagnostics]) -> pd.DataFrame:
    """One row per cohort, variant and fraction of the frames, the whole scan first.

    The three windows of a scan are averaged, then seeds; means and standard errors are over
    held-out sites, and those of the change over differences within a site.
    """
    rows = []
    for one in found:
        keys = ["variant", "fold", "seed"]
        whole = one.table("folds").set_index(keys)["test_auc"]
        cut = one.table("scan-length").groupby([*keys, "fraction"])["test_auc"].mean().unstack()
        for variant in one.variants:
            parts = {1.0: whole[variant]}
            # A method that needs longer scans has no such rows, at some sites or at all.
            if variant in cut.index:
                parts |= {fraction: auc.dropna() for fraction, auc in cut.loc[variant].items()}
            for fraction in sorted(parts, reverse=True):
                auc = parts[fraction]
                if auc.empty:
                    continue
                change = (auc - whole[variant]).groupby("fold").mean().dropna()
                row = one.identity(variant) | {"fraction": fraction, "folds": len(change)}
                row["auc_mean"] = auc.groupby("fold").mean().mean()
                rows.append(row | {"change_mean": change.mean(), "change_se": change.sem()})
    return pd.DataFrame(rows)


ROI_SHOWN = 5


@output(
    files=["diagnostics"],
    page="diagnostics",
    title="Regions behind the qualified factors",
    caption="The five regions with the highest qualification-weighted pooling score.",
)
def roi_profiles_table(given: Given) -> tuple[pd.DataFrame, Table]:
    """Regions that the qualified factors of BRIO pool from, averaged over folds and seeds.

    All regions in the CSV, the first five of every cohort in print.
    """
    rows = profile_rows(read_diagnostics(given.files["diagnostics"]))
    lines = []
    for cohort in dict.fromkeys(cohort for cohort, _ in given.planned["pairs"]):
        title = cohort_title(given.datasets, cohort)
        top = top_rois(rows, cohort)
        lines.append(heading(f"{title}: {NOT_RUN}" if top.empty else title))
        for rank, (_, row) in enumerate(top.iterrows(), start=1):
            # No minus before a zero.
            place = NONE if pd.isna(row["x"]) else ", ".join(f"{row[axis]:z.0f}" for axis in "xyz")
            score = Cell(f"{row['times_uniform']:.2f}", f"± {row['times_uniform_sd']:.2f}")
            lines.append(Row((Cell(f"{rank}"), Cell(row["name"]), Cell(place), score)))
    table = given.table(
        ("Rank", "Region", "Centre (mm)", "Score × regions"),
        lines,
        "Qualification-weighted pooling profile of BRIO, averaged over folds and seeds in ROI "
        "space; 1 would be a region like any other, ± is the standard deviation over models.",
        left=(0, 1),
    )
    return rows, table


def profile_rows(found: Sequence[Diagnostics]) -> pd.DataFrame:
    """One row per cohort and region, the highest score first, Eq. (app_dataset_roi_score).

    Factors of different models do not correspond, regions do: every model's profile is averaged
    in ROI space. ``times_uniform`` is 1 where qualification would not matter.
    """
    parts = []
    for one in found:
        scores = one.table("profiles")
        scores = scores[scores["variant"] == REFERENCE].groupby("roi")["score"]
        table = pd.DataFrame({"score": scores.mean(), "score_sd": scores.std()})
        table = one.rois.set_index("roi").join(table).reset_index()
        table.insert(0, "cohort", one.cohort)
        table["times_uniform"] = table["score"] * len(table)
        table["times_uniform_sd"] = table["score_sd"] * len(table)
        table["models"] = scores.size().max()
        parts.append(table.sort_values("score", ascending=False, kind="stable"))
    return pd.concat(parts, ignore_index=True)


def top_rois(rows: pd.DataFrame, cohort: str) -> pd.DataFrame:
    """The regions that are named."""
    return rows[rows["cohort"] == cohort].head(ROI_SHOWN)
