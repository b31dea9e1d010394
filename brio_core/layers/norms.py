"""Normalisation of node features."""

from torch import Tensor, nn


class NodeNorm(nn.BatchNorm1d):
    """One statistic per channel over all nodes of all graphs in the batch, (..., P, d)."""

    def forward(self, hidden: Tensor) -> Tensor:
        return super().forward(hidden.flatten(0, -2)).view_as(hidden)
