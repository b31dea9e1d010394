"""The operations of operations.py as other libraries offer them; each imports its own library."""

from functools import partial

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from brio_core.methods.brio.factors import SignedEncoder


def geomloss(epsilon, x, y, scaling):
    """geomloss's dense backend, which halves the squared distance; ``scaling`` is its annealing."""
    from geomloss import SamplesLoss

    blur = (epsilon / 2) ** 0.5
    loss = SamplesLoss("sinkhorn", p=2, blur=blur, scaling=scaling, backend="tensorized")
    return 2 * loss(x, y)


def pot(epsilon, x, y, iterations):
    """POT's batched log-domain solver with the envelope gradient."""
    from ot.batch import dist_batch, solve_batch

    def transport(a, b):
        cost = dist_batch(a, b, metric="sqeuclidean")
        options = {"max_iter": iterations, "tol": 1e-12, "method": "log_sinkhorn"}
        return solve_batch(cost, epsilon, reg_type="kl", **options).value

    return transport(x, y) - (transport(x, x) + transport(y, y)) / 2


def fisher_z(correlation):
    return np.arctanh(np.clip(correlation, -1 + 1e-7, 1 - 1e-7))


def nilearn_loop(scans, indices):
    """Re-estimated FC, scan by scan."""
    from nilearn.connectome import ConnectivityMeasure
    from sklearn.covariance import EmpiricalCovariance

    estimator = EmpiricalCovariance(store_precision=False)
    measure = ConnectivityMeasure(estimator, kind="correlation", standardize=False)

    def call():
        for scan, draws in zip(scans, indices):
            fisher_z(measure.fit_transform([scan[draw] for draw in draws]))

    return call, ""


def arch_loop(scans, block, resamples):
    """Re-estimated FC, resample by resample."""
    from arch.bootstrap import CircularBlockBootstrap

    def call():
        for scan in scans:
            for (draw,), _ in CircularBlockBootstrap(block, scan, seed=0).bootstrap(resamples):
                fisher_z(np.corrcoef(draw.T))

    return call, ""


def nilearn_tangent(scans):
    """Tangent vectors of all scans, to be called."""
    from nilearn.connectome import ConnectivityMeasure

    measure = ConnectivityMeasure(kind="tangent", vectorize=True, standardize=False)
    return partial(measure.fit_transform, list(scans.astype(np.float64)))


def sparse_encoder(rois: int, roi_dim: int, width: int, layers: int) -> nn.Module:
    """The same layers with PyTorch Geometric's message passing over edge lists."""
    from torch_geometric.nn import SimpleConv

    class SparseEncoder(SignedEncoder):
        def __init__(self) -> None:
            super().__init__(rois, roi_dim, width, layers)
            self.propagate = SimpleConv(aggr="sum")

        def forward(self, edges, descriptor):
            identity = self.roi_embedding.repeat(descriptor.shape[0], 1)
            hidden = torch.cat([identity, descriptor.flatten(0, 1)], -1)
            hidden = functional.gelu(self.enter(hidden))
            for layer in self.layers:
                positive, negative = layer.messages(hidden).view(-1, 2, width).unbind(1)
                received = self.propagate(positive, *edges[0]) + self.propagate(negative, *edges[1])
                hidden = layer.norm(hidden + functional.gelu(layer.own(hidden) + received))
            return hidden

    return SparseEncoder()


def edge_lists(graph):
    """Edges and weights of both channels for all graphs of a batch at once."""
    channels = []
    for channel in (0, 1):
        batch, row, column = graph[:, channel].nonzero(as_tuple=True)
        offset = batch * graph.shape[-1]
        edges = torch.stack([column + offset, row + offset])
        channels.append((edges, graph[batch, channel, row, column]))
    return channels
