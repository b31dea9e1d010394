"""The graphs that experts read, each with the edges that it keeps."""

import torch
from torch import Tensor

from brio_core import kernels
from brio_core.methods.layers.edge_lists import EdgeLists


class ExpertGraphs:
    """Graphs (K, B, P, P) of the masks (K, B, E), or the whole graph for a single expert.

    ``kept`` (K, B, P) are ones and zeros: a node is kept with any of its edges.
    """

    def __init__(self, edges: EdgeLists, masks: Tensor | None = None) -> None:
        self.edges = edges
        self.masks, self.learnt = masks, masks is not None
        ones = edges.present[None] if masks is None else masks
        self.fused = kernels.usable(ones, "expert_gin")
        if self.fused:
            from brio_core.kernels.expert_gin import Graphs

            # No gradient goes through what is kept.
            self.links, self.kept = Graphs.apply(edges.slots, masks, edges.n_places, edges.n_rois)
        else:
            self.links = edges.spread(ones)
            self.kept = (self.links.detach().sum(-1) > 0).to(ones.dtype)

    def hear(self, hidden: Tensor, centre: Tensor, bias: Tensor, beside: bool = False) -> Tensor:
        """``relu(centre x_i + sum_j A_ij x_j + bias)``, (K, B, P, d).

        ``hidden`` is (K, B, P, d). In the first layer the experts of a node stand ``beside`` each
        other, (B, P, K, d), and nodes that are not kept count as zero. Centre is (K,), bias (K, d).
        """
        if self.fused:
            from brio_core.kernels.expert_gin import Hear

            edges = self.edges
            lists = (self.links, self.kept, edges.slots, edges.starts, edges.n_places)
            hidden = hidden.to(self.kept.dtype)
            return Hear.apply(hidden, centre, bias, self.masks, *lists, beside, self.learnt)
        centre = centre.view(-1, 1, 1, 1)
        if beside:
            hidden, centre = hidden.movedim(-2, 0).contiguous(), centre * self.kept[..., None]
        # Nobody hears a node without edges, so only its own term must vanish.
        heard = torch.addcmul(self.links @ hidden, hidden, centre.expand_as(self.kept[..., None]))
        return (heard + bias[:, None, None]).relu()
