"""Read what ``diagnose`` has written about the cells of a cohort and protocol."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import pandas as pd

from brio_core.files import read_json
from brio_core.reporting.results import in_paper_order, read_table

NUMBERS = {
    "cells": ("site_discrepancy", "predictive_variation", "validation_auc", "test_auc"),
    "scan-length": ("fraction", "test_auc"),
    "retention": ("draw", "kept", "factors", "test_auc"),
    "profiles": ("roi", "score"),
    "contrasts": ("factor", "contrast", "reestimated", "bound", "condition"),
    "penalties": ("class", "penalty", "relevance_penalty"),
}


@dataclass(frozen=True)
class Diagnostics:
    """The folder of one cohort and protocol, whose names are the last parts of its path."""

    folder: Path

    @property
    def cohort(self) -> str:
        return self.folder.parent.name

    @property
    def protocol(self) -> str:
        return self.folder.name

    @cached_property
    def variants(self) -> dict[str, dict]:
        """Method, label, group and settings of every variant, in the order of the paper."""
        found = read_json(self.folder / "variants.json")
        table = pd.DataFrame([{"variant": key} | value for key, value in found.items()])
        return {key: found[key] for key in in_paper_order(table)["variant"]}

    @cached_property
    def rois(self) -> pd.DataFrame:
        """Names, centroids (NaN where unknown) and hemispheres of the regions."""
        return read_table(self.folder / "rois.csv", ("name", "hemisphere"), ("roi", "x", "y", "z"))

    def table(self, name: str) -> pd.DataFrame:
        """One row per fold and more, with ``variant`` and ``seed``; empty if it fits no method."""
        path = self.folder / f"{name}.csv"
        if not path.exists():
            return pd.DataFrame(columns=["variant", "seed", "fold", *NUMBERS[name]])
        return read_table(path, ("variant", "seed", "fold"), NUMBERS[name])

    def label(self, variant: str) -> str:
        return self.variants[variant]["label"]

    def without_guidance(self) -> dict[float, str]:
        """Variants of BRIO w/o QG by alignment strength, in increasing order."""
        return dict(sorted(
            (values["settings"]["lambda_env"], variant)
            for variant, values in self.variants.items()
            if values["settings"].get("without") == "QG"
        ))  # fmt: skip


def read_diagnostics(folders: Sequence[str]) -> list[Diagnostics]:
    """Folders that ``scripts/diagnose.py`` has filled."""
    found = [Diagnostics(Path(folder)) for folder in folders]
    for one in found:
        # A wrong folder is noticed here, by its name.
        one.variants  # noqa: B018
    return found
