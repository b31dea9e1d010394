"""Mirrored windows of scans, standardised region by region: one read and one write."""

import triton
import triton.language as tl
from torch import Tensor

from brio_core.kernels.functions import Constant, power_of_2

# Numbers of a tile, and its regions at most: what is read at once of a frame.
TILE, REGIONS = 8192, 32


@triton.jit
def _windows(
    series, frames, start, lengths, out, scans, n_frames, n_rois, width,
    COLUMNS: tl.constexpr, REGIONS: tl.constexpr,
):  # fmt: skip
    scan = tl.program_id(0).to(tl.int64)
    fold = scan // scans
    region = tl.program_id(1) * REGIONS + tl.arange(0, REGIONS)
    column = tl.arange(0, COLUMNS)
    length = tl.load(lengths + fold).to(tl.int32)
    period = tl.maximum(2 * tl.load(frames + scan).to(tl.int32) - 2, 1)
    place = (tl.load(start + scan).to(tl.int32) + column) % period
    frame = tl.minimum(place, period - place)
    inside = (column < length)[:, None] & (region < n_rois)[None, :]
    offset = frame[:, None] * n_rois + region[None, :]
    value = tl.load(series + scan * n_frames * n_rois + offset, mask=inside, other=0.0)
    centred = tl.where(inside, value - (tl.sum(value, 0) / length)[None, :], 0.0)
    inverse = 1 / tl.sqrt(tl.sum(centred * centred, 0) / length + 1e-5)
    target = (fold * n_rois + region) * scans + scan % scans
    stored = (column < width)[:, None] & (region < n_rois)[None, :]
    target = target[None, :] * width + column[:, None]
    tl.store(out + target, centred * inverse[None, :], mask=stored)


class Windows(Constant):
    """Series (*F, B, T, P), ``frames`` and ``start`` (*F, B), lengths (*F) to (*F, P, B, width)."""

    @staticmethod
    def run(series: Tensor, frames: Tensor, start: Tensor, lengths: Tensor, width: int) -> Tensor:
        *folds, scans, n_frames, n_rois = series.shape
        out = series.new_empty(*folds, n_rois, scans, width)
        columns = power_of_2(width)
        regions = min(REGIONS, max(1, TILE // columns))
        _windows[(frames.numel(), triton.cdiv(n_rois, regions))](
            series, frames, start, lengths, out, scans, n_frames, n_rois, width,
            COLUMNS=columns, REGIONS=regions,
        )  # fmt: skip
        return out
