"""ABIDE as released by the Preprocessed Connectomes Project: reading and downloading it.

The folder is what ``nilearn.datasets.fetch_abide_pcp`` leaves behind. Its files are read directly:
the fetcher would ask the network for each subject that is absent and fail for the whole cohort,
drops the ROI names, and hides the rows that have no scan. To download, it is asked for one scan at
a time: asked for all it would give up at the first that does not come.
"""

import sys
import time
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from brio_core.cohorts.readers.reader import Reader
from brio_core.cohorts.readers.series import series_scan
from brio_core.cohorts.scan import Scan, Unusable
from brio_core.system.errors import BrioError

_NO_FILE = "no_filename"
# After so many scans in a row that did not come, the network and not the scan is to blame.
GIVE_UP = 3
# What fetch_abide_pcp(quality_checked=True) asks of the raters.
_QUALITY = {
    "qc_rater_1": ("OK",),
    "qc_anat_rater_2": ("OK", "maybe"),
    "qc_func_rater_2": ("OK", "maybe"),
    "qc_anat_rater_3": ("OK",),
    "qc_func_rater_3": ("OK",),
}


class PcpReader(Reader):
    """Phenotype table and one .1D file per subject."""

    participants = "ABIDE_pcp/Phenotypic_V1_0b_preprocessed1.csv"

    def table(self):
        table = super().table()
        for column in ("FILE_ID", "SUB_ID"):
            if column not in table.columns:
                raise BrioError(
                    f"{self.table_path} has no column {column!r}; put the project's own table there"
                )
        without = table["FILE_ID"] == _NO_FILE
        table["has_file"] = ~without
        table.loc[without, "FILE_ID"] = table.loc[without, "SUB_ID"].str.zfill(7)
        return table

    def scan_paths(self, row: dict) -> list[Path]:
        if not row["has_file"]:
            raise Unusable(f"no scan in the release: FILE_ID is {_NO_FILE}")
        if self.source.get("quality_checked"):
            failed = [name for name, accepted in _QUALITY.items() if row[name] not in accepted]
            if failed:
                raise Unusable(f"failed quality control: {failed[0]} is {row[failed[0]]}")
        self.file_name_part(row["FILE_ID"], "FILE_ID")
        name = f"{row['FILE_ID']}_{self.source['derivative']}.1D"
        return [self.inside(self.root, f"{self._folder}/{name}", f"FILE_ID {row['FILE_ID']}")]

    @property
    def _folder(self) -> str:
        filtered = "filt" if self.source["band_pass_filtering"] else "nofilt"
        regressed = "global" if self.source["global_signal_regression"] else "noglobal"
        return f"ABIDE_pcp/{self.source['pipeline']}/{filtered}_{regressed}"

    def scan_files(self) -> Iterator[tuple[str, Path]]:
        ending = f"_{self.source['derivative']}.1D"
        for path in (self.root / self._folder).glob(f"*{ending}"):
            yield path.name.removesuffix(ending), path

    def read(self, path: Path, tr: float | None) -> Scan:
        return series_scan(path)


def download(
    reader: PcpReader, attempts: int = 5, wait: float = 2.0, url: str | None = None
) -> tuple[int, int]:
    """Fetch what is missing; returns how many scans came and how many were there already.

    Parameters
    ----------
    reader : PcpReader
    attempts : int
        How often a file is tried.
    wait : float
        Seconds before the second attempt, doubled before each further one.
    url : str, optional
        Another server with the same files.
    """
    _retried(partial(_fetch, reader, url, n_subjects=0), attempts, wait, "the phenotype table")
    came, there, failed, in_a_row = 0, 0, [], 0
    for row in reader.table().to_dict(orient="records"):
        try:
            (path,) = reader.scan_paths(row)
        except Unusable:
            continue
        if path.exists() and path.stat().st_size:
            there += 1
            continue
        path.unlink(missing_ok=True)
        try:
            fetch = partial(_fetch, reader, url, SUB_ID=int(row["SUB_ID"]))
            _retried(fetch, attempts, wait, path.name, bad_file=path)
            came, in_a_row = came + 1, 0
            print(f"{path.name} ({came + there})", file=sys.stderr, flush=True)
        except BrioError as error:
            failed.append(str(error))
            in_a_row += 1
        if in_a_row == GIVE_UP:
            break
    if failed:
        raise BrioError(
            f"{len(failed)} scan(s) of cohort {reader.dataset['cohort']} did not come ({failed[0]})"
            f"; {came + there} are in {reader.root}, and the same command fetches the others"
        )
    return came, there


def _fetch(reader: PcpReader, url: str | None, **choice) -> None:
    from nilearn.datasets import fetch_abide_pcp

    source = reader.source
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fetch_abide_pcp(
            data_dir=str(reader.root),
            pipeline=source["pipeline"],
            band_pass_filtering=source["band_pass_filtering"],
            global_signal_regression=source["global_signal_regression"],
            derivatives=[source["derivative"]],
            quality_checked=False,
            url=url,
            verbose=0,
            **choice,
        )


def _retried(fetch: Callable, attempts: int, wait: float, name: str, bad_file=None) -> None:
    for attempt in range(attempts):
        if attempt:
            time.sleep(wait * 2 ** (attempt - 1))
        try:
            return fetch()
        # ValueError: a page of an error that was stored in place of numbers.
        except (OSError, ValueError) as error:
            problem = " ".join(str(error).split())
            if bad_file is not None:
                bad_file.unlink(missing_ok=True)
    raise BrioError(f"{name} could not be downloaded in {attempts} attempts: {problem}")
