"""Download ABIDE from the Preprocessed Connectomes Project, one scan at a time.

nilearn's fetcher does the work; asked for the whole cohort it would give up at the first scan that
does not come. Here a scan is tried several times, what is there already is kept, and the next call
goes on where this one ended.
"""

import sys
import time
import warnings
from collections.abc import Callable
from functools import partial

from brio_core.cohorts.readers.pcp import PcpReader
from brio_core.cohorts.scan import Unusable
from brio_core.system.errors import BrioError

# After so many scans in a row that did not come, the network and not the scan is to blame.
GIVE_UP = 3


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
