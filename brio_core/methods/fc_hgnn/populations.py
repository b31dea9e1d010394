"""Attention between the subjects of a population."""

import torch
from torch import Tensor, nn


class TransformerConvolution(nn.Module):
    """``W_skip x_i + sum_j softmax_j(q_i . k_j / sqrt(d)) v_j`` over the senders j that i hears.

    Shi et al., Masked Label Prediction, 2021, with one head. A receiver that hears nobody keeps
    its skip part. Only queries have a bias: a softmax cancels that of keys, and a BatchNorm behind
    the layer those of values and skips, which would learn rounding noise.
    """

    def __init__(self, before: int, after: int) -> None:
        super().__init__()
        self.query = nn.Linear(before, after)
        self.key = nn.Linear(before, after, bias=False)
        self.value = nn.Linear(before, after, bias=False)
        self.skip = nn.Linear(before, after, bias=False)

    def tell(self, hidden: Tensor) -> Tensor:
        """Keys and values (2, N, d) of senders."""
        return torch.stack([self.key(hidden), self.value(hidden)])

    def forward(self, hidden: Tensor, told: Tensor, heard: Tensor) -> Tensor:
        """Receivers (B, before) to (B, d); ``heard`` (B, N) says whom each of them hears."""
        keys, values = told.unbind()
        scores = self.query(hidden) @ keys.T * keys.shape[-1] ** -0.5
        # The lowest number and not -inf, which gives NaN to those who hear nobody.
        attention = scores.masked_fill(~heard, torch.finfo(scores.dtype).min).softmax(-1) * heard
        return self.skip(hidden) + attention @ values
