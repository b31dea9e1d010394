"""Convolution over several graphs of the same nodes."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional


class MultiGraphConvolution(nn.Module):
    """``GELU(sum_g a_g A_g H W_g + H W_0 + b)`` with ``a`` a softmax of learnt numbers."""

    def __init__(self, before: int, after: int, graphs: int) -> None:
        super().__init__()
        self.mixing = nn.Parameter(torch.zeros(graphs))
        self.weights = nn.ModuleList(nn.Linear(before, after, bias=False) for _ in range(graphs))
        self.own = nn.Linear(before, after)

    def forward(self, hidden: Tensor, operators: Sequence[Tensor], views: bool) -> Tensor:
        """Nodes (B, P, V, d) under operators (B, P, P) to (B, P, V, d).

        V counts views of the graphs: the mixture of all, and with ``views`` also each of them
        alone. One view that comes in is the input of all.
        """
        shares = self.mixing.softmax(-1)[None]
        if views:
            alone = torch.eye(len(operators), dtype=shares.dtype, device=shares.device)
            shares = torch.cat([shares, alone])
        total = self.own(hidden)
        for number, (operator, weight) in enumerate(zip(operators, self.weights)):
            # Views stand side by side, so that an operator is read once for all of them.
            sent = weight(hidden)
            heard = (operator @ sent.flatten(-2)).unflatten(-1, sent.shape[-2:])
            total = total + shares[:, number, None] * heard
        return functional.gelu(total)
