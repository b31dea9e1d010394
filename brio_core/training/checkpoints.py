"""Unfinished work of a run, from which the next attempt goes on."""

import hashlib
import json
import shutil
import time
from dataclasses import asdict
from pathlib import Path

import torch

from brio_core.training.problem import Problem
from brio_core.training.results import write_tensors


class Clock:
    """The time of all that train in turn; what has passed belongs to the one that asks next."""

    def __init__(self) -> None:
        self._counted = time.monotonic()

    def lap(self) -> float:
        """Seconds since somebody asked before."""
        before, self._counted = self._counted, time.monotonic()
        return self._counted - before


class Checkpoints:
    """Files beside the results of a run, which are removed when these are written.

    ``earlier`` are the seconds that earlier attempts spent on what was loaded. Runs that train in
    turn have one ``clock``.
    """

    def __init__(
        self, folder: Path, fingerprint: str, seconds: float, clock: Clock | None = None
    ) -> None:
        self.folder = folder
        self._fingerprint = fingerprint
        self._seconds = seconds
        self._clock = clock or Clock()
        # When a file was written or read, and the seconds that it holds.
        self._last: dict[Path, float] = {}
        self._spent: dict[Path, float] = {}
        self.earlier = 0.0

    def _path(self, names: list[str]) -> Path:
        key = "\n".join([self._fingerprint, *names])
        digest = hashlib.sha256(key.encode()).hexdigest()[:16]
        return self.folder / f"{digest}.pt"

    def save(self, names: list[str], content: dict, always: bool = False) -> None:
        """Write what a group of folds has reached, if enough time has passed since the last."""
        path, now = self._path(names), time.monotonic()
        if not always and now - self._last[path] < self._seconds:
            return
        self._last[path] = now
        self._spent[path] = self._spent.get(path, 0.0) + self._clock.lap()
        spent = {"fingerprint": self._fingerprint, "seconds": self._spent[path]}
        write_tensors(path, {**content, **spent})

    def load(self, names: list[str], device: torch.device) -> dict | None:
        """What an earlier attempt at the very same run has left for these folds."""
        path = self._path(names)
        self._last[path] = time.monotonic()
        try:
            content = torch.load(path, map_location=device, weights_only=True)
        except Exception:
            # Absent, truncated or of another program: training anew is always right.
            return None
        if content.get("fingerprint") != self._fingerprint:
            return None
        # What this attempt has loaded or spent before is in these seconds too.
        known = self._spent.get(path, 0.0)
        self._spent[path] = content.get("seconds", 0.0)
        self.earlier += self._spent[path] - known
        return content

    def remove(self) -> None:
        """Delete the folder of unfinished work."""
        shutil.rmtree(self.folder, ignore_errors=True)


def fingerprint(problem: Problem, inputs: dict[str, str], code: str) -> str:
    """Two attempts may continue each other only if all of this is equal.

    ``inputs`` are the checksums of the files that are trained on.
    """
    trial = problem.trial
    parts = {
        "split": problem.data.split["checksum"],
        "inputs": inputs,
        "method": trial.method.name,
        "hyperparameters": asdict(trial.hyperparameters),
        "variant": trial.variant,
        "seed": trial.seed,
        "stop": trial.stop,
        "device": problem.data.device.type,
        "torch": torch.__version__,
        "code": code,
    }
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()
