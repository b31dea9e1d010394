"""Correspondence-preserving connectome factorization: encoder, shared assignment, factors."""

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from brio_core import kernels
from brio_core.methods.layers.norms import residual_norm
from brio_core.methods.layers.transport import balanced_assignment


class SignedLayer(nn.Module):
    """One signed convolution: self, positive and negative messages, GELU, residual, LayerNorm."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.own = nn.Linear(width, width, bias=False)
        self.messages = nn.Linear(width, 2 * width, bias=False)
        self.norm = nn.LayerNorm(width)

    def forward(self, hidden: Tensor, graph: Tensor) -> Tensor:
        """``hidden`` (B, P, d); ``graph`` (B, P, 2P) holds both channels, interleaved by ROI.

        Transforming before propagating sums both channels inside one product, and interleaving
        makes the transformed features line up with the columns without being moved. A graph in
        half precision is that of a kernel, which holds both channels as one matrix.
        """
        if graph.dtype == torch.float16 and kernels.at_hand(graph, "signed"):
            return self._fused(hidden, graph)
        batch, rois, width = hidden.shape
        received = graph @ self.messages(hidden).view(batch, 2 * rois, width)
        return residual_norm(hidden, self.own(hidden), received, self.norm)

    def _fused(self, hidden: Tensor, graph: Tensor) -> Tensor:
        from brio_core.kernels.signed import SignedStep

        weights = torch.cat([self.own.weight, self.messages.weight])
        norm = (self.norm.weight, self.norm.bias)
        needed = torch.is_grad_enabled()
        return SignedStep.apply(hidden.float(), weights, *norm, graph, self.norm.eps, needed)[0]


class SignedEncoder(nn.Module):
    """The shared signed GNN on ROI identities and connectivity descriptors."""

    def __init__(
        self, n_rois: int, roi_dim: int, width: int, layers: int, roi_scale: float = 1.0
    ) -> None:
        super().__init__()
        self.roi_embedding = nn.Parameter(roi_scale * torch.randn(n_rois, roi_dim))
        self.enter = nn.Linear(roi_dim + 3, width)
        self.layers = nn.ModuleList(SignedLayer(width) for _ in range(layers))

    def forward(self, graph: Tensor, descriptor: Tensor) -> Tensor:
        """Encoded ROIs (B, P, d), Eq. (shared_signed_encoder)."""
        identity, local = self.enter.weight.split([self.roi_embedding.shape[1], 3], dim=1)
        # The identity part is the same for all subjects: one product instead of B.
        shared = self.roi_embedding @ identity.T + self.enter.bias
        if graph.dtype == torch.float16 and kernels.usable(descriptor, "node_input"):
            from brio_core.kernels.node_input import NodeInput

            hidden = NodeInput.apply(shared.float(), local, descriptor)
        else:
            hidden = functional.gelu(shared + descriptor @ local.T)
        for layer in self.layers:
            hidden = layer(hidden, graph)
        return hidden


class Assignment(nn.Module):
    """Balanced assignment of ROIs to factors from queries and ROI identities alone."""

    def __init__(self, hyperparameters: Any) -> None:
        super().__init__()
        s, width = hyperparameters, hyperparameters.assignment_dim
        self.queries = nn.Parameter(s.query_scale * torch.randn(s.factors, width))
        self.keys = nn.Linear(s.roi_dim, width, bias=False)
        self.scale = 1 / (math.sqrt(width) * s.temperature)
        self.iterations = s.assignment_iterations

    def forward(self, roi_embedding: Tensor) -> Tensor:
        """The assignment (J, P), Eq. (shared_assignment)."""
        similarity = self.queries @ self.keys(roi_embedding).T
        return balanced_assignment(similarity * self.scale, self.iterations)


class FactorMap(nn.Module):
    """Pooled ROI representations to unit factors: projection, small MLP, both normalised."""

    def __init__(self, width: int, factor_dim: int, bias_scale: float = 1.0) -> None:
        super().__init__()
        self.project = nn.Linear(width, factor_dim, bias=False)
        self.widen = nn.Linear(factor_dim, 2 * factor_dim)
        self.narrow = nn.Linear(2 * factor_dim, factor_dim)
        # Biases are the same for all subjects, and make their factors alike.
        for layer in (self.widen, self.narrow):
            layer.bias.data.mul_(bias_scale)

    def forward(self, hidden: Tensor, assignment: Tensor) -> Tensor:
        """Factors (B, J, d_t) of encoded ROIs (B, P, d), Eq. (connectome_factors)."""
        pooled = len(assignment) * (assignment @ hidden)
        projected = functional.normalize(self.project(pooled), dim=-1)
        return functional.normalize(self.narrow(functional.gelu(self.widen(projected))), dim=-1)
