"""A scan cut short: the same models on the connectivity of fewer frames."""

import torch
from torch import Tensor

from brio_core.connectivity.block_length import round_half_up
from brio_core.connectivity.fisher_z import standardise
from brio_core.connectivity.reestimation import reestimated_connectivity

POSITIONS = ("beginning", "middle", "end")


def window(frames: Tensor, fraction: float, position: str) -> tuple[Tensor, Tensor]:
    """First frame and number of frames of a window of every scan."""
    count = round_half_up(fraction * frames.double()).clamp_min(2)
    room = frames - count
    first = {"beginning": 0 * room, "middle": room // 2, "end": room}
    return first[position], count


def shortened(
    inputs: dict[str, Tensor], bold: Tensor, frames: Tensor, fraction: float, position: str
) -> dict[str, Tensor]:
    """The inputs of some subjects as if only a window of their scans had been acquired.

    Parameters
    ----------
    inputs : mapping
        What a method takes; ``fc``, ``bold`` and ``frames`` are replaced, the rest stays.
    bold : (N, T_max, P)
        Standardised within each scan, zero beyond its frames.
    frames : (N,)
    """
    first, count = window(frames, fraction, position)
    at = torch.arange(bold.shape[1], device=bold.device)
    made = dict(inputs)
    if "fc" in inputs:
        inside = (at >= first[:, None]) & (at < (first + count)[:, None])
        made["fc"] = reestimated_connectivity(bold, inside[:, None])[:, 0]
    if "bold" in inputs:
        # The window moves to the front; non-finite frames come back as zeros.
        index = (first[:, None] + at).clamp_max(bold.shape[1] - 1)
        moved = bold.gather(1, index[..., None].expand_as(bold))
        made["bold"] = standardise(moved.where((at < count[:, None])[..., None], torch.nan))
    if "frames" in inputs:
        made["frames"] = count
    return made
