"""What environments (here: sites) have in common within a batch.

``members`` (B, E) holds a one where a row belongs to a site. Rows of no site count nowhere, and
sites without rows are left out of every mean, so any sampler will do.
"""

import torch
from torch import Tensor
from torch.nn import functional


def membership(site: Tensor, n_sites: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """Which row (B,) belongs to which site, as ones and zeros (B, E)."""
    return (site[:, None] == torch.arange(n_sites, device=site.device)).to(dtype)


def site_means(values: Tensor, members: Tensor) -> Tensor:
    """Mean of (B,) or (B, d) at every site, (E,) or (E, d); zero at a site without rows."""
    # Sums, not a matrix product, which a GPU may round to ten bits.
    weights = members if values.ndim == 1 else members[..., None]
    counts = weights.sum(0).clamp_min(1)
    return (weights * values.unsqueeze(1)).sum(0) / counts


def mean_over(values: Tensor, usable: Tensor) -> Tensor:
    """Mean of ``values`` (E,) over usable sites; 0 if there is none."""
    usable = usable.to(values.dtype)
    return (values * usable).sum() / usable.sum().clamp_min(1)


def mean_site_risk(logits: Tensor, label: Tensor, members: Tensor) -> Tensor:
    """Binary cross-entropy averaged within sites and then over sites, whatever their sizes."""
    risk = functional.binary_cross_entropy_with_logits(
        logits, label.to(logits.dtype), reduction="none"
    )
    return mean_over(site_means(risk, members), members.sum(0) > 0)
