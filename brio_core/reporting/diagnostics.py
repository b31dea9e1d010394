"""Read what ``diagnose`` has written about runs."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import pandas as pd

from brio_core.evaluation.mismatch import mismatches
from brio_core.reporting.catalogue import REFERENCE
from brio_core.reporting.results import in_paper_order, read_table
from brio_core.system.errors import BrioError
from brio_core.system.files import read_json

NUMBERS = {
    "folds": (
        "site_discrepancy", "predictive_variation", "held_out_variation", "validation_auc",
        "test_auc",
    ),
    "scan-length": ("fraction", "test_auc"),
    "held-out": ("label", "margin", "agreement", "deviation"),
    "retention": ("draw", "kept", "factors", "test_auc"),
    "profiles": ("roi", "score"),
    "contrasts": ("factor", "contrast", "reestimated", "bound", "condition"),
    "penalties": ("class", "penalty", "relevance_penalty"),
}  # fmt: skip

ABOUT = ("method", "label", "group", "hyperparameters")


@dataclass(frozen=True)
class Diagnostics:
    """Those of all runs of a cohort and protocol."""

    cohort: str
    protocol: str
    runs: dict[Path, dict]
    """meta.json of every folder."""

    @cached_property
    def variants(self) -> dict[str, dict]:
        """Method, label, group and hyperparameters of every variant, in the order of the paper."""
        found = {meta["variant"]: {key: meta[key] for key in ABOUT} for meta in self.runs.values()}
        table = pd.DataFrame([{"variant": key} | value for key, value in found.items()])
        return {key: found[key] for key in in_paper_order(table)["variant"]}

    @cached_property
    def rois(self) -> pd.DataFrame:
        """Names, centroids (NaN where unknown) and hemispheres of the regions."""
        path = next(iter(self.runs)) / "rois.csv"
        return read_table(path, ("name", "hemisphere"), ("roi", "x", "y", "z"))

    def table(self, name: str) -> pd.DataFrame:
        """One row per fold and more, with ``variant`` and ``seed``; empty if it fits no method."""
        paths = [path for folder in self.runs if (path := folder / f"{name}.csv").exists()]
        if not paths:
            return pd.DataFrame(columns=["variant", "seed", "fold", *NUMBERS[name]])
        parts = [read_table(path, ("variant", "seed", "fold"), NUMBERS[name]) for path in paths]
        return pd.concat(parts, ignore_index=True)

    def identity(self, variant: str) -> dict[str, str]:
        """The columns that name a variant in a table."""
        names = {key: self.variants[variant][key] for key in ("method", "label", "group")}
        return {"cohort": self.cohort, "protocol": self.protocol, "variant": variant} | names

    def without_guidance(self) -> dict[float, str]:
        """Variants of BRIO w/o QG by alignment strength, in increasing order."""
        return dict(sorted(
            (values["hyperparameters"]["lambda_env"], variant)
            for variant, values in self.variants.items()
            if values["hyperparameters"].get("without") == "QG"
        ))  # fmt: skip


def read_diagnostics(folders: Sequence[str]) -> list[Diagnostics]:
    """Folders of runs that ``scripts/diagnose.py`` has filled, by cohort and protocol."""
    found: dict[tuple[str, str], dict[Path, dict]] = {}
    for folder in map(Path, folders):
        meta = read_json(folder / "meta.json", "cohort", "protocol", "variant", *ABOUT)
        found.setdefault((meta["cohort"], meta["protocol"]), {})[folder] = meta
    return [Diagnostics(*pair, runs) for pair, runs in found.items()]


def of_reference(folders: Sequence[str]) -> list[Diagnostics]:
    """The same of cohorts in which BRIO was diagnosed; there must be one."""
    found = [one for one in read_diagnostics(folders) if REFERENCE in one.variants]
    if not found:
        raise BrioError("no diagnostics of BRIO were given; run BRIO, or leave this figure out")
    return found


def compared(one: Diagnostics) -> pd.DataFrame:
    """Runs of the methods themselves and of BRIO w/o QG without alignment."""
    plain = one.without_guidance().get(0.0)
    shown = [key for key, value in one.variants.items() if key in (value["method"], plain)]
    runs = one.table("folds")
    return runs[runs["variant"].isin(shown)]


def with_every_seed(one: Diagnostics, runs: pd.DataFrame) -> pd.DataFrame:
    """The same runs, those of methods without a seed once for every seed of the others."""
    seedless = [
        key for key, value in one.variants.items() if "epochs" not in value["hyperparameters"]
    ]
    exact = runs["variant"].isin(seedless)
    seeds = runs.loc[~exact, ["seed"]].drop_duplicates()
    if seeds.empty:
        return runs
    return pd.concat([runs[~exact], runs[exact].drop(columns="seed").merge(seeds, how="cross")])


def sweep_runs(one: Diagnostics) -> tuple[dict[str, str], pd.DataFrame]:
    """BRIO w/o QG by increasing lambda and BRIO itself, with names; and their runs."""
    names = {variant: f"λ = {value:g}" for value, variant in one.without_guidance().items()}
    names |= {REFERENCE: "BRIO"} if REFERENCE in one.variants else {}
    runs = one.table("folds")
    return names, runs[runs["variant"].isin(names)]


def matched(one: Diagnostics) -> str | None:
    """The positive lambda that source validation would choose; the smaller one of equals."""
    means = one.table("folds").groupby("variant")["validation_auc"].mean()
    candidates = [name for value, name in one.without_guidance().items() if value > 0]
    return max(candidates, key=means.__getitem__) if candidates else None


def sweep_mismatches(
    one: Diagnostics, margin: float, medians_of: pd.DataFrame | None = None
) -> pd.DataFrame:
    """Runs of the sweep and of BRIO, with ``total`` and ``preserved``; none without lambda = 0."""
    runs, keys = sweep_runs(one)[1], ["fold", "seed"]
    plain = runs[runs["variant"] == one.without_guidance().get(0.0)]
    reference = plain.set_index(keys)["validation_auc"].rename("reference")
    runs = runs.join(reference, on=keys).dropna(subset="reference")
    return runs.join(mismatches(runs, margin, medians_of))
