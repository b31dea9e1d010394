"""One array of numbers from a binary file: .npy, .npz, .mat and .h5.

Nothing here can run code that a file brings along: pickled objects are refused, and so are HDF5
files that point to other files.
"""

import math
import zlib
from lzma import LZMAError
from pathlib import Path
from tokenize import TokenError
from zipfile import BadZipFile

import numpy as np

from brio_core.cohorts.scan import Unusable

_NUMBERS = "fiu"
# More than any series has: 10,000 regions at 10,000 frames. In double precision it is one GB.
LARGEST_SIZE = 1 << 27
_TOO_LARGE = f"it has more than {LARGEST_SIZE:,} numbers, and no series has"


def read_array(path: Path, variable: str | None = None) -> np.ndarray:
    """Frames by ROIs in double precision.

    ``variable`` names the array in a .npz, .mat or .h5 file; without it the file must hold exactly
    one two-dimensional array of numbers.
    """
    readers = {".npy": _read_numpy, ".npz": _read_numpy, ".mat": _read_mat, ".h5": _read_hdf5}
    try:
        return readers[path.suffix.lower()](path, variable).astype(np.float64)
    except (
        OSError,
        ValueError,
        LookupError,
        TypeError,
        RuntimeError,
        EOFError,
        MemoryError,
        OverflowError,
        BadZipFile,
        LZMAError,
        zlib.error,
        # NumPy reads a damaged header like Python's own text.
        SyntaxError,
        TokenError,
    ) as error:
        text = str(error) or "too large for the memory"
        raise Unusable(f"unreadable file: {path.name} ({text})") from None


def _read_numpy(path: Path, variable: str | None) -> np.ndarray:
    """Mapped into memory, so that a size which the file does not have costs nothing."""
    stored = np.load(path, mmap_mode="r", allow_pickle=False)
    if isinstance(stored, np.ndarray):
        _require_ending(path, ".npy")
        return _checked(stored)
    with stored:
        _require_ending(path, ".npz")
        if max((one.file_size for one in stored.zip.infolist()), default=0) > 8 * LARGEST_SIZE:
            raise ValueError(_TOO_LARGE)
        names = [variable] if variable in stored.files else stored.files
        return _choose({name: stored[name] for name in names}, variable)


def _require_ending(path: Path, ending: str) -> None:
    if path.suffix.lower() != ending:
        raise ValueError(f"it is a {ending} file; give it that ending")


def _read_mat(path: Path, variable: str | None) -> np.ndarray:
    """MATLAB files up to version 7; those of version 7.3 are HDF5 with the axes exchanged."""
    import h5py
    from scipy.io import loadmat, whosmat

    if h5py.is_hdf5(path):
        return _read_hdf5(path, variable).T
    try:
        for _, shape, _ in whosmat(path):
            if math.prod(shape) > LARGEST_SIZE:
                raise ValueError(_TOO_LARGE)
        content = loadmat(path, variable_names=variable)
    except Exception as error:  # scipy meets damaged files with many kinds of errors
        raise ValueError(f"damaged MATLAB file: {error}") from None
    arrays = {name: value for name, value in content.items() if not name.startswith("__")}
    return _choose(arrays, variable)


def _read_hdf5(path: Path, variable: str | None) -> np.ndarray:
    import h5py

    with h5py.File(path, "r") as store:
        arrays: dict[str, h5py.Dataset] = {}

        def collect(name: str, item: object) -> None:
            if isinstance(item, h5py.Dataset):
                arrays[name] = item

        # Visits what the file itself holds: links to other files are not followed.
        store.visititems(collect)
        chosen = _choose(arrays, variable and variable.strip("/"))
        if chosen.external or chosen.is_virtual:
            raise ValueError("its numbers lie in another file")
        return chosen[()]


def _checked(array):
    """An array, or one that is still to be read, if it is a table of numbers of possible size."""
    if array.ndim != 2 or array.dtype.kind not in _NUMBERS:
        raise ValueError(
            f"it holds a {array.ndim}-dimensional {array.dtype} array instead of numbers, frames "
            "by ROIs"
        )
    if array.size > LARGEST_SIZE:
        raise ValueError(_TOO_LARGE)
    return array


def _choose(arrays: dict, variable: str | None):
    if variable is not None:
        if variable not in arrays:
            raise ValueError(f"it holds no {variable!r}, only {', '.join(arrays) or 'nothing'}")
        return _checked(arrays[variable])
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
    return _checked(next(iter(tables.values())))
