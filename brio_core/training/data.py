"""What is trained on: a cohort, its folds and labels, and the device that holds them."""

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

import numpy as np
import torch

from brio_core.cohorts.cohort import Cohort
from brio_core.cohorts.splits import read_split
from brio_core.cohorts.stores import Series, input_checksums
from brio_core.connectivity.fisher_z import standardise
from brio_core.connectivity.reestimation import subject_keys
from brio_core.methods.training_scans import Scans
from brio_core.system.errors import BrioError
from brio_core.system.files import read_json
from brio_core.system.residence import Table, half_of_free_memory, place_on_device
from brio_core.system.rows import Rows
from brio_core.system.threads import spread

# What a method may need of a subject that is too large to be held more than once.
SCANS = ("fc", "bold")


@dataclass(frozen=True)
class Fold:
    """Rows of one fold in the cohort."""

    name: str
    train: np.ndarray
    test: np.ndarray
    validation: np.ndarray
    validation_groups: tuple[np.ndarray, ...]
    block_length: float
    sources: np.ndarray
    """Who trains where validation subjects may train too."""

    def on_sources(self, parts: Iterable[np.ndarray]) -> "Fold":
        """The same fold with all source subjects in training; validation leaves parts out in turn.

        ``parts`` are sites, or parts of all sites.
        """
        groups = (np.intersect1d(part, self.sources) for part in parts)
        groups = tuple(group for group in groups if len(group))
        return replace(self, train=self.sources, validation_groups=groups)


def folds_of(split: dict, block_length: Callable[[dict], float]) -> list[Fold]:
    """The folds of a split; ``block_length`` gives the estimate of each as the split has it."""
    folds = []
    for fold in split["folds"]:
        rows = [np.asarray(fold[part], np.int64) for part in ("train", "test", "validation")]
        groups = tuple(np.asarray(group, np.int64) for group in fold["validation_groups"])
        sources = np.asarray(fold.get("sources", np.union1d(rows[0], rows[2])), np.int64)
        folds.append(Fold(fold["name"], *rows, groups, block_length(fold), sources))
    return folds


def padded_scans(series: Series, device: torch.device) -> Rows:
    """Scans (N, T_max, P), standardised and padded with zeros when they are asked for.

    A GPU standardises many at once, a CPU one on each thread.
    """
    shape = (len(series), int(series.frames.max()), len(series.rois))

    def read(rows: Sequence[int] | np.ndarray) -> np.ndarray:
        # Frames that are not numbers are left out by the standardisation and become zeros.
        padded = np.full((len(rows), *shape[1:]), np.nan if device.type == "cuda" else 0, "f4")

        def fill(place: int) -> None:
            scan = series.scan(rows[place])
            if device.type == "cpu":
                scan = standardise(torch.as_tensor(scan).double()).numpy()
            padded[place, : len(scan)] = scan

        spread(fill, range(len(rows)), torch.device("cpu"))
        if device.type == "cpu":
            return padded
        return standardise(torch.as_tensor(padded, device=device).double()).float().cpu().numpy()

    return Rows(read, shape)


