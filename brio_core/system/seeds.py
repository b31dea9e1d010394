"""Seeds from words; free of torch, so that tables and figures can be made without it."""

import hashlib

import numpy as np


def derive_seed(*words: object) -> int:
    """A 63-bit seed from a sequence of words."""
    text = "\x1f".join(str(word) for word in words)
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little") >> 1


def numpy_generator(*words: object) -> np.random.Generator:
    """A numpy generator of its own for these words."""
    return np.random.Generator(np.random.Philox(derive_seed(*words)))
