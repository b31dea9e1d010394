"""The post-norm Transformer encoder layer, for all nodes of a graph at once."""

import torch
from torch import Tensor, nn
from torch.nn import functional

from brio_core.layers.fused import dropout_norm, relu_dropout, softmax_dropout

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
        heads, units = self.heads, self.units
        # Heads are filled up with zeros in the weights, which changes no sum.
        fill = -units % GRAIN
        enter = functional.pad(self.enter.weight.unflatten(0, (3, heads, units)), (0, 0, 0, fill))
        none = torch.zeros_like(self.query_bias)
        biases = torch.stack([self.query_bias, none, self.value_bias])
        biases = functional.pad(biases.unflatten(1, (heads, units)), (0, fill))
        leave = functional.pad(self.leave.weight.unflatten(1, (heads, units)), (0, fill))
        entered = (nodes @ enter.flatten(0, 2).T + biases.flatten()).unflatten(-1, biases.shape)
        query, sent, value = (part.transpose(-2, -3) for part in entered.unbind(-3))
        attention = softmax_dropout(query * units**-0.5 @ sent.mT, rate, key, stream)
        heard = (attention @ value).transpose(-2, -3).flatten(-2)
        return heard @ leave.flatten(1).T


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
