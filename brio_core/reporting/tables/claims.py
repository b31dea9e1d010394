"""The paper's claims."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import pandas as pd

from brio_core.evaluation.mismatch import discordance_rate
from brio_core.evaluation.site_statistics import (
    SIGNIFICANT,
    corrected_ends,
    paired,
    told_apart,
)
from brio_core.reporting import diagnostics, results
from brio_core.reporting.blocks import part_of
from brio_core.reporting.catalogue import REFERENCE, Given, output
from brio_core.reporting.paired import MARGIN
from brio_core.reporting.table import NONE, NOT_RUN, Cell, Row, Table, heading, number
from brio_core.reporting.tables.paper import paper_claims, paper_numbers

COLUMNS = ("Claim", "Quantity", "Paper", "Ours", "Holds?")
# Quantities of our costs by the paper's names of them.
COSTS = {"seconds_per_epoch": "seconds_per_epoch", "peak_memory_gb": "gpu_memory_gb"}
SCALES = {"points": 100, "%": 100}
EXPLANATION = (
    "Ours: mean over held-out sites of the difference at a site, averaged over seeds, with "
    "Student's 95 % interval (over test folds for sites seen in training, where it is too short). "
    "AUC and ACC in points. Of several comparisons the one that is hardest for the claim is shown. "
    "Yes or no: a paired signed-rank test over sites decides, with a corrected p (Holm, all claims "
    f"of a part and cohort) below {SIGNIFICANT}. Where it finds nothing, the answer is no if the "
    "interval excludes a difference of {:.1f} points of AUC or ACC in the claimed direction (any "
    "difference, for other quantities and changes of AUC). For this it is as wide as so many "
    "claims need (Bonferroni). Else undecided, as is what has no interval: time and memory are "
    "measured once."
)
BASELINES = (
    "Baselines: networks of the paper that were run here, but not CEPG, AGMGC and CORE. These are "
    "reimplemented, and agree or disagree with the paper about nothing. Linear models are not in "
    "the paper and do not count. The paper's differences are of the same methods."
)


@output(
    files=["summaries", "sites", "diagnostics"],
    page="paper",
    title="The paper's claims",
    caption="Each claim of the paper, the quantity behind it, and whether it holds here.",
    options=["margin"],
    reads=["config/paper/*.csv"],
)
def claims_table(given: Given) -> tuple[pd.DataFrame, Table]:
    """The paper's claims: the quantity behind each, ours with its interval, whether it holds.

    One row per cohort and claim.
    """
    margin = given.entry.get("margin", MARGIN)
    summaries = results.read_summaries(given.files["summaries"])
    sites = results.read_sites(given.files["sites"])
    diagnosed = {
        one.cohort: one
        for one in diagnostics.read_diagnostics(given.files["diagnostics"])
        if one.protocol == "loso"
    }
    rows = []
    for cohort in results.ordered(summaries["cohort"]):
        own = summaries[summaries["cohort"] == cohort]
        evidence = Evidence(own, sites[sites["cohort"] == cohort], diagnosed.get(cohort), margin)
        for _, part in paper_claims().groupby(["section", "unit"], sort=False):
            rows += _decided(cohort, part, evidence)
    table = pd.DataFrame(rows)
    lines = []
    for cohort in results.ordered(table["cohort"]):
        own = table[table["cohort"] == cohort]
        lines.append(heading(f"{results.cohort_title(given.datasets, cohort)}: {_counts(own)}"))
        for section, part in own.groupby("section", sort=False):
            lines += [heading(section), *(Row(_cells(row)) for _, row in part.iterrows())]
    notes = (EXPLANATION.format(100 * margin), BASELINES)
    return table, given.table(COLUMNS, lines, *notes, left=(0, 1))


@dataclass(frozen=True)
class Evidence:
    """What was measured in one cohort: tables of sites by what is compared."""

    summaries: pd.DataFrame
    sites: pd.DataFrame
    diagnosed: diagnostics.Diagnostics | None
    margin: float

    @cached_property
    def methods(self) -> dict[str, list[str]]:
        """Networks of the paper by group, without those that are reimplemented."""
        known = self.summaries[self.summaries["variant"] == self.summaries["method"]]
        known = known[
            (known["device"] != results.EXTERNAL)
            & ~known["label"].str.contains(results.REIMPLEMENTED, regex=False)
        ]
        return {
            one: results.ordered(known.loc[known["group"] == one, "variant"])
            for one in results.GROUPS[:4]
        }

    def frame(self, source: str, measure: str) -> pd.DataFrame:
        """The values that a claim is about; empty if they were not measured."""
        if source in ("loso", "id"):
            own = self.sites[(self.sites["protocol"] == source) & self.sites["auc"].notna()]
            return own.pivot(index="fold", columns="variant", values=measure)
        if source == "cost":
            own = self.summaries[self.summaries["protocol"] == "loso"]
            return own.set_index("variant")[[measure]].T.astype(float)
        return pd.DataFrame() if self.diagnosed is None else self._diagnosed(source, measure)

    def _diagnosed(self, source: str, measure: str) -> pd.DataFrame:
        one = self.diagnosed
        if source == "discordance":
            networks = [REFERENCE, *(name for group in self.methods.values() for name in group)]
            runs = diagnostics.compared(one)
            of = runs["variant"].map(lambda variant: one.variants[variant]["method"])
            by_fold = runs[of.isin(networks)].groupby("fold")
            return pd.DataFrame(
                {"discordant": {key: discordance_rate(part) for key, part in by_fold}}
            )
        if source == "retention":
            rows = one.table("retention")
            near = (rows["kept"] / rows["factors"] - float(measure)).abs() < 1e-9
            rows = rows[(rows["variant"] == REFERENCE) & near]
            return rows if rows.empty else rows.pivot_table("test_auc", "fold", "ranking")
        folds = one.table("folds").groupby(["fold", "variant"])
        if source == "scan-length":
            rows = one.table("scan-length")
            cut = rows[rows["fraction"] == float(measure)].groupby(["fold", "variant"])
            return (cut["test_auc"].mean() - folds["test_auc"].mean()).unstack()
        if source == "mismatch":
            rows = diagnostics.sweep_mismatches(one, self.margin)
            return rows.astype({measure: float}).pivot_table(measure, "fold", "variant")
        return folds[measure].mean().unstack()

    def values(self, frame: pd.DataFrame, name: str) -> list[pd.Series]:
        """What a name of a claim means: columns of ``frame``, or one that is made of some."""
        if not name:
            return [pd.Series(0.0, frame.index)]
        group = self.methods.get(name.removeprefix("best of "), [])
        members = [one for one in group if one in frame]
        if name.startswith("best of ") and members:
            members = [frame[members].mean().idxmax()]
        if name == "every baseline":
            return [frame[one] for group in self.methods.values() for one in group if one in frame]
        if members:
            return [frame[members].mean(axis=1)]
        return [frame[one] for one in self._strengths(name) or [name] if one in frame]

    def _strengths(self, name: str) -> list[str]:
        """Variants of BRIO w/o QG that a name of a claim means."""
        known = list(self.diagnosed.without_guidance().values()) if self.diagnosed else []
        if len(known) > 1 and name in ("weakest", "strongest"):
            return [known[0 if name == "weakest" else -1]]
        if name == "nearest" and known and REFERENCE in self.diagnosed.variants:
            mean = self.frame("folds", "site_discrepancy").mean()
            return [(mean[known] - mean[REFERENCE]).abs().idxmin()]
        return known if name == "every strength" else []

    def differences(self, claim: pd.Series) -> list[pd.Series]:
        """First minus second at every site, of all pairs that a claim is about."""
        return self._pairs(self.frame(claim["source"], claim["measure"]), claim)

    def in_paper(self, cohort: str, claim: pd.Series) -> list[float]:
        """The same of the paper's numbers, where it prints them."""
        quantity = COSTS.get(claim["measure"], f"{claim['measure']}_mean")
        rows = paper_numbers()
        protocol = "id" if claim["source"] == "id" else "loso"
        rows = part_of(rows, cohort, protocol)[lambda part: part["quantity"] == quantity]
        if claim["source"] not in ("loso", "id", "cost") or rows.empty:
            return []
        frame = rows.drop_duplicates("variant").set_index("variant")[["paper"]].T
        return [float(one.iloc[0]) for one in self._pairs(frame, claim)]

    def _pairs(self, frame: pd.DataFrame, claim: pd.Series) -> list[pd.Series]:
        first, second = (self.values(frame, claim[key]) for key in ("first", "second"))
        return [one - other for one in first for other in second]


