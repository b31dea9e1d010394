"""Paired comparisons of variants at the same sites: columns of a table, cells and sentences."""

import pandas as pd

from brio_core.evaluation.site_statistics import PAIRED, SIGNIFICANT, paired, smallest_p
from brio_core.reporting.blocks import part_of
from brio_core.reporting.catalogue import REFERENCE, Given
from brio_core.reporting.results import label_of, ordered, place_title
from brio_core.reporting.table import NONE, Cell, interval_cell, p_text, plural, signed

MARGIN = 0.02
COUNTS = ("sites_compared", "sites_better", "sites_worse")
HEADS = ("Verdict", "p", "p (Holm)")
NOTE = (
    "Difference to {} at the same sites, each averaged over seeds, with Student's 95 % interval: "
    "sites, subjects and seeds vary in it. Folds share training sites, so their AUCs are not "
    "independent. p: exact two-sided Wilcoxon signed-rank test over sites; Holm: corrected for all "
    "comparisons of a score, cohort and protocol in this table. Bold: corrected p below "
    f"{SIGNIFICANT}. Verdict: "
    "equivalent if the interval lies within ± {:.1f} points, else better or worse if the corrected "
    "p says so, else undecided."
)


def compared(
    rows: pd.DataFrame,
    sites: pd.DataFrame,
    given: Given,
    reference: pd.Series | None = None,
    name: str | None = None,
    score: str = "auc",
) -> tuple[pd.DataFrame, list[str]]:
    """Rows with the columns :data:`PAIRED`, each variant against its reference, and the notes.

    The reference is that of the table's entry, or one for each row, and has a ``name``. A row that
    is its own reference, or whose reference was not run, is compared with nothing. The rows of a
    cohort and protocol are tested together, for the ``margin`` of the entry. ``sites`` has the
    score of every variant and fold.
    """
    one = given.entry.get("reference", REFERENCE)
    margin = given.entry.get("margin", MARGIN)
    rows = rows.assign(reference=one if reference is None else reference)
    rows["reference"] = rows["reference"].where(rows["reference"] != rows["variant"], "")
    # A fold of one class has no AUC.
    sites = sites[sites["auc"].notna()]
    name = name or label_of(rows, one)
    parts, notes = [], [NOTE.format(name, 100 * margin)]
    for place in ordered(zip(rows["cohort"], rows["protocol"])):
        own = part_of(rows, *place)
        scores = part_of(sites, *place).pivot(index="fold", columns="variant", values=score)
        differences = [
            scores[variant] - scores[other] if variant in scores and other in scores else None
            for variant, other in zip(own["variant"], own["reference"])
        ]
        parts.append(pd.DataFrame(paired(differences, margin), own.index, PAIRED))
        notes.append(f"{place_title(given.datasets, *place)}: {_power(parts[-1], name)}")
    found = pd.concat(parts).astype(dict.fromkeys(COUNTS, "Int64"))
    rows = rows.join(found.fillna({"verdict": ""}))
    return rows.assign(reference=rows["reference"].where(rows["p"].notna(), "")), notes


def difference_cells(row: pd.Series) -> list[Cell]:
    """The difference with its interval, and what stands under :data:`HEADS`."""
    if pd.isna(row["difference"]):
        return [Cell(NONE)] * (1 + len(HEADS))
    clear = bool(row["p_holm"] < SIGNIFICANT)
    return [
        Cell(signed(row["difference"]), interval_cell(row, "difference").extra, clear),
        Cell(row["verdict"]),
        Cell(p_text(row["p"])),
        Cell(p_text(row["p_holm"]), bold=clear),
    ]


def _power(found: pd.DataFrame, name: str) -> str:
    """Whether so few sites can tell variants apart at all."""
    tests = int(found["p"].notna().sum())
    if not tests:
        return f"{name} was not run or is alone, so nothing is tested."
    sites = int(found["sites_compared"].max())
    smallest = smallest_p(sites)
    text = f"with {plural(sites, 'site')} the smallest possible p is {p_text(smallest)}"
    if smallest * tests >= SIGNIFICANT:
        return (
            f"{text}, and {plural(tests, 'comparison')} correct it to at least "
            f"{p_text(min(1.0, smallest * tests))}: nothing can be told from {name} here, even if "
            "it wins or loses at every site."
        )
    return f"{text}."
