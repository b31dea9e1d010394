"""Preprocessed images, or series of an atlas, in a BIDS-derivatives layout as of fMRIPrep."""

import json
import math
import re
from collections import Counter
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path

from brio_core.cohorts.readers.reader import Reader
from brio_core.cohorts.readers.series import SERIES_ENDINGS, series_scan
from brio_core.cohorts.scan import Scan, Unusable
from brio_core.cohorts.tables import MISSING
from brio_core.system.errors import BrioError

_IMAGES = (".nii.gz", ".nii")


class BidsReader(Reader):
    """``participants.tsv`` and preprocessed 4D images with their confounds, or ready series.

    Of several runs, ``source.run`` takes one by its number; else ``source.runs`` says what is
    done: ``first``, ``longest`` (the first of the longest), or ``join``.
    """

    def check(self) -> None:
        confounds = self.source.get("confounds") or {}
        if confounds.get("strategy") and "denoise_strategy" in confounds:
            raise BrioError(
                f"source.confounds of cohort {self.dataset['cohort']} has strategy and "
                "denoise_strategy; keep one of them"
            )
        super().check()

    @property
    def _has_images(self) -> bool:
        return "timeseries" not in self.source

    @property
    def _endings(self) -> tuple[str, ...]:
        return _IMAGES if self._has_images else SERIES_ENDINGS

    def scan_paths(self, row: dict) -> list[Path]:
        subject = self.file_name_part(row[self.dataset["columns"]["subject"]], "subject")
        label = re.sub("[^A-Za-z0-9]", "", subject.removeprefix("sub-"))
        folder = self.inside(
            self.root, f"{self.source['derivatives']}/sub-{label}", f"the folder of {subject}"
        )
        session, wanted = self.source.get("session"), self._wanted(label)
        found = _matching(folder, session, wanted, self._endings)
        if not found:
            return [self._expected(folder, session, wanted)]
        _check_unique(found)
        rule = self.source.get("runs", "first")
        if rule == "join":
            return found
        return [max(found, key=self._frames) if rule == "longest" else found[0]]

    def scan_files(self) -> Iterator[tuple[str, Path]]:
        for folder in (self.root / self.source["derivatives"]).glob("sub-*"):
            wanted = self._wanted(folder.name.removeprefix("sub-"))
            for path in _matching(folder, self.source.get("session"), wanted, self._endings)[:1]:
                yield folder.name, path

    def _wanted(self, label: str) -> dict[str, str]:
        """The entities in the file names of a subject's scan."""
        wanted = {"sub": label, "task": self.source["task"], "space": self.source["space"]}
        wanted |= {key: str(value) for key, value in self.source.get("entities", {}).items()}
        if self.source.get("run"):
            wanted["run"] = self.source["run"]
        if self._has_images:
            wanted |= {"desc": "preproc", "suffix": "bold"}
        else:
            wanted |= {key: str(value) for key, value in self.source["timeseries"].items()}
            wanted["suffix"] = "timeseries"
        return wanted

    def _expected(self, folder: Path, session: str | None, wanted: dict[str, str]) -> Path:
        """Where the scan would be: the name that a reason gives for a missing one."""
        named = {**wanted, "ses": session} if session else dict(wanted)
        suffix = named.pop("suffix")
        first = [key for key in ("sub", "ses", "task", "run", "space") if key in named]
        pairs = [f"{key}-{named[key]}" for key in dict.fromkeys([*first, *named])]
        place = folder / f"ses-{session}" if session else folder
        ending = _IMAGES[0] if self._has_images else ".tsv"
        return place / "func" / f"{'_'.join([*pairs, suffix])}{ending}"

    def _frames(self, path: Path) -> int:
        """Frames of a scan, 0 if it cannot be read."""
        try:
            if self._has_images:
                from brio_core.cohorts.readers.label_means import open_image

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
        except (
            OSError, ValueError, AttributeError, KeyError, TypeError, ArithmeticError,
            RecursionError,
        ):  # fmt: skip
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
            except (OSError, ValueError, TypeError, OverflowError):
                continue
            return None if math.isnan(mean) else mean
        return None

    @property
    def atlas_image(self) -> tuple[dict, str] | None:
        if not self._has_images:
            return super().atlas_image
        for key in ("labels", "image", "atlas"):
            if key in self.dataset["rois"]:
                raise BrioError(
                    f"rois.{key} of cohort {self.dataset['cohort']} is of no use, because "
                    "source.atlas names the regions of images; remove it"
                )
        return self.source["atlas"], "source.atlas"

    @cached_property
    def _extractor(self):
        from brio_core.cohorts.inclusion import Rules
        from brio_core.cohorts.readers.images import Extractor

        return Extractor(
            self.atlas,
            self.source.get("confounds"),
            self.source.get("cleaning") or {},
            Rules.of(self.dataset).min_frames,
            self.source.get("averaging") or {},
        )

    def read(self, path: Path, tr: float | None) -> Scan:
        if self._has_images:
            return self._extractor.extract(path, tr)
        return series_scan(path, self.source.get("variable"))

    @property
    def units(self) -> str:
        standardised = str((self.source.get("cleaning") or {}).get("standardize"))
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


def _entities(path: Path) -> dict[str, str]:
    """``sub-01_task-rest_run-1_bold.nii.gz`` as a mapping; the last word is the ``suffix``."""
    *pairs, last = path.name.split("_")
    found = dict(pair.split("-", 1) for pair in pairs if "-" in pair)
    return found | {"suffix": last.split(".")[0], "ending": "." + last.partition(".")[2].lower()}


def _matching(folder: Path, session: str | None, wanted: dict[str, str], endings) -> list[Path]:
    """Files of a subject's folder with these entities, in the order of sessions and runs.

    An entity that a file lacks does not match, except for ``space``: series of an atlas need not
    name one. Numbers match with and without leading zeros.
    """
    places = [folder / f"ses-{session}"] if session else [folder, *sorted(folder.glob("ses-*"))]
    found = []
    for place in places:
        if not (place / "func").is_dir():
            continue
        for path in (place / "func").iterdir():
            own = _entities(path)
            if own["ending"] in endings and all(_same(own, *pair) for pair in wanted.items()):
                found.append(path)
    return sorted(found, key=lambda path: (*_place(path), path.name))


def _same(own: dict[str, str], key: str, value: str) -> bool:
    if key == "space" and key not in own:
        return own["suffix"] == "timeseries"
    return key in own and _number(own[key]) == _number(value)


def _number(text: str) -> str:
    return text.lstrip("0") if text.isdecimal() else text


def _place(path: Path) -> tuple[str, int, str]:
    """Session and run of a file; a run may have a number or a name."""
    own = _entities(path)
    run = own.get("run", "")
    number = int(run) if run.isdecimal() else 0
    return own.get("ses", ""), number, "" if run.isdecimal() else run


def _check_unique(paths: list[Path]) -> None:
    """Raise if the files are not the runs of one session, each once."""
    sessions = sorted({_place(path)[0] for path in paths})
    if len(sessions) > 1:
        raise Unusable(f"several sessions: {', '.join(sessions)}; choose one with source.session")
    place, count = Counter(map(_place, paths)).most_common(1)[0]
    if count > 1:
        first, second, *_ = (path.name for path in paths if _place(path) == place)
        raise Unusable(
            f"ambiguous scan: {first} and {second}; tell them apart with source.entities"
        )
