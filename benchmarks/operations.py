"""Single operations of training, each against the libraries that offer the same.

python benchmarks/operations.py --device cuda
python benchmarks/operations.py sinkhorn encoder

- sinkhorn: the debiased Sinkhorn divergence with its gradient, against geomloss and POT
- reestimation: FC of circular block resamples, against loops over nilearn and arch
- encoder: the signed GNN forward and backward, folds stacked, against PyTorch Geometric
- tangent: tangent vectors of one fold, against nilearn

A library that is not installed is named and left out.
"""

from collections.abc import Callable, Iterator
from functools import partial

import numpy as np
import torch
from common import argument_parser, begin, seconds, smooth_noise, table
from torch.func import functional_call, grad, stack_module_state, vmap
from torch.nn import functional

from brio_core.connectivity import reestimation as resampling
from brio_core.connectivity.fisher_z import fisher_z_connectivity, standardise
from brio_core.connectivity.graphs import node_descriptor, propagation_support, signed_graph
from brio_core.connectivity.tangent import CHUNK, ledoit_wolf, tangent_space
from brio_core.methods.brio.factors import SignedEncoder
from brio_core.methods.layers.transport import sinkhorn_divergence
from brio_core.system.devices import make_deterministic

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


def sinkhorn() -> Iterator[Case]:
    """Points as in training: four unit factors of 16 dimensions, squared norm one half."""

    def ours(x, y, iterations):
        return sinkhorn_divergence(x, y, EPSILON, iterations)

    def geomloss(x, y, scaling):
        # The dense backend, which halves the squared distance; ``scaling`` is its annealing.
        from geomloss import SamplesLoss

        blur = (EPSILON / 2) ** 0.5
        return 2 * SamplesLoss("sinkhorn", 2, blur, scaling=scaling, backend="tensorized")(x, y)

    def pot(x, y, iterations):
        # The batched log-domain solver with the envelope gradient.
        from ot.batch import dist_batch, solve_batch

        def transport(a, b):
            cost = dist_batch(a, b, metric="sqeuclidean")
            options = {"max_iter": iterations, "tol": 1e-12, "method": "log_sinkhorn"}
            return solve_batch(cost, EPSILON, reg_type="kl", **options).value

        return transport(x, y) - (transport(x, x) + transport(y, y)) / 2

    def value_and_gradient(function, x, y, setting):
        x, y = x.detach().requires_grad_(), y.detach().requires_grad_()
        value = function(x, y, setting)
        return value.detach(), *torch.autograd.grad(value.sum(), (x, y))

    def cheapest(function, settings, x, y, exact):
        for setting in settings:
            call = partial(value_and_gradient, function, x, y, setting)
            pairs = zip(call(), exact, strict=True)
            errors = [float((one - two).abs().max() / two.abs().max()) for one, two in pairs]
            if errors[0] <= WITHIN:
                break
        about = f"value {errors[0]:.1e}, gradient {max(errors[1:]):.1e}, setting {setting}"
        return call, about

    def captured(*given):
        # As a CUDA graph, which is how training runs it.
        call, about = cheapest(*given)
        side = torch.cuda.Stream()
        with torch.cuda.stream(side):
            for _ in range(3):
                call()
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            call()
        return graph.replay, about

    for size in (4, 16, 64):
        generator = torch.Generator().manual_seed(0)
        centre = torch.randn(2, PROBLEMS, 1, 4, 16, generator=generator, dtype=torch.float64)
        spread = torch.randn(2, PROBLEMS, size, 4, 16, generator=generator).double()
        points = functional.normalize(centre + 1.5 * spread, dim=-1) / 8**0.5
        x, y = points.flatten(-2).to(DEVICE)
        data = (x.float(), y.float(), value_and_gradient(ours, x, y, 2000))
        programs = {"ours": partial(cheapest, ours, ITERATIONS, *data)}
        if GPU:
            programs["ours, CUDA graph"] = partial(captured, ours, ITERATIONS, *data)
        programs["geomloss tensorized"] = partial(cheapest, geomloss, ANNEALING, *data)
        programs["POT batch"] = partial(cheapest, pot, ITERATIONS, *data)
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
        lengths = torch.full_like(frames, block)

        def call():
            weight = resampling.block_multiplicities(frames, lengths, keys, n_frames)
            parts = zip(bold.split(step), weight.split(step))
            return [resampling.reestimated_connectivity(*part) for part in parts]

        expected = fisher_z_connectivity(scans[0][indices[0, 0]].astype(np.float64))
        return call, f"{np.abs(call()[0][0, 0].cpu().numpy() - expected).max():.0e}"

    def fisher_z(correlation):
        return np.arctanh(np.clip(correlation, -1 + 1e-7, 1 - 1e-7))

    def nilearn_loop(scans, indices):
        from nilearn.connectome import ConnectivityMeasure
        from sklearn.covariance import EmpiricalCovariance

        estimator = EmpiricalCovariance(store_precision=False)
        measure = ConnectivityMeasure(estimator, kind="correlation", standardize=False)

        def call():
            for scan, draws in zip(scans, indices):
                fisher_z(measure.fit_transform([scan[draw] for draw in draws]))

        return call, ""

    def arch_loop(scans):
        from arch.bootstrap import CircularBlockBootstrap

        def call():
            for scan in scans:
                for (draw,), _ in CircularBlockBootstrap(block, scan, seed=0).bootstrap(resamples):
                    fisher_z(np.corrcoef(draw.T))

        return call, ""

    for rois in (116, 200):
        scans = scans_of_noise(count, n_frames, rois)
        subjects = resampling.subject_keys("bench", [str(index) for index in range(count)], 0)
        keys = resampling.refresh_keys(subjects, block, 0, resamples)
        indices = resampling.block_indices(n_frames, block, keys).numpy()
        yield (
            f"{count * resamples} re-estimates of {n_frames} frames, {rois} ROIs",
            {
                "ours": partial(ours, scans, keys, indices),
                "nilearn loop, CPU": partial(nilearn_loop, scans, indices),
                "arch loop, CPU": partial(arch_loop, scans),
            },
        )


