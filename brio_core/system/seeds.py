"""Seeds from keys such as (cohort, fold, seed); free of torch, which tables do not need."""

import hashlib

import numpy as np


def derive_seed(*key: object) -> int:
    """A 63-bit seed from the parts of a key."""
    text = "\x1f".join(str(part) for part in key)
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little") >> 1


def numpy_generator(*key: object) -> np.random.Generator:
    """A numpy generator of its own for this key."""
    return np.random.Generator(np.random.Philox(derive_seed(*key)))