@dataclass(eq=False)
class TrainingData:
    """A cohort and its folds on a device; every scan is there once, whatever is tried on it.

    ``budget`` are bytes on the device for a table, by default half of what is free, and
    ``memory_mb`` is what the process may have of the host in all.
    """

    cohort: Cohort
    split: dict
    folds: Sequence[Fold]
    device: torch.device
    budget: int | None = None
    memory_mb: int | None = None
    _tables: dict[str, Table] = field(default_factory=dict)

    @cached_property
    def label(self) -> np.ndarray:
        """Classes of the subjects, which a split may have permuted."""
        return np.asarray(self.split["label"], np.int64)

    def on_sources(self) -> "TrainingData":
        """The same scans, with the same tables, and folds whose source subjects all train."""
        return replace(self, folds=[fold.on_sources(self.parts.values()) for fold in self.folds])

    @property
    def parts(self) -> dict[str, np.ndarray]:
        """Subjects that may be left out together: sites, or the parts that ``id`` tests.

        A split of one fold has all sites, too.
        """
        if self.split.get("protocol") == "id":
            return {fold["name"]: np.asarray(fold["test"]) for fold in self.split["folds"]}
        site = self.cohort.site
        return {str(one): np.flatnonzero(site == one) for one in np.unique(site)}

    @property
    def memory_budget(self) -> int:
        """Bytes that scans, or features cached from them, may take on the device."""
        if self.budget is None:
            limit = None if self.memory_mb is None else self.memory_mb * 10**6
            return half_of_free_memory(self.device, limit)
        return self.budget

    @property
    def n_rois(self) -> int:
        """Number of regions of the parcellation."""
        return self.cohort.fc.shape[-1]

    def n_sites(self, fold: Fold) -> int:
        """Number of training sites of a fold."""
        return len(np.unique(self.cohort.site[fold.train]))

    def site_numbers(self, fold: Fold) -> np.ndarray:
        """Sites of a fold's training subjects, counted from 0 in alphabetical order."""
        return np.unique(self.cohort.site[fold.train], return_inverse=True)[1]

    def table(self, name: str, kept: bool = True) -> Table:
        """One row per subject of what methods may need: see :class:`Method`.

        Scans are ``kept`` on the device if they fit. Otherwise they stay where they are.
        """
        if name not in self._tables:
            self._tables[name] = self._make_table(name, kept)
            if self.device.type == "cuda":
                # Runs that train in turn read it on streams of their own.
                torch.cuda.synchronize()
        return self._tables[name]

    def _make_table(self, name: str, kept: bool) -> Table:
        cohort = self.cohort
        if name in SCANS:
            scans = cohort.fc if name == "fc" else padded_scans(cohort.series, self.device)
            return place_on_device(scans, self.device, self.memory_budget if kept else 0)
        small = {
            "frames": cohort.series.frames,
            "covariates": cohort.covariates,
            "row": np.arange(len(cohort.subjects)),
            "site_number": np.unique(cohort.site, return_inverse=True)[1],
        }
        return torch.as_tensor(small[name], device=self.device)

    def scans(self, seed: int, kept: bool = True) -> Scans:
        """Series that can be re-estimated, with the resampling of a seed."""
        keys = subject_keys(self.cohort.name, list(self.cohort.subjects), seed).to(self.device)
        return Scans(lambda: self.table("bold", kept), self.table("frames"), keys)

    def training_rows(self, folds: Sequence[Fold]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Rows, sites and labels (F, W) of training subjects; shorter folds end with site -1."""
        # Equal for all folds of the split file, whichever of them are here.
        width = max(len(fold.train) for fold in self.folds)
        rows = np.zeros((len(folds), width), np.int64)
        site = np.full((len(folds), width), -1)
        for index, fold in enumerate(folds):
            count = len(fold.train)
            rows[index, :count] = fold.train
            site[index, :count] = self.site_numbers(fold)
        return rows, site, self.label[rows]


@dataclass(frozen=True)
class RunFiles:
    """The files that a run is trained on; those of the cohort may have been read before."""

    cohort_dir: Path
    split: Path
    block_length: Path
    cohort: Future[Cohort] | None = None

    def read(self, device: torch.device, memory_mb: int | None = None) -> TrainingData:
        """What the files hold, checked against each other; scans are read when needed."""
        cohort = self.cohort.result() if self.cohort else Cohort.load(self.cohort_dir)
        split = read_split(self.split)
        if tuple(split["subjects"]) != cohort.subjects:
            raise BrioError(
                f"the split file of cohort {split['cohort']!r} lists other subjects than its "
                "participants.tsv; run the workflow again so that both belong together"
            )
        block_length = read_json(self.block_length, "split_checksum", "folds")
        if block_length["split_checksum"] != split["checksum"]:
            raise BrioError(
                "the block-length file belongs to another split file; run the workflow again"
            )
        estimates = {fold["name"]: fold["estimate"] for fold in block_length["folds"]}
        folds = folds_of(split, lambda fold: estimates[fold["name"]])
        return TrainingData(cohort, split, folds, device, memory_mb=memory_mb)

    def checksums(self) -> dict[str, str]:
        """What results keep, so that stale ones are noticed; a split has its own checksum."""
        return input_checksums(self.cohort_dir, self.block_length)
