"""Dense graph convolutions: graphs are small, so a batch of them is one tensor."""

import torch
from torch import Tensor, nn
from torch.nn import functional

from brio_core import kernels
from brio_core.methods.layers.fused import norm_relu
from brio_core.methods.layers.norms import NodeNorm
from brio_core.system.randomness import dropout, fold_in

# Senders of one receiver that the fused attention holds at once.
MOST_NODES = 512


class DenseGcn(nn.Linear):
    """``operator @ X @ W + b`` with an operator normalised beforehand, (..., P, P).

    Take ``bias=False`` in front of a BatchNorm: it would have no gradient but that of rounding.
    """

    def forward(self, hidden: Tensor, operator: Tensor) -> Tensor:
        # Projecting first makes the product with the operator narrow.
        propagated = operator @ (hidden @ self.weight.T)
        return propagated if self.bias is None else propagated + self.bias


def _fits(values: Tensor) -> bool:
    """Whether the fused attention takes values (..., P, heads, units): tensor cores want 16."""
    nodes, units = values.shape[-3], values.shape[-1]
    return 16 <= nodes <= MOST_NODES and units >= 16


class DenseGat(nn.Module):
    """Graph attention (version 1) with concatenated heads.

    ``e_ij = LeakyReLU(a_receiver . z_i + a_sender . z_j)`` with z = W x; receiver i takes the mean
    of its senders' z_j with weights softmax_j(e_ij). ``weighted`` adds ``c w_ij`` before the
    LeakyReLU, one scalar c per head that starts at 0.
    """

    slope = 0.2

    def __init__(self, before: int, heads: int, units: int, weighted: bool = False) -> None:
        super().__init__()
        self.heads, self.units = heads, units
        self.project = nn.Linear(before, heads * units, bias=False)
        self.receiver = nn.Parameter(torch.empty(heads, units))
        self.sender = nn.Parameter(torch.empty(heads, units))
        self.bias = nn.Parameter(torch.zeros(heads * units))
        self.edge = nn.Parameter(torch.zeros(heads)) if weighted else None
        for weight in (self.project.weight, self.receiver, self.sender):
            nn.init.xavier_uniform_(weight)

    def forward(
        self,
        hidden: Tensor,
        mask: Tensor,
        weights: Tensor | None = None,
        probability: float = 0.0,
        key: Tensor | None = None,
        stream: int = 0,
    ) -> Tensor:
        """Nodes (B, P, d) to (B, P, heads * units).

        ``mask`` (B, P, P) says which senders j a receiver i hears, itself among them. With a key,
        attention is dropped with ``probability`` and not normalised again.
        """
        values = self.project(hidden).unflatten(-1, (self.heads, self.units))
        probability = 0.0 if key is None else probability
        if self.edge is None and kernels.usable(values) and _fits(values):
            heard = self._attend_fused(values, mask, probability, key, stream)
        else:
            attention = self._attend(values, mask, weights)
            if probability > 0:
                attention = dropout(attention, probability, key, stream)
            heard = (attention @ values.transpose(-2, -3)).transpose(-2, -3)
        return heard.flatten(-2) + self.bias

    def attention(self, hidden: Tensor, mask: Tensor, weights: Tensor | None = None) -> Tensor:
        """Attention (B, heads, P, P) of receivers (rows) on senders (columns)."""
        values = self.project(hidden).unflatten(-1, (self.heads, self.units))
        return self._attend(values, mask, weights)

    def _scores(self, values: Tensor) -> tuple[Tensor, Tensor]:
        # Sums, not matrix products: attention logits keep their 24 bits on a GPU.
        return (values * self.receiver).sum(-1), (values * self.sender).sum(-1)

    def _attend(self, values: Tensor, mask: Tensor, weights: Tensor | None) -> Tensor:
        receiver, sender = (score.mT for score in self._scores(values))
        logits = receiver[..., :, None] + sender[..., None, :]
        if self.edge is not None:
            logits = logits + self.edge[:, None, None] * weights[..., None, :, :]
        logits = functional.leaky_relu(logits, self.slope)
        return logits.masked_fill(~mask[..., None, :, :], float("-inf")).softmax(-1)

    def _attend_fused(
        self, values: Tensor, mask: Tensor, probability: float, key: Tensor | None, stream: int
    ) -> Tensor:
        from brio_core.kernels.attention import attend

        # The place that ``randomness.uniform`` looks up for this stream.
        key = mask.new_zeros((), dtype=torch.int64) if key is None else fold_in(key, stream + 1)
        return attend(*self._scores(values), values, mask, key, probability, self.slope)


class DenseGin(nn.Module):
    """``MLP((1 + eps) x_i + sum_j A_ij x_j)`` with MLP = Linear - BatchNorm - ReLU - Linear.

    ``adjacency`` has no self-loops: the centre would count twice. Neither Linear has a bias,
    for a BatchNorm follows the first, and should follow the second; where none does, ``bias``
    gives the second one.
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
        return (1 + self.epsilon) * hidden + adjacency @ hidden

    def forward(self, hidden: Tensor, adjacency: Tensor) -> Tensor:
        # The first Linear commutes with the sum over neighbours, and makes it narrow.
        aggregated = self.aggregate(self.first(hidden), adjacency)
        return self.second(norm_relu(aggregated, self.norm))
