"""One array of numbers from a binary file: .npy, .npz, .mat and .h5.

Nothing here can run code that a file brings along: pickled objects are refused, and so are HDF5
files that point to other files.
"""

import zlib
from pathlib import Path
from zipfile import BadZipFile

import numpy as np

from brio_core.cohorts.scan import Unusable

_NUMBERS = "fiu"


def read_array(path: Path, variable: str | None = None) -> np.ndarray:
    """Frames by ROIs in double precision.

    ``variable`` names the array in a .npz, .mat or .h5 file; without it the file must hold exactly
    one two-dimensional array of numbers.
    """
    readers = {".npy": _read_npy, ".npz": _read_npz, ".mat": _read_mat, ".h5": _read_hdf5}
    try:
        values = readers[path.suffix.lower()](path, variable)
    except (
        OSError,
        ValueError,
        LookupError,
        TypeError,
        RuntimeError,
        EOFError,
        MemoryError,
        BadZipFile,
        zlib.error,
    ) as error:
        raise Unusable(f"unreadable file: {path.name} ({error})") from None
    if values.ndim != 2 or values.dtype.kind not in _NUMBERS:
        raise Unusable(
            f"unreadable file: {path.name} holds a {values.ndim}-dimensional {values.dtype} array "
            "instead of numbers, frames by ROIs"
        )
    return values.astype(np.float64)


def _read_npy(path: Path, variable: str | None) -> np.ndarray:
    return np.load(path, allow_pickle=False)


def _read_npz(path: Path, variable: str | None) -> np.ndarray:
    with np.load(path, allow_pickle=False) as stored:
        names = [variable] if variable in stored.files else stored.files
        return _choose({name: stored[name] for name in names}, path, variable)


def _read_mat(path: Path, variable: str | None) -> np.ndarray:
    """MATLAB files up to version 7; those of version 7.3 are HDF5 with the axes exchanged."""
    import h5py
    from scipy.io import loadmat

    if h5py.is_hdf5(path):
        return _read_hdf5(path, variable).T
    try:
        content = loadmat(path, variable_names=variable)
    except Exception as error:  # scipy meets damaged files with many kinds of errors
        raise ValueError(f"damaged MATLAB file: {error}") from None
    arrays = {name: value for name, value in content.items() if not name.startswith("__")}
    return _choose(arrays, path, variable)


def _read_hdf5(path: Path, variable: str | None) -> np.ndarray:
    import h5py

    with h5py.File(path, "r") as store:
        arrays: dict[str, h5py.Dataset] = {}

        def collect(name: str, item: object) -> None:
            if isinstance(item, h5py.Dataset):
                arrays[name] = item

        # Visits what the file itself holds: links to other files are not followed.
        store.visititems(collect)
        chosen = _choose(arrays, path, variable and variable.strip("/"))
        if chosen.external or chosen.is_virtual:
            raise ValueError("its numbers lie in another file")
        return chosen[()]


def _choose(arrays: dict, path: Path, variable: str | None):
    if variable is not None:
        if variable not in arrays:
            raise ValueError(f"it holds no {variable!r}, only {', '.join(arrays) or 'nothing'}")
        return arrays[variable]
    tables = {
        name: array
        for name, array in arrays.items()
        if array.ndim == 2 and array.dtype.kind in _NUMBERS and min(array.shape) > 1
    }
    if len(tables) != 1:
        found = ", ".join(tables) or "none"
        raise ValueError(
            f"one two-dimensional array of numbers is expected, found: {found}; "
            "name it under source.variable"
        )
    return next(iter(tables.values()))
