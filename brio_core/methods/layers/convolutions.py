"""Dense graph convolutions: graphs are small, so a batch of them is one tensor."""

import torch
from torch import Tensor, nn

from brio_core.methods.layers.norms import NodeNorm, norm_relu
from brio_core.methods.layers.perceptrons import row_linear


class DenseGcn(nn.Linear):
    """``operator @ X @ W + b`` with an operator normalised beforehand, (..., P, P).

    Take ``bias=False`` in front of a BatchNorm: it would have no gradient but that of rounding.
    """

    def forward(self, hidden: Tensor, operator: Tensor) -> Tensor:
        # Projecting first makes the product with the operator narrow.
        propagated = operator @ row_linear(hidden, self.weight)
        return propagated if self.bias is None else propagated + self.bias


class DenseGin(nn.Module):
    """``MLP((1 + eps) x_i + sum_j A_ij x_j)`` with MLP = Linear - BatchNorm - ReLU - Linear.

    ``adjacency`` has no self-loops: the centre would count twice. Neither Linear has a bias,
    for a BatchNorm follows the first, and should follow the second; where none does, ``bias``
    gives the second one, to be added by what comes next.
    """

    def __init__(self, before: int, after: int, learn_epsilon: bool, bias: bool = False) -> None:
        super().__init__()
        self.first = nn.Linear(before, after, bias=False)
        self.norm = NodeNorm(after)
        self.second = nn.Linear(after, after, bias=bias)
        if learn_epsilon:
            self.epsilon = nn.Parameter(torch.zeros(()))
        else:
            self.register_buffer("epsilon", torch.zeros(()))

    def aggregate(self, hidden: Tensor, adjacency: Tensor) -> Tensor:
        """``((1 + eps) I + A) X``."""
        return torch.addcmul(adjacency @ hidden, hidden, 1 + self.epsilon)

    def forward(self, hidden: Tensor, adjacency: Tensor) -> Tensor:
        # The first Linear commutes with the sum over neighbours, and makes it narrow.
        aggregated = self.aggregate(row_linear(hidden, self.first.weight), adjacency)
        return row_linear(norm_relu(aggregated, self.norm), self.second.weight)