def _decided(cohort: str, claims: pd.DataFrame, evidence: Evidence) -> list[dict]:
    """The rows of claims that are tested together."""
    found = [evidence.differences(claim) for _, claim in claims.iterrows()]
    # Of a change of AUC nobody knows how much would be a lot.
    is_score = claims["source"].isin(["loso", "id"]).all() and claims["unit"].iloc[0] == "points"
    margin = evidence.margin if is_score else 0.0
    tested = paired([one for pairs in found for one in pairs], margin)
    together, tested = len(tested), iter(tested)
    rows = []
    for (_, claim), pairs in zip(claims.iterrows(), found):
        own = [next(tested) for _ in pairs]
        hardest = min if claim["expected"] == "above" else max
        # The paper's scores are in percent.
        in_paper = hardest(evidence.in_paper(cohort, claim), default=None)
        row = {"cohort": cohort, **claim[["section", "claim", "quantity", "unit"]]}
        row |= {
            "paper": in_paper,
            "holds": answer(own, claim["expected"], margin, together),
        }
        scale = SCALES.get(claim["unit"], 1)
        shown = hardest(own, key=lambda one: one["difference"], default=None)
        if shown is not None:
            ends = {"ours": "", "low": "_low", "high": "_high"}
            row |= {name: scale * shown[f"difference{end}"] for name, end in ends.items()}
            row |= {"sites": shown["sites_compared"], "comparisons": len(own)}
            row["p_holm"] = shown["p_holm"]
        rows.append(row)
    return rows


