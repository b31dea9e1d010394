"""The debiased Sinkhorn divergence, value and gradient: ours, geomloss and POT side by side.

All compute the same number: squared Euclidean cost, epsilon times the KL divergence to the
product measure, uniform weights. geomloss halves the squared distance, so its blur is
sqrt(epsilon / 2) and its value is doubled; POT solves with the same KL term, three times. Each
takes the cheapest setting of a ladder (iterations, or geomloss's annealing ratio) whose values
agree with a converged float64 solution within 1e-4, so that nobody is charged for accuracy beyond
that; a last row shows ours with as many iterations as training runs.
"""

import argparse
import platform
import time


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--problems", type=int, default=272)
    parser.add_argument("--sizes", type=int, nargs="+", default=[4, 16, 64])
    parser.add_argument("--epsilon", type=float, default=0.1)
    parser.add_argument("--iterations", type=int, default=50)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=2.0, help="time spent on each row")
    return parser.parse_args()


ARGUMENTS = parse()

import torch  # noqa: E402

from brio_core.methods.layers.transport import sinkhorn_divergence  # noqa: E402

WITHIN = 1e-4


def ours(x, y, epsilon, iterations):
    """One fused kernel per transport term on CUDA."""
    return sinkhorn_divergence(x, y, epsilon, iterations)


def geomloss_tensorized(x, y, epsilon, scaling):
    """geomloss's dense backend; ``scaling`` sets how slowly it anneals towards epsilon."""
    from geomloss import SamplesLoss

    loss = SamplesLoss(
        "sinkhorn", p=2, blur=(epsilon / 2) ** 0.5, scaling=scaling, backend="tensorized"
    )
    return 2 * loss(x, y)


def pot_batch(x, y, epsilon, iterations):
    """POT's batched log-domain solver with the envelope gradient."""
    from ot.batch import dist_batch, solve_batch

    def transport(a, b):
        cost = dist_batch(a, b, metric="sqeuclidean")
        result = solve_batch(
            cost, epsilon, max_iter=iterations, tol=1e-12, method="log_sinkhorn", reg_type="kl"
        )
        return result.value

    return transport(x, y) - (transport(x, x) + transport(y, y)) / 2


LADDERS = {
    "ours": (ours, [5, 10, 20, 30, 50, 100, 200, 500]),
    "geomloss tensorized": (geomloss_tensorized, [0.5, 0.7, 0.8, 0.9, 0.95, 0.98, 0.99, 0.995]),
    "POT batch": (pot_batch, [5, 10, 20, 30, 50, 100, 200, 500]),
}


def weighted_factors(problems: int, size: int, device: str):
    """Points as in training: four unit factors of 16 dimensions, squared norm one half."""
    generator = torch.Generator().manual_seed(0)
    centre = torch.randn(2, problems, 1, 4, 16, generator=generator, dtype=torch.float64)
    points = centre + 1.5 * torch.randn(2, problems, size, 4, 16, generator=generator).double()
    points = torch.nn.functional.normalize(points, dim=-1) / 8**0.5
    return points.flatten(-2).to(device)


def value_and_gradient(function, x, y, epsilon, setting):
    x, y = x.detach().requires_grad_(), y.detach().requires_grad_()
    value = function(x, y, epsilon, setting)
    return value.detach(), *torch.autograd.grad(value.sum(), (x, y))


def relative_error(result, reference) -> float:
    """The largest error relative to the largest entry."""
    return float((result - reference).abs().max() / reference.abs().max())


def seconds_per_call(call, device: str, seconds: float) -> float:
    def timed(repeats: int) -> float:
        start = time.perf_counter()
        for _ in range(repeats):
            call()
        if device.startswith("cuda"):
            torch.cuda.synchronize()
        return time.perf_counter() - start

    timed(3)
    repeats = max(3, int(seconds / 5 / max(timed(3) / 3, 1e-6)))
    return min(timed(repeats) for _ in range(5)) / repeats


def captured(call):
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


def cheapest(function, settings, x, y, epsilon, reference):
    """The first setting whose values are right, with the errors of values and gradients."""
    for setting in settings:
        result = value_and_gradient(function, x, y, epsilon, setting)
        errors = [relative_error(*pair) for pair in zip(result, reference, strict=True)]
        if errors[0] <= WITHIN:
            break
    return setting, errors[0], max(errors[1:])


def report(size, name, setting, errors, milliseconds, own) -> None:
    note = "" if errors[0] <= WITHIN else " (never within 1e-4)"
    print(
        f"| {size} x {size} | {name} | {setting} | {errors[0]:.1e}{note} | {errors[1]:.1e} "
        f"| {milliseconds:.3f} | {milliseconds / own:.1f} |",
        flush=True,
    )


def main() -> None:
    torch.set_num_threads(ARGUMENTS.threads)
    device, epsilon = ARGUMENTS.device, ARGUMENTS.epsilon
    cuda = device.startswith("cuda")
    machine = torch.cuda.get_device_name(device) if cuda else platform.processor() or "CPU"
    print(
        f"{machine}, torch {torch.__version__}, {ARGUMENTS.threads} thread(s), "
        f"{ARGUMENTS.problems} problems, 64 dimensions, epsilon {epsilon}, float32\n"
    )
    print("| points | program | setting | value error | gradient error | ms, both | times ours |")
    print("|---|---|---|---|---|---|---|")
    for size in ARGUMENTS.sizes:
        exact = weighted_factors(ARGUMENTS.problems, size, device)
        reference = value_and_gradient(ours, *exact, epsilon, 2000)
        x, y = exact.float()
        own = None
        for name, (function, settings) in LADDERS.items():
            try:
                setting, *errors = cheapest(function, settings, x, y, epsilon, reference)
            except ImportError:
                print(f"| {size} x {size} | {name} | not installed | | | | |")
                continue

            def call(function=function, setting=setting, x=x, y=y):
                return value_and_gradient(function, x, y, epsilon, setting)

            rows = [(name, call)]
            if cuda and function is ours:
                rows.append(("ours, CUDA graph", captured(call)))
            for title, timed in rows:
                milliseconds = 1e3 * seconds_per_call(timed, device, ARGUMENTS.seconds)
                own = own or milliseconds
                report(size, title, setting, errors, milliseconds, own)
        setting, *errors = cheapest(ours, [ARGUMENTS.iterations], x, y, epsilon, reference)

        def call(x=x, y=y):
            return value_and_gradient(ours, x, y, epsilon, ARGUMENTS.iterations)

        milliseconds = 1e3 * seconds_per_call(call, device, ARGUMENTS.seconds)
        report(size, "ours, as in training", setting, errors, milliseconds, own)


if __name__ == "__main__":
    main()
