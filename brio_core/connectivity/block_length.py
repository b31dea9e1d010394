"""How long the blocks of a fold's resamples are, estimated from its training scans."""

import numpy as np
import torch
from torch import Tensor

from brio_core.connectivity.fisher_z import standardise
from brio_core.system.randomness import torch_generator

SHORTEST_BLOCK = 2
LONGEST_BLOCK = 30


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
    group = torch.stack([site, label], 1).unique(dim=0, return_inverse=True)[1]
    order = torch.randperm(len(group), generator=generator)
    # How many of its site and class come before a subject.
    groups, by_group = group[order].sort(stable=True)
    count = torch.bincount(groups)
    rank = torch.empty_like(order)
    rank[by_group] = torch.arange(len(group)) - (count.cumsum(0) - count)[groups]
    # One more per site and class and round, as long as a whole round fits.
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


def fold_block_length(fold: dict, split: dict, series, **options) -> float:
    """The block length of a fold of a split, from what its training subjects have in ``series``.

    ``options`` are those of :func:`estimate_block_length`.
    """
    train = np.asarray(fold["train"])
    return estimate_block_length(
        series.scans(train),
        np.unique(split["site"], return_inverse=True)[1][train],
        np.asarray(split["label"])[train],
        **options,
        generator=torch_generator(split["cohort"], fold["name"], "block-length"),
    )


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
