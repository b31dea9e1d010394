"""Single operations of training, each against the libraries that offer the same.

python benchmarks/operations.py sinkhorn --device cuda

- sinkhorn: the debiased Sinkhorn divergence with its gradient, against geomloss and POT
- reestimation: FC of circular block resamples, against loops over nilearn and arch
- encoder: the signed GNN forward and backward, folds stacked, against PyTorch Geometric
- tangent: tangent vectors of one fold, against nilearn

A library that is not installed is named and left out.
"""

import argparse
from collections.abc import Callable, Iterator
from functools import partial


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("operation", choices=("sinkhorn", "reestimation", "encoder", "tangent"))
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", type=int, default=2)
    return parser.parse_args()


ARGUMENTS = parse()

import numpy as np  # noqa: E402
import torch  # noqa: E402
from common import machine, seconds, smooth_noise, table  # noqa: E402
from libraries import (  # noqa: E402
    arch_loop,
    edge_lists,
    geomloss,
    nilearn_loop,
    nilearn_tangent,
    pot,
    sparse_encoder,
)
from torch.func import functional_call, grad, stack_module_state, vmap  # noqa: E402
from torch.nn import functional  # noqa: E402

from brio_core.connectivity.fisher_z import fisher_z_connectivity, standardise  # noqa: E402
from brio_core.connectivity.graphs import (  # noqa: E402
    node_descriptor,
    propagation_support,
    signed_graph,
)
from brio_core.connectivity.reestimation import (  # noqa: E402
    block_indices,
    block_multiplicities,
    reestimated_connectivity,
    refresh_keys,
    subject_keys,
)
from brio_core.methods.brio.factors import SignedEncoder  # noqa: E402
from brio_core.methods.layers.transport import sinkhorn_divergence  # noqa: E402
from brio_core.methods.linear.tangent import CHUNK, ledoit_wolf, tangent_space  # noqa: E402

DEVICE, GPU = ARGUMENTS.device, ARGUMENTS.device.startswith("cuda")
# A program is made ready to be timed; it says how far its numbers are from ours or the exact ones.
Program = Callable[[], tuple[Callable[[], object], str]]
# What is timed at one size, by name; the first program is ours.
Case = tuple[str, dict[str, Program]]


# All compute the same number: squared Euclidean cost, epsilon times the KL divergence to the
# product measure, uniform weights. Each takes the cheapest setting of a ladder (iterations, or
# geomloss's annealing ratio) whose values agree with a converged float64 solution within 1e-4.
EPSILON, PROBLEMS, WITHIN = 0.1, 272, 1e-4
ANNEALING = (0.5, 0.7, 0.8, 0.9, 0.95, 0.98, 0.99, 0.995)
ITERATIONS = (5, 10, 20, 30, 50, 100, 200, 500)


def value_and_gradient(function, x, y, setting):
    x, y = x.detach().requires_grad_(), y.detach().requires_grad_()
    value = function(x, y, setting)
    return value.detach(), *torch.autograd.grad(value.sum(), (x, y))


def cuda_graph(call):
    """The same work as a CUDA graph, which is how training runs it."""
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        for _ in range(3):
            call()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call()
    return graph.replay


def sinkhorn() -> Iterator[Case]:
    """Points as in training: four unit factors of 16 dimensions, squared norm one half."""

    def ours(x, y, iterations):
        return sinkhorn_divergence(x, y, EPSILON, iterations)

    def cheapest(function, settings, x, y, exact, ready=lambda call: call):
        for setting in settings:
            call = partial(value_and_gradient, function, x, y, setting)
            pairs = zip(call(), exact, strict=True)
            errors = [float((one - two).abs().max() / two.abs().max()) for one, two in pairs]
            if errors[0] <= WITHIN:
                break
        about = f"value {errors[0]:.1e}, gradient {max(errors[1:]):.1e}, setting {setting}"
        return ready(call), about

    for size in (4, 16, 64):
        generator = torch.Generator().manual_seed(0)
        centre = torch.randn(2, PROBLEMS, 1, 4, 16, generator=generator, dtype=torch.float64)
        spread = torch.randn(2, PROBLEMS, size, 4, 16, generator=generator).double()
        points = functional.normalize(centre + 1.5 * spread, dim=-1) / 8**0.5
        x, y = points = points.flatten(-2).to(DEVICE)
        data = (x.float(), y.float(), value_and_gradient(ours, *points, 2000))
        programs = {"ours": partial(cheapest, ours, ITERATIONS, *data)}
        if GPU:
            programs["ours, CUDA graph"] = partial(programs["ours"], ready=cuda_graph)
        annealing = (0.5, 0.7, 0.8, 0.9, 0.95, 0.98, 0.99, 0.995)
        programs["geomloss tensorized"] = partial(
            cheapest, partial(geomloss, EPSILON), annealing, *data
        )
        programs["POT batch"] = partial(cheapest, partial(pot, EPSILON), ITERATIONS, *data)
        programs["ours, as in training"] = partial(cheapest, ours, (50,), *data)
        yield f"{PROBLEMS} problems, {size} x {size} points", programs


def scans_of_noise(count: int, frames: int, rois: int) -> np.ndarray:
    generator = np.random.default_rng(0)
    scans = [smooth_noise(generator, frames, rois) for _ in range(count)]
    return standardise(torch.as_tensor(np.stack(scans))).numpy()