def answer(tested: Sequence[dict], expected: str, margin: float, together: int) -> str:
    """Whether comparisons support a claim, refute it, or leave it open.

    A difference that the test does not find is refuted if the interval excludes one of ``margin``
    in its direction, or if the test finds the opposite. What refutes a difference supports the
    claim that there is none. Claims with ``together`` comparisons are decided at the same time.
    """
    if not tested:
        return NOT_RUN
    side = -1 if expected == "below" else 1
    found = [side * told_apart(one) for one in tested]
    most = [max(side * end for end in corrected_ends(one, together)) for one in tested]
    supported = [one > 0 for one in found]
    refuted = [one < 0 or (one == 0 and end <= margin) for one, end in zip(found, most)]
    if expected == "not above":
        supported, refuted = refuted, supported
    return "no" if any(refuted) else "yes" if all(supported) else "undecided"


def _counts(rows: pd.DataFrame) -> str:
    counted = rows["holds"].value_counts()
    return ", ".join(
        f"{counted[one]} {one}" for one in ("yes", "no", "undecided", NOT_RUN) if one in counted
    )


def _cells(row: pd.Series) -> tuple[Cell, ...]:
    form = "+.1f" if row["unit"] == "points" else ".1f" if row["unit"] == "%" else ".3g"
    unit = f" {row['unit']}" if row["unit"] in ("s", "GB") else ""
    ours = Cell(NOT_RUN if row["holds"] == NOT_RUN else number(row["ours"], form) + unit)
    if pd.notna(row.get("low")):
        ours = Cell(ours.text, f"[{row['low']:{form}}, {row['high']:{form}}]")
    paper = number(row["paper"], form) + (unit if pd.notna(row["paper"]) else "")
    holds = Cell(row["holds"], bold=row["holds"] in ("yes", "no"))
    return Cell(row["claim"]), Cell(row["quantity"]), Cell(paper or NONE), ours, holds
