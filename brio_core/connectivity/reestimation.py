"""Within-scan re-estimation: block length, circular block bootstrap, re-estimated FC."""

import numpy as np
import torch
from torch import Tensor

from brio_core.connectivity.fisher_z import fisher_z, standardise, without_diagonal
from brio_core.system.randomness import derive_seed, fold_in, uniform_at

SHORTEST_BLOCK = 2
LONGEST_BLOCK = 30
# Rounding leaves a standardised ROI that is constant within a resample a variance below this.
NEGLIGIBLE_VARIANCE = 1e-9


def autocorrelation_horizon(series, threshold: float = 0.10, max_lag: int = 30):
    """The lag from which a series has forgotten itself.

    The smallest lag at which the absolute autocorrelation is below ``threshold`` there and at the
    next lag, among lags up to min(``max_lag``, T // 2); the longest of these if there is none.

    Parameters
    ----------
    series : (T,) or (T, S) tensor or array

    Returns
    -------
    () or (S,) integers of the same kind
    """
    if not isinstance(series, Tensor):
        horizon = autocorrelation_horizon(torch.as_tensor(series), threshold, max_lag)
        return horizon.numpy() if horizon.ndim else int(horizon)
    n_frames = len(series)
    longest = max(1, min(max_lag, n_frames // 2))
    centred = (series - series.mean(0)).double()
    # Padding to twice the length keeps the two ends of the scan from meeting.
    power = torch.fft.rfft(centred, n=2 * n_frames, dim=0).abs().square()
    covariance = torch.fft.irfft(power, n=2 * n_frames, dim=0)[: longest + 1]
    below = covariance[1:].abs() < threshold * covariance[0]
    stays = below[:-1] & below[1:]
    # A last row that always holds makes argmax fall back to the longest lag.
    last = torch.ones_like(below[:1])
    return torch.cat([stays, last]).int().argmax(0) + 1


def balanced_subset(
    site: Tensor, label: Tensor, at_most: int, generator: torch.Generator
) -> Tensor:
    """Indices of a random subset with as equal numbers per site and class as they allow."""
    cell = torch.stack([site, label], 1).unique(dim=0, return_inverse=True)[1]
    order = torch.randperm(len(cell), generator=generator)
    # How many of its cell come before a subject.
    cells, by_cell = cell[order].sort(stable=True)
    count = torch.bincount(cells)
    rank = torch.empty_like(order)
    rank[by_cell] = torch.arange(len(cell)) - (count.cumsum(0) - count)[cells]
    # One more per cell and round, as long as a whole round fits.
    fitting = int((torch.bincount(rank).cumsum(0) <= at_most).sum())
    chosen = order[rank < max(1, fitting)][:at_most]
    return chosen.sort().values


def _subject_horizon(scan, threshold, max_lag, rois, products, quantile, generator) -> float:
    scan = torch.as_tensor(scan).double()
    series = standardise(scan[scan.isfinite().all(1)])
    series = series[:, series.any(0)]
    n_rois = series.shape[1]
    if n_rois == 0:
        return float("nan")
    signals = series[:, torch.randperm(n_rois, generator=generator)[:rois]]
    first, second = torch.triu_indices(n_rois, n_rois, 1)
    pair = torch.randperm(len(first), generator=generator)[:products]
    series = torch.cat([signals, series[:, first[pair]] * series[:, second[pair]]], 1)
    horizons = autocorrelation_horizon(series, threshold, max_lag)
    return float(torch.quantile(horizons.double(), quantile))


def estimate_block_length(
    scans,
    site,
    label,
    *,
    threshold: float = 0.10,
    max_lag: int = 30,
    subjects: int = 128,
    rois: int = 24,
    products: int = 48,
    quantile: float = 0.75,
    generator: torch.Generator,
) -> float:
    """The block length l_b of a fold, from its training scans alone.

    A quantile of the horizons of ROI signals and ROI products within each subject of a site- and
    class-balanced subset, then the median over a site's subjects, then the median over sites.

    Parameters
    ----------
    scans : sequence of (T_i, P) arrays or tensors
    site, label : (N,) integers
    generator : torch.Generator
        Draws the subset, the ROIs and the products.
    """
    site, label = torch.as_tensor(site), torch.as_tensor(label)
    chosen = balanced_subset(site, label, subjects, generator)
    arguments = (threshold, max_lag, rois, products, quantile, generator)
    horizon = np.array([_subject_horizon(scans[index], *arguments) for index in chosen.tolist()])
    chosen_site = site[chosen].numpy()
    per_site = [np.nanmedian(horizon[chosen_site == one]) for one in np.unique(chosen_site)]
    return float(np.nanmedian(per_site))


def round_half_up(value):
    """Round a number or a tensor to integers, halves upwards."""
    if isinstance(value, Tensor):
        return torch.floor(value + 0.5).long()
    return int(np.floor(value + 0.5))


def clipped_block_length(estimate, n_frames):
    """The block length of one scan (Eq. app_block_length_range); numbers or tensors."""
    rounded = round_half_up(estimate)
    if not isinstance(rounded, Tensor) and not isinstance(n_frames, Tensor):
        longest = max(1, min(LONGEST_BLOCK, int(n_frames) // 2))
        return min(max(rounded, SHORTEST_BLOCK), longest)
    frames = torch.as_tensor(n_frames)
    rounded = torch.as_tensor(rounded, device=frames.device)
    longest = (frames // 2).clamp(1, LONGEST_BLOCK)
    return torch.minimum(rounded.clamp_min(SHORTEST_BLOCK), longest)


def subject_keys(cohort: str, subjects: list[str], seed: int) -> Tensor:
    """One random key per subject (N,), the part of :func:`resampling_keys` that hashes words."""
    return torch.tensor([derive_seed(cohort, subject, seed, "resampling") for subject in subjects])


def refresh_keys(
    subject_key: Tensor, block_length: int | Tensor, refresh: int | Tensor, n_resamples: int
) -> Tensor:
    """Keys (N, K) of the re-estimates of one refresh."""
    resample = torch.arange(n_resamples, device=subject_key.device)
    return fold_in(fold_in(subject_key, block_length, refresh)[..., None], resample)


def resampling_keys(
    cohort: str,
    subjects: list[str],
    seed: int,
    block_length: int | Tensor,
    refresh: int,
    n_resamples: int,
) -> Tensor:
    """Keys (N, K) of all re-estimates; they do not know the fold, so folds can share them."""
    return refresh_keys(subject_keys(cohort, subjects, seed), block_length, refresh, n_resamples)


def block_starts(keys: Tensor, frames: Tensor | int, n_blocks: int) -> Tensor:
    """First frames (..., n_blocks) of the blocks that each key draws."""
    uniform = uniform_at(keys[..., None], torch.arange(n_blocks, device=keys.device))
    # float32 holds 24-bit uniforms times the frame count below the frame count.
    return (uniform * frames).long()


def block_indices(n_frames: int, block_length: int, keys: Tensor) -> Tensor:
    """Frame indices (..., T) of the resamples that ``keys`` (...) stand for."""
    n_blocks = -(-n_frames // block_length)
    starts = block_starts(keys, n_frames, n_blocks)
    frames = starts[..., None] + torch.arange(block_length, device=keys.device)
    return frames.flatten(-2)[..., :n_frames] % n_frames


def circular_block_indices(
    n_frames: int, block_length: int, n_resamples: int, generator: torch.Generator
) -> Tensor:
    """Frame indices (K, T) of circular moving-block resamples, shared by all ROIs."""
    device = generator.device
    key = torch.randint(2**62, (), generator=generator, device=device)
    return block_indices(n_frames, block_length, fold_in(key, torch.arange(n_resamples).to(device)))


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
    starts, ends = starts.where(size > 0, never), (starts + size).where(size > 0, never)
    # On the line unrolled to two rounds, blocks over a point = starts up to it - ends up to it.
    point = torch.arange(max_frames, device=keys.device).expand(*keys.shape, -1).contiguous()
    started = _count_up_to(starts, point)
    ended, ended_next_round = _count_up_to(ends, point, (point + total).contiguous())
    n_blocks = (size > 0).sum(-1, keepdim=True)
    return (started - ended + n_blocks - ended_next_round) * (point < total)


def _count_up_to(values: Tensor, *points: Tensor):
    ordered = values.sort(-1).values
    counts = [torch.searchsorted(ordered, point, right=True) for point in points]
    return counts[0] if len(counts) == 1 else counts


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
