"""Rows of subjects that are read from a file, or made of other rows, when they are asked for.

A cohort may be larger than memory, so nothing here holds more than what was asked for last.
"""

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np


class Rows:
    """It looks like an array as far as rows go; ``rows[:]`` is all of them at once.

    Parameters
    ----------
    read : callable
        Gives the rows that it is asked for: a number, a slice or many numbers.
    shape, dtype
        Those of all rows together.
    """

    def __init__(
        self, read: Callable[[Any], Any], shape: tuple[int, ...], dtype: Any = np.float32
    ) -> None:
        self._read = read
        self.shape = shape
        self.dtype = np.dtype(dtype)
        self.nbytes = math.prod(shape) * self.dtype.itemsize

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: Any) -> Any:
        return self._read(rows)

    def __iter__(self) -> Iterator[Any]:
        return (self[row] for row in range(len(self)))

    def __array__(self, dtype: np.dtype | None = None, copy: bool | None = None) -> np.ndarray:
        return self[:] if dtype is None else self[:].astype(dtype, copy=False)
