"""Preprocessed images, or series of an atlas, in a BIDS-derivatives layout as of fMRIPrep."""

import json
import math
import re
from functools import cached_property
from pathlib import Path

from brio_core.cohorts.readers.bids_files import check_unique, matching
from brio_core.cohorts.readers.joins import ParticipantsSource
from brio_core.cohorts.source import Scan, Unusable
from brio_core.cohorts.tables import MISSING
from brio_core.system.errors import BrioError

_IMAGES = (".nii.gz", ".nii")
_SERIES = (".tsv", ".csv", ".1D", ".txt", ".npy", ".mat", ".h5")


class BidsSource(ParticipantsSource):
    """``participants.tsv`` and preprocessed 4D images with their confounds, or ready series.

    Of several runs, ``source.run`` takes one by its number; else ``source.runs`` says what is
    done: ``first``, ``longest`` (the first of the longest), or ``join``.
    """

    def check(self) -> None:
        confounds = self.settings.get("confounds") or {}
        if confounds.get("strategy") and "denoise_strategy" in confounds:
            raise BrioError(
                f"source.confounds of cohort {self.dataset['cohort']} has strategy and "
                "denoise_strategy; keep one of them"
            )
        super().check()

    @property
    def _has_images(self) -> bool:
        return "timeseries" not in self.settings

    def scan_paths(self, row: dict) -> list[Path]:
        subject = self.file_name_part(row[self.dataset["columns"]["subject"]], "subject")
        label = re.sub("[^A-Za-z0-9]", "", subject.removeprefix("sub-"))
        folder = self.inside(
            self.root, f"{self.settings['derivatives']}/sub-{label}", f"the folder of {subject}"
        )
        wanted = {"sub": label, "task": self.settings["task"], "space": self.settings["space"]}
        wanted |= {key: str(value) for key, value in self.settings.get("entities", {}).items()}
        if self.settings.get("run"):
            wanted["run"] = self.settings["run"]
        if self._has_images:
            wanted |= {"desc": "preproc", "suffix": "bold"}
        else:
            wanted |= {key: str(value) for key, value in self.settings["timeseries"].items()}
            wanted["suffix"] = "timeseries"
        session = self.settings.get("session")
        found = matching(folder, session, wanted, _IMAGES if self._has_images else _SERIES)
        if not found:
            return [self._expected(folder, session, wanted)]
        check_unique(found)
        return self._choose(found)

    def _expected(self, folder: Path, session: str | None, wanted: dict[str, str]) -> Path:
        """Where the scan would be: the name that a reason gives for a missing one."""
        named = dict(wanted)
        suffix = named.pop("suffix")
        pairs = [f"{key}-{named.pop(key)}" for key in ("sub",)]
        pairs += [f"ses-{session}"] if session else []
        order = ("task", "run", "space")
        pairs += [f"{key}-{named.pop(key)}" for key in order if key in named]
        pairs += [f"{key}-{value}" for key, value in named.items()]
        place = folder / f"ses-{session}" if session else folder
        ending = _IMAGES[0] if self._has_images else _SERIES[0]
        return place / "func" / f"{'_'.join([*pairs, suffix])}{ending}"

    def _choose(self, runs: list[Path]) -> list[Path]:
        rule = self.settings.get("runs", "first")
        if rule == "join":
            return runs
        return [max(runs, key=self._frames) if rule == "longest" else runs[0]]

    def _frames(self, path: Path) -> int:
        """Frames of a scan, 0 if it cannot be read."""
        try:
            if self._has_images:
                from brio_core.cohorts.streaming import open_image

                return open_image(path).shape[3]
            return self.read(path, None).frames_before
        except Unusable:
            return 0

    def repetition_time(self, path: Path) -> float | None:
        sidecar = path.with_name(path.name.partition(".")[0] + ".json")
        try:
            described = json.loads(sidecar.read_text(encoding="utf-8"))
            if "RepetitionTime" in described:
                return described["RepetitionTime"]
            return 1 / described["SamplingFrequency"]
        except (OSError, ValueError, AttributeError, KeyError, TypeError, ZeroDivisionError):
            return None

    def mean_fd(self, path: Path) -> float | None:
        """From fMRIPrep's confounds, whose first frame has no displacement."""
        import pandas as pd

        stem, column = path.name.partition("_space-")[0], "framewise_displacement"
        for kind in ("timeseries", "regressors"):
            confounds = path.with_name(f"{stem}_desc-confounds_{kind}.tsv")
            try:
                table = pd.read_csv(confounds, sep="\t", usecols=[column], na_values=[MISSING])
                mean = float(table[column].mean())
            except (OSError, ValueError, TypeError):
                continue
            return None if math.isnan(mean) else mean
        return None

    @property
    def atlas_setting(self) -> tuple[dict, str] | None:
        if not self._has_images:
            return super().atlas_setting
        for key in ("labels", "image", "atlas"):
            if key in self.dataset["rois"]:
                raise BrioError(
                    f"rois.{key} of cohort {self.dataset['cohort']} is of no use, because "
                    "source.atlas names the regions of images; remove it"
                )
        return self.settings["atlas"], "source.atlas"

    @cached_property
    def _extractor(self):
        from brio_core.cohorts.extraction import Extractor
        from brio_core.cohorts.inclusion import Rules

        return Extractor(
            self.atlas,
            self.settings.get("confounds"),
            self.settings.get("cleaning") or {},
            Rules.of(self.dataset).min_frames,
            self.settings.get("averaging") or {},
        )

    def read(self, path: Path, tr: float | None) -> Scan:
        if self._has_images:
            return self._extractor.extract(path, tr)
        from brio_core.cohorts.readers.series import series_scan

        return series_scan(path, self.settings.get("variable"))

    @property
    def units(self) -> str:
        standardised = str((self.settings.get("cleaning") or {}).get("standardize"))
        if not self._has_images:
            return super().units
        if standardised.startswith("zscore"):
            return "standard deviations of the region within the run"
        return "percent signal change" if standardised == "psc" else "units of the image"

    def provenance(self) -> dict:
        from importlib.metadata import version

        if not self._has_images:
            return super().provenance()
        return super().provenance() | {"nilearn": version("nilearn")}
