"""The post-norm Transformer encoder layer, for all nodes of a graph at once."""

import torch
from torch import Tensor, nn
from torch.nn import functional

from brio_core import kernels
from brio_core.methods.layers.fused import dropout_norm, relu_dropout, softmax_dropout
from brio_core.system.randomness import fold_in

# Tensor cores read rows at full speed whose length is a multiple of 8 numbers.
GRAIN = 8


class SelfAttention(nn.Module):
    """Dense multi-head attention of P nodes on each other; initial weights as in torch's own.

    Keys have no bias: it would add the same number to all scores of a row, which a softmax does
    not see, and would learn rounding noise.
    """

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads, self.units = heads, width // heads
        self.enter = nn.Linear(width, 3 * width, bias=False)
        self.query_bias = nn.Parameter(torch.zeros(width))
        self.value_bias = nn.Parameter(torch.zeros(width))
        self.leave = nn.Linear(width, width, bias=False)
        nn.init.xavier_uniform_(self.enter.weight)

    def forward(
        self, nodes: Tensor, rate: float = 0.0, key: Tensor | None = None, stream: int = 0
    ) -> Tensor:
        """Nodes (B, P, d) to (B, P, d), without the last bias; a key drops attention."""
        enter, leave = self._filled()
        heard = attend(nodes, enter, self.units, rate, key, stream)
        return heard @ leave.flatten(1).T

    def _filled(self) -> tuple[Tensor, Tensor]:
        """Weights with heads filled up, (3, H, U, d) and (d, H, U); they hold the biases.

        :func:`attend` puts ones into the first filled place of queries and values. What a query's
        bias adds to the score of a key, and what a value's bias adds to the answer, are then
        products of weights: no bias has to be added to tensors of the nodes' size.
        """
        shape = (self.heads, self.units)
        fill = GRAIN - self.units % GRAIN
        query, sent, value = self.enter.weight.unflatten(0, (3, *shape)).unbind()
        scale = self.units**-0.5
        biased = (scale * self.query_bias.view(*shape, 1) * sent).sum(-2, keepdim=True)
        enter = [
            functional.pad(query * scale, (0, 0, 0, fill)),
            functional.pad(torch.cat([sent, biased], -2), (0, 0, 0, fill - 1)),
            functional.pad(value, (0, 0, 0, fill)),
        ]
        last = self.leave.weight.unflatten(1, shape)
        biased = (last * self.value_bias.view(shape)).sum(-1, keepdim=True)
        leave = functional.pad(torch.cat([last, biased], -1), (0, fill - 1))
        return torch.stack(enter), leave


def attend(
    nodes: Tensor, enter: Tensor, spare: int, rate: float, key: Tensor | None, stream: int
) -> Tensor:
    """What every head hears, nodes (B, P, d) to (B, P, H * U), by weights (3, H, U, d).

    Place ``spare`` of queries and values is set to one; a key drops attention.
    """
    # Mixed precision is left to torch.
    plain = torch.is_autocast_enabled(nodes.device.type)
    if key is not None and rate > 0 and kernels.usable(nodes) and not plain:
        from brio_core.kernels.head_attention import HeadAttention

        return HeadAttention.apply(nodes, enter, fold_in(key, stream + 1), spare, rate)[0]
    entered = (nodes @ enter.flatten(0, 2).T).unflatten(-1, enter.shape[:-1])
    query, sent, value = (part.transpose(-2, -3) for part in entered.unbind(-3))
    ones = (torch.arange(enter.shape[-2], device=nodes.device) == spare).to(nodes.dtype)
    attention = softmax_dropout((query + ones) @ sent.mT, rate, key, stream)
    return (attention @ (value + ones)).transpose(-2, -3).flatten(-2)


class EncoderLayer(nn.Module):
    """Attention and a ReLU network, each added to its input and followed by a LayerNorm."""

    # Streams of random numbers that one layer takes.
    streams = 4

    def __init__(self, width: int, heads: int, feedforward: int, rate: float) -> None:
        super().__init__()
        self.rate = rate
        self.attention = SelfAttention(width, heads)
        self.attention_bias = nn.Parameter(torch.zeros(width))
        self.attention_norm = nn.LayerNorm(width)
        self.first = nn.Linear(width, feedforward)
        self.second = nn.Linear(feedforward, width)
        self.norm = nn.LayerNorm(width)

    def forward(self, nodes: Tensor, key: Tensor | None = None, stream: int = 0) -> Tensor:
        """Nodes (B, P, d) to (B, P, d); with a key, dropout in all four places."""
        heard = self.attention(nodes, self.rate, key, stream)
        nodes = dropout_norm(
            nodes, heard, self.attention_bias, self.attention_norm, self.rate, key, stream + 1
        )
        inner = nodes @ self.first.weight.T
        inner = relu_dropout(inner, self.first.bias, self.rate, key, stream + 2)
        added = inner @ self.second.weight.T
        return dropout_norm(nodes, added, self.second.bias, self.norm, self.rate, key, stream + 3)