def reestimation() -> Iterator[Case]:
    """The libraries have no GPU code: on a GPU machine its CPU runs them."""
    count, n_frames, resamples, block = 64 if GPU else 32, 200, 8, 7
    # A CPU likes what fits its cache, a GPU likes everything at once.
    step = count if GPU else 4

    def ours(scans, keys, indices):
        bold, keys = torch.as_tensor(scans, device=DEVICE), keys.to(DEVICE)
        frames = torch.full((count,), n_frames, device=DEVICE)

        def call():
            weight = block_multiplicities(frames, torch.full_like(frames, block), keys, n_frames)
            parts = (slice(start, start + step) for start in range(0, count, step))
            return [reestimated_connectivity(bold[part], weight[part]) for part in parts]

        expected = fisher_z_connectivity(scans[0][indices[0, 0]].astype(np.float64))
        return call, f"{np.abs(call()[0][0, 0].cpu().numpy() - expected).max():.0e}"

    for rois in (116, 200):
        scans = scans_of_noise(count, n_frames, rois)
        subjects = subject_keys("bench", [str(index) for index in range(count)], 0)
        keys = refresh_keys(subjects, block, 0, resamples)
        indices = block_indices(n_frames, block, keys).numpy()
        yield (
            f"{count * resamples} re-estimates of {n_frames} frames, {rois} ROIs",
            {
                "ours": partial(ours, scans, keys, indices),
                "nilearn loop, CPU": partial(nilearn_loop, scans, indices),
                "arch loop, CPU": partial(arch_loop, scans, block, resamples),
            },
        )


def encoder() -> Iterator[Case]:
    n_folds, n_graphs = (20, 136) if GPU else (2, 32)
    shape = (16, 64, 2)
    torch.set_float32_matmul_precision("high")

    def ours(encoders, dense, descriptor):
        state = {key: value.detach() for key, value in stack_module_state(encoders)[0].items()}

        def loss(parameters, graph, descriptor):
            return functional_call(encoders[0], parameters, (graph, descriptor)).square().mean()

        inputs = [one.expand(n_folds, *one.shape) for one in (dense, descriptor)]
        return partial(vmap(grad(loss)), state, *inputs), ""

    def geometric(encoders, dense, descriptor, graph):
        sparse = sparse_encoder(graph.shape[-1], *shape).to(DEVICE)
        sparse.load_state_dict(encoders[0].state_dict())
        edges = edge_lists(graph)

        def call():
            for _ in range(n_folds):
                value = sparse(edges, descriptor).square().mean()
                torch.autograd.grad(value, list(sparse.parameters()))

        with torch.no_grad():
            expected = encoders[0](dense, descriptor).flatten(0, 1)
            return call, f"{float((sparse(edges, descriptor) - expected).abs().max()):.0e}"

    for rois in (116, 200):
        generator = torch.Generator().manual_seed(0)
        fc = torch.randn(n_graphs, rois, rois, generator=generator) * 0.3
        fc = (fc + fc.mT).to(DEVICE)
        support = propagation_support(fc, torch.zeros(n_graphs, dtype=torch.int64), 0.2)
        graph, descriptor = signed_graph(fc, support), node_descriptor(fc, support)
        encoders = [SignedEncoder(rois, *shape).to(DEVICE) for _ in range(n_folds)]
        data = (encoders, graph.movedim(-3, -1).flatten(-2), descriptor)
        yield (
            f"{n_folds} folds of {n_graphs} graphs, {rois} ROIs",
            {
                "ours": partial(ours, *data),
                "PyTorch Geometric": partial(geometric, *data, graph),
            },
        )


def tangent() -> Iterator[Case]:
    count, frames, rois = 200, 200, 116
    scans = scans_of_noise(count, frames, rois)

    def in_chunks(covariance, work):
        for start in range(0, count, CHUNK):
            rows = slice(start, min(start + CHUNK, count))
            work(rows, covariance[rows])

    def ours():
        bold = torch.as_tensor(scans, device=DEVICE)
        length = torch.full((count,), frames, device=DEVICE)

        def call():
            covariance = ledoit_wolf(bold, length)
            vectors = torch.empty(count, rois * (rois + 1) // 2, device=DEVICE)
            tangent_space(partial(in_chunks, covariance), vectors)
            return vectors

        return call, ""

    def nilearn():
        call = nilearn_tangent(scans)
        return call, f"{np.abs(call() - ours()[0]().cpu().numpy()).max():.0e}"

    yield f"{count} scans, {rois} ROIs", {"ours": ours, "nilearn, CPU": nilearn}


def main() -> None:
    torch.set_num_threads(ARGUMENTS.threads)
    operations = {one.__name__: one for one in (sinkhorn, reestimation, encoder, tangent)}
    print(f"{machine(DEVICE)}\n")
    rows = []
    for size, programs in operations[ARGUMENTS.operation]():
        own = None
        for name, prepare in programs.items():
            try:
                call, error = prepare()
            except ImportError:
                rows.append((size, name, "not installed", "", ""))
                continue
            took = 1e3 * seconds(call, DEVICE)
            own = own or took
            rows.append((size, name, error, f"{took:.3f}", f"{took / own:.1f}"))
    print(table(("what", "program", "largest error", "ms", "times ours"), rows))


if __name__ == "__main__":
    main()
