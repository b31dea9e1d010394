"""Connectivity in sliding windows, and what describes its course in a few numbers."""

import torch
from torch import Tensor

N_DESCRIPTORS = 7
LARGEST_CORRELATION = 0.999
# Variance of standardised series that is nothing but rounding.
NEGLIGIBLE_VARIANCE = 1e-9
# Scans shorter than two windows have windows of half their length, and at most so many.
MOST_OF_A_SHORT_SCAN = 9


def window_members(frames: Tensor, n_frames: int, length: int) -> Tensor:
    """Which of the first ``n_frames`` frames are in which window of a scan, bool (B, V, T).

    Windows of ``length`` frames, or half the scan if that is shorter, move by a quarter of their
    length. Scans with fewer windows than others have empty ones at the end.
    """
    width = (frames // 2).clamp(min=2, max=length)
    stride = (width // 4).clamp_min(1)
    count = (frames - width) // stride + 1
    most = max(MOST_OF_A_SHORT_SCAN, (n_frames - length) // max(1, length // 4) + 1)
    window = torch.arange(most, device=frames.device)
    start = window * stride[:, None]
    time = torch.arange(n_frames, device=frames.device)
    inside = (time >= start[..., None]) & (time < (start + width[:, None])[..., None])
    return inside & (window < count[:, None])[..., None]


def window_connectivity(bold: Tensor, members: Tensor, first: Tensor, second: Tensor) -> Tensor:
    """Fisher z of K pairs of ROIs in every window, (B, V, K); zero in empty windows.

    ``bold`` (B, T, P) is standardised over the scan; pair k is of ROIs ``first[k]``, ``second[k]``.
    """
    # In float64: differences of sums lose digits.
    weights = members.double() / members.sum(-1, keepdim=True).clamp_min(1)
    series = bold.double()
    mean = weights @ series
    variance = weights @ series.square() - mean.square()
    product = weights @ (bold[..., first] * bold[..., second]).double()
    covariance = product - mean[..., first] * mean[..., second]
    scale = variance[..., first] * variance[..., second]
    varies = scale > NEGLIGIBLE_VARIANCE**2
    correlation = (covariance / scale.where(varies, 1).sqrt()).where(varies, 0)
    return correlation.clamp(-LARGEST_CORRELATION, LARGEST_CORRELATION).atanh().to(bold.dtype)


def describe_course(course: Tensor, present: Tensor) -> Tensor:
    """Seven numbers of every course (B, V, K) over its ``present`` windows (B, V): (B, K, 7).

    Mean, standard deviation, lag-1 autocorrelation (0 if nothing varies or there are fewer than
    three windows), mean absolute step, 10 % and 90 % quantile, and the share of windows whose sign
    is not the mean's.
    """
    count = present.sum(1)[:, None]
    here = present[..., None].to(course.dtype)
    mean = (course * here).sum(1) / count
    away = (course - mean[:, None]) * here
    power = away.square().sum(1)
    varies = (power > 1e-12) & (count >= 3)
    lagged = (away[:, 1:] * away[:, :-1]).sum(1)
    steps = ((course[:, 1:] - course[:, :-1]).abs() * here[:, 1:]).sum(1)
    ordered = course.where(present[..., None], torch.inf).sort(1).values
    return torch.stack(
        [
            mean,
            (power / count).sqrt(),
            (lagged / power.where(varies, 1)).where(varies, 0),
            steps / (count - 1).clamp_min(1),
            _quantile(ordered, count, 0.1),
            _quantile(ordered, count, 0.9),
            ((course * mean[:, None] < 0) * here).sum(1) / count,
        ],
        -1,
    )


def _quantile(ordered: Tensor, count: Tensor, share: float) -> Tensor:
    """The quantile of the first ``count`` (B, 1) of ordered values (B, V, K), interpolated."""
    place = share * (count - 1)
    lower = place.floor().long()
    upper = torch.minimum(lower + 1, count - 1)
    below, above = (
        ordered.gather(1, index[..., None].expand(-1, 1, ordered.shape[-1])).squeeze(1)
        for index in (lower, upper)
    )
    return below + (place - lower) * (above - below)
