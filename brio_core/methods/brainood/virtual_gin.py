"""A two-layer GIN with a virtual node.

Two layers read the virtual node once, before it was ever updated: it is a learnt shift of all
nodes between the layers. It starts as an embedding does, with normal numbers of deviation 1.
"""

import torch
from torch import Tensor, nn

from brio_core.methods.layers.norms import NodeNorm, norm_relu


class WideGin(nn.Module):
    """``MLP(x_i + sum_j O_ij x_j)``, MLP = Linear - BatchNorm - ReLU - Linear, wider inside.

    Neither Linear has a bias: a BatchNorm follows the second one as well.
    """

    def __init__(self, before: int, after: int) -> None:
        super().__init__()
        self.first = nn.Linear(before, 2 * after, bias=False)
        self.norm = NodeNorm(2 * after)
        self.second = nn.Linear(2 * after, after, bias=False)

    def forward(self, hidden: Tensor, operator: Tensor, looped: bool = False) -> Tensor:
        """``looped`` says that the operator's diagonal holds the node itself."""

        def hear(values: Tensor) -> Tensor:
            heard = operator @ values
            return heard if looped else values + heard

        # The sum over neighbours and the first Linear commute: the narrower comes first.
        if self.first.in_features > self.first.out_features:
            hidden = hear(self.first(hidden))
        else:
            hidden = self.first(hear(hidden))
        return self.second(norm_relu(hidden, self.norm))


class VirtualGin(nn.Module):
    """WideGin - BatchNorm - ReLU - dropout, the shift, WideGin - BatchNorm - dropout."""

    def __init__(self, before: int, hidden: int, rate: float, virtual: bool = True) -> None:
        super().__init__()
        self.rate = rate
        self.first = WideGin(before, hidden)
        self.first_norm = NodeNorm(hidden)
        self.virtual = nn.Parameter(torch.randn(hidden)) if virtual else None
        self.second = WideGin(hidden, hidden)
        self.second_norm = NodeNorm(hidden)

    def forward(
        self,
        nodes: Tensor,
        operator: Tensor,
        key: Tensor | None,
        stream: int,
        looped: bool = False,
    ) -> Tensor:
        """Nodes (B, P, d) to (B, P, hidden) over ``operator`` (B, P, P).

        A node hears itself in addition, unless ``looped`` says that the operator's diagonal
        sees to that: with large graphs this saves passes over the nodes, each way.
        With a key units are dropped, by the random numbers of ``stream`` and the one after it.
        """
        hidden = self.first(nodes, operator, looped)
        hidden = norm_relu(hidden, self.first_norm, self.rate, key, stream)
        if self.virtual is not None:
            hidden = hidden + self.virtual
        hidden = self.second(hidden, operator, looped)
        return norm_relu(hidden, self.second_norm, self.rate, key, stream + 1, relu=False)
