"""Diagnostics of cells that are done, kept until all are: a killed job goes on from there."""

import hashlib
import json
import shutil
from pathlib import Path

from brio_core.errors import BrioError
from brio_core.files import read_json, write_json


class FinishedCells:
    """One file per cell, in a hidden folder beside the results.

    Parameters
    ----------
    out_dir : Path
        Where the results will be.
    made_of : dict
        What they depend on besides the cells; other files are ignored.
    """

    def __init__(self, out_dir: Path, made_of: dict) -> None:
        self.folder = out_dir.with_name(f".{out_dir.name}.unfinished")
        self._made_of = json.dumps(made_of, sort_keys=True)

    def _path(self, meta: dict) -> Path:
        words = self._made_of + json.dumps(meta, sort_keys=True)
        digest = hashlib.sha256(words.encode()).hexdigest()[:16]
        return self.folder / f"{meta['variant']}-{meta['seed']}-{digest}.json"

    def read(self, meta: dict) -> dict | None:
        """The tables of a cell, if the very same one has been diagnosed before."""
        try:
            return read_json(self._path(meta), "tables")["tables"]
        except BrioError:
            # Absent or broken: making it anew is always right.
            return None

    def write(self, meta: dict, tables: dict) -> None:
        """Keep the tables of a cell; numbers come back to the last bit."""
        write_json(self._path(meta), {"tables": tables})

    def remove(self) -> None:
        """Delete the folder, once the results are complete."""
        shutil.rmtree(self.folder, ignore_errors=True)
