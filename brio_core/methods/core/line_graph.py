"""Graphs whose nodes are the edges of another graph."""

import torch
from torch import Tensor


def line_graph(first: Tensor, second: Tensor) -> Tensor:
    """Which edges (first[k], second[k]) have an end in common, bool (K, K), none with itself."""
    ends = torch.stack([first, second], -1)
    shared = (ends[:, None, :, None] == ends[None, :, None, :]).flatten(-2).any(-1)
    return shared & ~torch.eye(len(first), dtype=torch.bool, device=first.device)