def encoder() -> Iterator[Case]:
    n_folds, n_graphs = (20, 136) if GPU else (2, 32)
    roi_dim, width, layers = 16, 64, 2
    torch.set_float32_matmul_precision("high")

    def ours(encoders, dense, descriptor):
        state = {key: value.detach() for key, value in stack_module_state(encoders)[0].items()}

        def loss(parameters, graph, descriptor):
            return functional_call(encoders[0], parameters, (graph, descriptor)).square().mean()

        inputs = [one.expand(n_folds, *one.shape) for one in (dense, descriptor)]
        return partial(vmap(grad(loss)), state, *inputs), ""

    def geometric(encoders, dense, descriptor, graph):
        # The same layers with message passing over edge lists, of all graphs of a batch at once.
        from torch_geometric.nn import SimpleConv

        propagate, own, edges = SimpleConv(aggr="sum"), encoders[0], []
        for channel in graph.unbind(1):
            batch, row, column = channel.nonzero(as_tuple=True)
            ends = torch.stack([column, row]) + batch * graph.shape[-1]
            edges.append((ends, channel[batch, row, column]))

        def forward():
            identity = own.roi_embedding.repeat(n_graphs, 1)
            hidden = torch.cat([identity, descriptor.flatten(0, 1)], -1)
            hidden = functional.gelu(own.enter(hidden))
            for layer in own.layers:
                messages = layer.messages(hidden).view(-1, 2, width).unbind(1)
                received = sum(propagate(one, *some) for one, some in zip(messages, edges))
                hidden = layer.norm(hidden + functional.gelu(layer.own(hidden) + received))
            return hidden

        def call():
            for _ in range(n_folds):
                torch.autograd.grad(forward().square().mean(), list(own.parameters()))

        with torch.no_grad():
            expected = own(dense, descriptor).flatten(0, 1)
            return call, f"{float((forward() - expected).abs().max()):.0e}"

    for rois in (116, 200):
        generator = torch.Generator().manual_seed(0)
        fc = torch.randn(n_graphs, rois, rois, generator=generator) * 0.3
        fc = (fc + fc.mT).to(DEVICE)
        support = propagation_support(fc, torch.zeros(n_graphs, dtype=torch.int64), 0.2)
        graph, descriptor = signed_graph(fc, support), node_descriptor(fc, support)
        shape = (rois, roi_dim, width, layers)
        encoders = [SignedEncoder(*shape).to(DEVICE) for _ in range(n_folds)]
        data = (encoders, graph.movedim(-3, -1).flatten(-2), descriptor)
        programs = {"ours": partial(ours, *data)}
        if GPU:
            from brio_core.kernels.signed import SignedGraphs

            kernel = SignedGraphs.apply(fc, support)
            programs = {"ours, fused": partial(ours, encoders, *kernel), **programs}
        programs["PyTorch Geometric"] = partial(geometric, *data, graph)
        yield f"{n_folds} folds of {n_graphs} graphs, {rois} ROIs", programs


def tangent() -> Iterator[Case]:
    count, frames, rois = 200, 200, 116
    scans = scans_of_noise(count, frames, rois)

    def in_chunks(covariance, work):
        for start in range(0, count, CHUNK):
            rows = slice(start, min(start + CHUNK, count))
            work(rows, covariance[rows])

    def vectors():
        bold = torch.as_tensor(scans, device=DEVICE)
        covariance = ledoit_wolf(bold, torch.full((count,), frames, device=DEVICE))
        made = torch.empty(count, rois * (rois + 1) // 2, device=DEVICE)
        tangent_space(partial(in_chunks, covariance), made)
        return made

    def nilearn():
        from nilearn.connectome import ConnectivityMeasure

        measure = ConnectivityMeasure(kind="tangent", vectorize=True, standardize=False)
        call = partial(measure.fit_transform, list(scans.astype(np.float64)))
        return call, f"{np.abs(call() - vectors().cpu().numpy()).max():.0e}"

    yield f"{count} scans, {rois} ROIs", {"ours": lambda: (vectors, ""), "nilearn, CPU": nilearn}


OPERATIONS = {one.__name__: one for one in (sinkhorn, reestimation, encoder, tangent)}
PARSER = argument_parser(__doc__)
PARSER.add_argument("operation", nargs="*", help=f"of {', '.join(OPERATIONS)}; default: all")
ARGUMENTS = PARSER.parse_args()
DEVICE, GPU = ARGUMENTS.device, ARGUMENTS.device.startswith("cuda")


def main() -> None:
    torch.set_num_threads(ARGUMENTS.threads)
    if not GPU:
        # As every job does, for all programs alike; not on a GPU, where some have no such kernels.
        make_deterministic(torch.device("cpu"), "float32")
    for operation in ARGUMENTS.operation or OPERATIONS:
        begin(operation, DEVICE)
        rows = []
        for size, programs in OPERATIONS[operation]():
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
