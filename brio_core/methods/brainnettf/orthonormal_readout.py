"""Clustering readout on orthonormal centres: from P nodes to K clusters."""

import torch
from torch import Tensor, nn


class OrthonormalReadout(nn.Module):
    """``G = Q^T Z`` with ``q_uk = softmax_k((z_u . c_k)^2)``; the K <= d centres are not learnt."""

    def __init__(self, clusters: int, width: int) -> None:
        super().__init__()
        # The QR decomposition of a Gaussian matrix gives directions without preference.
        centres = torch.linalg.qr(torch.randn(width, clusters)).Q.T
        self.register_buffer("centres", centres.contiguous())

    def assign(self, nodes: Tensor) -> Tensor:
        """Soft assignment (..., P, K) of nodes (..., P, d); rows sum to 1."""
        return (nodes @ self.centres.T).square().softmax(-1)

    def forward(self, nodes: Tensor) -> Tensor:
        """Nodes (..., P, d) to clusters (..., K, d)."""
        return self.assign(nodes).mT @ nodes
