"""Chebyshev convolution: Defferrard et al., Convolutional Neural Networks on Graphs, 2016."""

import torch
from torch import Tensor, nn

from brio_core.connectivity.graphs import inverse_root


class DenseChebyshev(nn.Linear):
    """``sum_k T_k(L) X W_k + b`` with ``L = -D^-1/2 A D^-1/2``.

    That is the normalised Laplacian scaled to [-1, 1] by its bound of 2. D has no self-loops, and
    a node without edges has zeros in L.
    """

    def __init__(self, before: int, after: int, terms: int = 3) -> None:
        super().__init__(terms * before, after)
        self.terms = terms
        for block in self.weight.data.chunk(terms, 1):
            nn.init.xavier_uniform_(block)
        nn.init.zeros_(self.bias)

    def forward(self, hidden: Tensor, adjacency: Tensor) -> Tensor:
        """Nodes (..., P, d) on graphs of ones and zeros (..., P, P)."""
        scale = inverse_root(adjacency.sum(-1, keepdim=True))
        # T_0, T_1, and T_k = 2 L T_k-1 - T_k-2; scaling the narrow side spares a second matrix.
        terms = [hidden]
        while len(terms) < self.terms:
            shifted = -scale * (adjacency @ (scale * terms[-1]))
            terms.append(shifted if len(terms) == 1 else 2 * shifted - terms[-2])
        return super().forward(torch.cat(terms, -1))
