"""Graphs made of connectivity: BRIO's fixed support and the baselines' own edges."""

import math

import torch
from torch import Tensor


def true_median(values: Tensor, dim: int) -> Tensor:
    """The median that averages the two middle values (torch.median takes the lower one)."""
    ordered, count = values.sort(dim).values, values.shape[dim]
    return (ordered.select(dim, (count - 1) // 2) + ordered.select(dim, count // 2)) / 2


def neighbours_per_roi(n_rois: int, density: float) -> int:
    """m = ceil(density (P - 1)), safe against products such as 7.000000000000001."""
    return max(1, math.ceil(density * (n_rois - 1) - 1e-9))


def symmetric_top(strength: Tensor, density: float) -> Tensor:
    """SymTop: the m largest off-diagonal entries of each row, kept if either end selects them.

    ``strength`` (..., P, P) is non-negative; of equal entries the lower index wins.
    """
    wanted = neighbours_per_roi(strength.shape[-1], density)
    diagonal = torch.eye(strength.shape[-1], dtype=torch.bool, device=strength.device)
    strength = strength.masked_fill(diagonal, -1)
    smallest = strength.topk(wanted, dim=-1).values[..., -1:]
    above, level = strength > smallest, strength == smallest
    room = wanted - above.sum(-1, keepdim=True)
    selected = above | (level & (level.cumsum(-1) <= room))
    return selected | selected.mT


def propagation_support(fc: Tensor, site: Tensor, density: float = 0.20) -> Tensor:
    """The propagation support S of a fold (Eq. source_support) from training subjects.

    Parameters
    ----------
    fc : (N, P, P), a tensor or a table of which the subjects of one site are taken at a time
    site : (N,)

    Returns
    -------
    bool (P, P)
    """
    edges = (upper_triangle(fc[site == one]).abs() for one in site.unique())
    median = true_median(torch.stack([true_median(one, 0) for one in edges]), 0)
    return symmetric_top(median[edge_places(fc.shape[-1], median.device)], density)


def upper_triangle(matrices: Tensor) -> Tensor:
    """The entries (..., P (P - 1) / 2) above the diagonal."""
    n_rois = matrices.shape[-1]
    row, column = torch.triu_indices(n_rois, n_rois, 1, device=matrices.device)
    return matrices[..., row, column]


def edge_places(n_rois: int, device: torch.device | str = "cpu") -> Tensor:
    """Where the entries of a symmetric matrix (P, P) lie among its edges; 0 on the diagonal."""
    row, column = torch.triu_indices(n_rois, n_rois, 1, device=device)
    places = torch.zeros(n_rois, n_rois, dtype=torch.int64, device=device)
    places[row, column] = torch.arange(len(row), device=device)
    return places + places.T


def inverse_root(degree: Tensor) -> Tensor:
    """``degree ** -0.5``, and 0 where the degree is 0."""
    smallest = torch.finfo(degree.dtype).tiny
    return degree.clamp_min(smallest).rsqrt() * (degree > 0)


def signed_graph(fc: Tensor, support: Tensor) -> Tensor:
    """Positive and negative channels on S, each normalised symmetrically on its own.

    Eq. signed_graphs; (..., P, P) gives (..., 2, P, P). A ROI without edges in a channel has
    zeros there.
    """
    graph = fc * support
    channels = torch.stack([graph.clamp_min(0), (-graph).clamp_min(0)], -3)
    scale = inverse_root(channels.sum(-1))
    return scale[..., :, None] * channels * scale[..., None, :]


def node_descriptor(fc: Tensor, support: Tensor) -> Tensor:
    """Local connectivity of each ROI (Eq. node_connectivity_descriptor), (..., P, 3)."""
    graph = fc * support
    degree = support.sum(-1).clamp_min(1).to(fc.dtype)
    return torch.stack(
        [
            graph.clamp_min(0).sum(-1) / degree,
            (-graph).clamp_min(0).sum(-1) / degree,
            (graph.square().sum(-1) / degree).sqrt(),
        ],
        -1,
    )


def subject_graph(fc: Tensor, density: float = 0.20) -> Tensor:
    """Edges of each subject's own graph, bool (..., P, P): its strongest |FC| per ROI."""
    return symmetric_top(fc.abs(), density)


def normalised_adjacency(weights: Tensor) -> Tensor:
    """D^-1/2 (A + I) D^-1/2 of non-negative weights (..., P, P)."""
    with_self = weights + torch.eye(weights.shape[-1], dtype=weights.dtype, device=weights.device)
    scale = inverse_root(with_self.sum(-1))
    return scale[..., :, None] * with_self * scale[..., None, :]
