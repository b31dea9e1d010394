"""Within-scan re-estimation: circular block resamples of a scan and their connectivity."""

import torch
from torch import Tensor

from brio_core.connectivity.block_length import SHORTEST_BLOCK
from brio_core.connectivity.fisher_z import fisher_z, without_diagonal
from brio_core.system.randomness import fold_in, uniform_at
from brio_core.system.seeds import derive_seed

# Rounding leaves a standardised ROI that is constant within a resample a variance below this.
NEGLIGIBLE_VARIANCE = 1e-9


def subject_keys(cohort: str, subjects: list[str], seed: int) -> Tensor:
    """One random key per subject (N,); it does not know the fold, so folds share re-estimates."""
    return torch.tensor([derive_seed(cohort, subject, seed, "resampling") for subject in subjects])


def refresh_keys(
    subject_key: Tensor, block_length: int | Tensor, refresh: int | Tensor, n_resamples: int
) -> Tensor:
    """Keys (N, K) of the re-estimates of one refresh."""
    resample = torch.arange(n_resamples, device=subject_key.device)
    return fold_in(fold_in(subject_key, block_length, refresh)[..., None], resample)


def block_starts(keys: Tensor, frames: Tensor | int, n_blocks: int) -> Tensor:
    """First frames (..., n_blocks) of the blocks that each key draws."""
    uniform = uniform_at(keys[..., None], torch.arange(n_blocks, device=keys.device))
    # float32 holds 24-bit uniforms times the frame count below the frame count.
    return (uniform * frames).long()


def block_indices(n_frames: int, block_length: int, keys: Tensor) -> Tensor:
    """Frame indices (..., T) of the circular block resamples that ``keys`` (...) stand for."""
    n_blocks = -(-n_frames // block_length)
    starts = block_starts(keys, n_frames, n_blocks)
    frames = starts[..., None] + torch.arange(block_length, device=keys.device)
    return frames.flatten(-2)[..., :n_frames] % n_frames


def ragged_block_indices(
    frames: Tensor, block_length: Tensor, keys: Tensor, max_frames: int
) -> Tensor:
    """The indices of :func:`block_indices` for scans of different lengths, (N, K, T_max).

    Positions beyond a scan's own ``frames`` hold 0.
    """
    total, length = frames[:, None, None], block_length[:, None, None]
    position = torch.arange(max_frames, device=keys.device)
    uniform = uniform_at(keys[..., None], position // length)
    index = ((uniform * total).long() + position % length) % total
    return index * (position < total)


def block_multiplicities(
    frames: Tensor, block_length: Tensor, keys: Tensor, max_frames: int
) -> Tensor:
    """How often each resample holds each frame, for scans of different lengths.

    Parameters
    ----------
    frames, block_length : (N,) integer tensors
    keys : (N, K) integer tensor
    max_frames : int
        T_max, the padded length.

    Returns
    -------
    (N, K, T_max) int64
        The counts of :func:`block_indices` for the same keys; zero beyond ``frames``.
    """
    total, length = frames[:, None, None], block_length[:, None, None]
    most_blocks = -(-max_frames // SHORTEST_BLOCK)
    first = torch.arange(most_blocks, device=keys.device) * length
    # The last block is cut so that a resample has as many frames as its scan.
    size = torch.minimum(length, total - first)
    starts = block_starts(keys, total, most_blocks)
    never = 2 * max_frames + 1
    ends = (starts + size).where(size > 0, never).sort(-1).values
    starts = starts.where(size > 0, never).sort(-1).values
    # On the line unrolled to two rounds, blocks over a point = starts up to it - ends up to it.
    point = torch.arange(max_frames, device=keys.device).expand(*keys.shape, -1).contiguous()
    started = torch.searchsorted(starts, point, right=True)
    ended = torch.searchsorted(ends, point, right=True)
    ended_next_round = torch.searchsorted(ends, (point + total).contiguous(), right=True)
    n_blocks = (size > 0).sum(-1, keepdim=True)
    return (started - ended + n_blocks - ended_next_round) * (point < total)


def reestimated_connectivity(bold: Tensor, multiplicity: Tensor) -> Tensor:
    """Fisher-z connectivity of resampled scans (Eq. fc_reestimation).

    Drawing a frame twice is giving it weight two, so no resampled series is written out.

    Parameters
    ----------
    bold : (N, T_max, P)
        Standardised within each scan, zero beyond its frames.
    multiplicity : (N, K, T_max)

    Returns
    -------
    (N, K, P, P)
    """
    weight = multiplicity.to(bold.dtype)
    count = weight.sum(-1)[..., None, None].clamp_min(1)
    mean = torch.einsum("nkt,ntp->nkp", weight, bold)[..., None, :] / count
    # The square root on both sides keeps the product symmetric and correlations within one.
    deviation = (bold[:, None] - mean) * weight.sqrt()[..., None]
    covariance = deviation.mT @ deviation / count
    variance = covariance.diagonal(dim1=-2, dim2=-1)
    varying = variance > NEGLIGIBLE_VARIANCE
    scale = variance.clamp_min(NEGLIGIBLE_VARIANCE).rsqrt() * varying
    correlation = covariance * scale[..., :, None] * scale[..., None, :]
    return without_diagonal(fisher_z(correlation))
