"""From the nodes of a graph to one vector."""

from torch import Tensor

POOLINGS = ("mean", "sum")


def pool(hidden: Tensor, how: str) -> Tensor:
    """Mean or sum over the nodes of every graph, (..., P, d) to (..., d)."""
    return hidden.mean(-2) if how == "mean" else hidden.sum(-2)
