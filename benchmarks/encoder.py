"""The signed GNN, forward and backward: ours (dense, folds stacked) against PyTorch Geometric."""

import argparse
from functools import partial


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--rois", type=int, nargs="+", default=[116, 200])
    parser.add_argument("--graphs", type=int, default=136)
    parser.add_argument("--folds", type=int, default=4)
    parser.add_argument("--threads", type=int, default=2)
    return parser.parse_args()


ARGUMENTS = parse()

import torch  # noqa: E402
from common import machine, seconds, table  # noqa: E402
from torch import nn  # noqa: E402
from torch.func import functional_call, grad, stack_module_state, vmap  # noqa: E402
from torch.nn import functional  # noqa: E402

from brio_core.connectivity.graphs import node_descriptor, propagation_support, signed_graph  # noqa: E402
from brio_core.methods.brio.factors import SignedEncoder  # noqa: E402

WIDTH, ROI_DIM, LAYERS = 64, 16, 2


def sparse_encoder(rois: int) -> nn.Module:
    """The same layers with PyTorch Geometric's message passing over edge lists."""
    from torch_geometric.nn import SimpleConv

    class SparseEncoder(SignedEncoder):
        def __init__(self) -> None:
            super().__init__(rois, ROI_DIM, WIDTH, LAYERS)
            self.propagate = SimpleConv(aggr="sum")

        def forward(self, edges, descriptor):
            batch = descriptor.shape[0]
            identity = self.roi_embedding.repeat(batch, 1)
            hidden = torch.cat([identity, descriptor.flatten(0, 1)], -1)
            hidden = functional.gelu(self.enter(hidden))
            for layer in self.layers:
                positive, negative = layer.messages(hidden).view(-1, 2, WIDTH).unbind(1)
                received = self.propagate(positive, *edges[0]) + self.propagate(negative, *edges[1])
                own = layer.own(hidden)
                hidden = layer.norm(hidden + functional.gelu(own + received))
            return hidden

    return SparseEncoder()


def edge_lists(graph):
    """Edges and weights of both channels for all graphs of a batch at once."""
    channels = []
    for channel in (0, 1):
        batch, row, column = graph[:, channel].nonzero(as_tuple=True)
        weight = graph[batch, channel, row, column]
        offset = batch * graph.shape[-1]
        channels.append((torch.stack([column + offset, row + offset]), weight))
    return channels


def main() -> None:
    torch.set_num_threads(ARGUMENTS.threads)
    device, folds = ARGUMENTS.device, ARGUMENTS.folds
    torch.set_float32_matmul_precision("high")
    print(f"{machine(device)}; {folds} folds of {ARGUMENTS.graphs} graphs\n")
    rows = []
    for rois in ARGUMENTS.rois:
        generator = torch.Generator().manual_seed(0)
        fc = torch.randn(ARGUMENTS.graphs, rois, rois, generator=generator) * 0.3
        fc = (fc + fc.mT).to(device)
        support = propagation_support(fc, torch.zeros(len(fc), dtype=torch.int64), 0.2)
        graph, descriptor = signed_graph(fc, support), node_descriptor(fc, support)
        encoders = [SignedEncoder(rois, ROI_DIM, WIDTH, LAYERS).to(device) for _ in range(folds)]
        state, _ = stack_module_state(encoders)
        state = {name: value.detach() for name, value in state.items()}
        dense = graph.movedim(-3, -1).flatten(-2).expand(folds, -1, -1, -1)

        def loss(parameters, graph, descriptor, encoder=encoders[0]):
            return functional_call(encoder, parameters, (graph, descriptor)).square().mean()

        stacked = descriptor.expand(folds, -1, -1, -1)
        own = seconds(partial(vmap(grad(loss)), state, dense, stacked), device)
        rows.append((rois, "ours", f"{1e3 * own:.2f}", "1"))
        try:
            sparse = sparse_encoder(rois).to(device)
        except ImportError:
            rows.append((rois, "PyTorch Geometric", "not installed", ""))
            continue
        sparse.load_state_dict(encoders[0].state_dict())
        edges = edge_lists(graph)
        with torch.no_grad():
            expected = encoders[0](dense[0], descriptor).flatten(0, 1)
            difference = (sparse(edges, descriptor) - expected).abs().max()

        def each_fold(sparse=sparse, edges=edges, descriptor=descriptor):
            for _ in range(folds):
                value = sparse(edges, descriptor).square().mean()
                torch.autograd.grad(value, list(sparse.parameters()))

        other = seconds(each_fold, device)
        name = f"PyTorch Geometric (differs by {float(difference):.0e})"
        rows.append((rois, name, f"{1e3 * other:.2f}", f"{other / own:.1f}"))
    print(table(("ROIs", "program", "ms, forward and backward", "times ours"), rows))


if __name__ == "__main__":
    main()
