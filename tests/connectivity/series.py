"""Made-up series with a known memory."""

import numpy as np


def autoregressive(n_frames: int, n_series: int, memory: float, seed: int = 0) -> np.ndarray:
    series = np.random.default_rng(seed).standard_normal((n_frames, n_series))
    for frame in range(1, n_frames):
        series[frame] += memory * series[frame - 1]
    return series
