"""Results that Snakemake has no record of are compared with what they say of themselves.

Its records are in .snakemake, which copied results may leave behind. Without them it would take
every file that is there for what the configuration asks for.
"""

import json
import os
import sys
from collections.abc import Iterator

from snakemake.io import IOFile

from brio_core.system.versions import program_version, value_version
from workflow.planning.configuration import Configuration
from workflow.planning.paths import Paths, Run, ring_of
from workflow.planning.sources import content, described

# Of more sentences than these the rest is left out.
MOST = 5


class Unrecorded:
    """Files without a record, and what was said about them."""

    def __init__(self, workflow, configuration: Configuration) -> None:
        self._workflow = workflow
        self._configuration = configuration
        self._paths: Paths = configuration.paths
        self._seen: set[str] = set()
        self._said = 0

    def make_again(self, *files: str) -> None:
        """Tables, pages and other things that are quickly made are made again."""
        self._workflow.dag.forcefiles.update(filter(self._new, files))

    def lost(self, folder: str, *names: str) -> None:
        """A run that has lost a file is made again; other rules wait for its meta.json only."""
        meta = f"{folder}/meta.json"
        if os.path.exists(meta) and not all(os.path.exists(f"{folder}/{name}") for name in names):
            self._workflow.dag.forcefiles.add(meta)

    def cohort(self, wildcards) -> None:
        """A cohort is read again if its dataset file differs."""
        cohort, paths = wildcards.cohort, self._paths
        if self._new(file := paths.cohort(cohort, "candidates.tsv")):
            wanted = value_version(described(self._configuration.datasets[cohort]))
            self._compare(file, paths.cohort(cohort, "checksums.json"), {"dataset": wanted})

    def split(self, wildcards) -> None:
        """Folds must be of the configuration's seed."""
        if self._new(file := self._paths.split(wildcards.cohort, wildcards.protocol)):
            seeds = self._configuration.config["split_seeds"]
            self._compare(file, file, {"split_seed": seeds[ring_of(wildcards.protocol)]})

    def blocklength(self, wildcards) -> None:
        """Block lengths must be of these folds and keys of the configuration."""
        place = wildcards.cohort, wildcards.protocol
        if self._new(file := self._paths.block_length(*place)):
            wanted = {"settings": self._configuration.config["block_length"]}
            self._compare(file, file, wanted | self._checksum(*place))

    def train(self, run: Run) -> bool:
        """Whether a run has other hyperparameters, folds or data than are asked for."""
        folder, place = self._paths.run(run), (run.cohort, run.protocol, run.ring)
        if not self._new(file := f"{folder}/meta.json"):
            return False
        params = self._configuration.train_params(run.variant)
        wanted = {key: params[key] for key in ("method", "hyperparameters", "search")}
        data = _read(self._paths.cohort(run.cohort, "checksums.json"))
        data = {key: data[key] for key in ("participants.tsv", "series.h5") if key in data}
        lengths = content(self._paths.block_length(*place))
        wanted["inputs"] = data | ({"block_length": lengths} if lengths else {})
        if self._compare(file, file, wanted | self._checksum(*place)):
            return True
        code = _read(file).get("code")
        if code and code != program_version("train", [params["method"]]):
            self._say(
                f"{folder} was trained by another version of the code, and Snakemake has no record "
                "of it; it is kept, delete this folder to train it again"
            )
        return False

    def diagnose(self, run: Run) -> bool:
        """Whether diagnostics are of another run or other keys of the configuration."""
        if not self._new(folder := self._paths.diagnostics(run)):
            return False
        params = self._configuration.train_params(run.variant)
        wanted = {"diagnostics": self._configuration.config["diagnostics"]}
        wanted |= {"hyperparameters": params["hyperparameters"]}
        wanted |= self._checksum(run.cohort, run.protocol, run.ring)
        return self._compare(folder, f"{folder}/meta.json", wanted)

    def _new(self, file: str) -> bool:
        """Whether a file is there without a record, and was not looked at before."""
        if not self._workflow.is_main_process or file in self._seen or not os.path.exists(file):
            return False
        if self._workflow.persistence.metadata(IOFile(file)) is not None:
            return False
        self._seen.add(file)
        return True

    def _compare(self, file: str, stated: str, wanted: dict) -> bool:
        """Have ``file`` made again if ``stated``, the JSON that tells how, tells something else."""
        found = _read(stated)
        accepted = found.get("accepted", {})
        wanted = {key: wanted[key] for key in wanted if wanted[key] != accepted.get(key)}
        different = sorted(_differences(found, wanted))
        if different:
            self._workflow.dag.forcefiles.add(file)
            self._say(f"{stated} states another {different[0]!r}; what it is about is made again")
        return bool(different)

    def _say(self, sentence: str) -> None:
        self._said += 1
        if self._said <= MOST:
            print(f"warning: {sentence}", file=sys.stderr)
        elif self._said == MOST + 1:
            print("warning: there are more such results", file=sys.stderr)

    def _checksum(self, *place: str | int) -> dict:
        checksum = _read(self._paths.split(*place)).get("checksum")
        return {"split_checksum": checksum} if checksum else {}


def _differences(found: dict, wanted: dict) -> Iterator[str]:
    """Keys of ``wanted`` that ``found`` has too, with another value; of mappings the inner ones."""
    for key in wanted.keys() & found.keys():
        old, new = found[key], wanted[key]
        if key == "inputs" and isinstance(old, dict):
            old = {name: old.get(name) for name in new}
        if old == new:
            continue
        both = isinstance(old, dict) and isinstance(new, dict)
        yield min(one for one in old | new if old.get(one) != new.get(one)) if both else key


def _read(path: str) -> dict:
    """A JSON file of ours; one that is damaged is left to the program that reads it."""
    try:
        with open(path, encoding="utf-8") as stream:
            value = json.load(stream)
    except (OSError, ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}
