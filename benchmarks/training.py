"""Training all folds of an ABIDE-sized run at once: time, memory, and the floor below them.

python benchmarks/training.py --device cuda

A GPU trains both parcellations with all folds, and then shows how time and memory grow. A CPU has
to do with four epochs of two folds.
"""

import gc
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import torch
from common import Size, argument_parser, begin, common_settings, make_problem, table, wait

from brio_core.training.checkpoints import Checkpoints
from brio_core.training.trainer import train

PARSER = argument_parser(__doc__)
PARSER.add_argument("--epochs", type=int, help="default: 200 on a GPU, 4 on a CPU")
ARGUMENTS = PARSER.parse_args()
# What takes seconds on a GPU takes hours on a CPU.
GPU = ARGUMENTS.device.startswith("cuda")
EPOCHS = ARGUMENTS.epochs or (200 if GPU else 4)
ROIS = (116, 200) if GPU else (116,)
FOLDS = None if GPU else 2


def run(
    size: Size, hyperparameters: dict, deterministic: bool = True, budget: int | None = None
) -> tuple[float, float, float]:
    """Seconds of training the folds, milliseconds per epoch and fold, and peak gigabytes."""
    gc.collect()
    problem = make_problem("brio", size, hyperparameters, ARGUMENTS.device, budget)
    problem.data.folds = problem.data.folds[:FOLDS]
    torch.use_deterministic_algorithms(deterministic)
    wait(ARGUMENTS.device)
    with tempfile.TemporaryDirectory() as folder:
        begun = time.perf_counter()
        results = train(problem, Checkpoints(Path(folder), "benchmark", 60), None)
        wait(ARGUMENTS.device)
        seconds = time.perf_counter() - begun
    memory = torch.cuda.max_memory_allocated() / 1e9 if GPU else float("nan")
    return seconds, 1e3 * seconds / sum(result.epochs for result in results), memory


def floor(size: Size, hyperparameters: dict, steps: int) -> str:
    """Bytes that a step must move and the operations it must do, for the graphs alone."""
    graphs = size.sites * (size.sites - 3) * 2 * hyperparameters["subjects_per_site_class"]
    layers, width = hyperparameters["layers"], hyperparameters["hidden"]
    # Both channels of a graph are read once per layer, forward and backward.
    moved = graphs * 2 * size.rois**2 * 4 * 2 * layers
    done = graphs * 2 * size.rois**2 * width * 2 * 2 * layers
    return f"{moved / 1e9:.1f} GB and {done / 1e12:.2f} TFLOP a step, {steps} steps"


def full_runs() -> None:
    rows = []
    for rois in ROIS:
        size = Size(rois=rois)
        hyperparameters = common_settings("brio", epochs=EPOCHS)
        if EPOCHS < 200:
            hyperparameters |= {"warmup_epochs": EPOCHS // 4, "first_epoch": EPOCHS // 4 + 1}
        for name, changes, deterministic in (
            ("shipped defaults (deterministic, TF32), first run in a process", {}, True),
            ("shipped defaults (deterministic, TF32)", {}, True),
            ("without deterministic kernels", {}, False),
            ("float32 products instead of TF32", {"precision": "float32"}, True),
            ("bfloat16 products in training", {"precision": "bfloat16"}, True),
        ):
            seconds, pace, memory = run(size, {**hyperparameters, **changes}, deterministic)
            rows.append((rois, name, f"{seconds:.1f}", f"{pace:.2f}", f"{memory:.1f}"))
        print(f"{rois} ROIs, floor: {floor(size, hyperparameters, 7 * EPOCHS)}\n")
    header = (
        "ROIs",
        "what",
        f"seconds, {FOLDS or 'all'} folds, {EPOCHS} epochs",
        "ms per epoch and fold",
        "peak GB",
    )
    print(table(header, rows))


def complexity(size: Size, hyperparameters: dict) -> float:
    """The paper's amortised time of a step, App. C, in units of 10^9 operations of one fold."""
    batch = 2 * (size.sites - 3) * hyperparameters["subjects_per_site_class"]
    source = size.subjects * (size.sites - 3) / size.sites
    factors, layers = hyperparameters["factors"], hyperparameters["layers"]
    width = max(hyperparameters["hidden"], hyperparameters["total_factor_dim"] // factors)
    support = hyperparameters["density"] * size.rois**2
    encode = layers * (support * width + size.rois * width**2)
    encode += size.rois * factors * width + factors * width**2
    step = batch * encode + batch**2 * (factors * width + hyperparameters["sinkhorn_iterations"])
    again = hyperparameters["reestimates"] * size.rois**2 * sum(size.frames) / 2
    refresh = source * (again + (hyperparameters["reestimates"] + 1) * encode)
    refresh += size.sites**2 * factors
    return (step + refresh / hyperparameters["refresh_interval"]) / 1e9


def tables(size: Size) -> tuple[int, int]:
    """Bytes of scans and FC, and of the graphs made of them for all folds."""
    scans = size.subjects * size.rois * (size.rois + size.frames[1]) * 4
    return scans, size.sites * size.subjects * (2 * size.rois + 3) * size.rois * 4


def sweep() -> None:
    """Vary one thing at a time around a small centre."""
    centre = Size(subjects=520, sites=10, rois=116)
    base = {"epochs": 60, "warmup_epochs": 10, "first_epoch": 11}
    scans, _ = tables(centre)
    cases = [("centre", centre, {}, None)]
    cases += [(f"{n} subjects", replace(centre, subjects=n), {}, None) for n in (260, 1040, 2080)]
    cases += [(f"{n} ROIs", replace(centre, rois=n), {}, None) for n in (50, 200, 400)]
    cases += [(f"{n} sites", replace(centre, sites=n), {}, None) for n in (5, 20)]
    cases += [(f"K = {n}", centre, {"reestimates": n}, None) for n in (2, 32)]
    cases += [(f"M = {n}", centre, {"refresh_interval": n}, None) for n in (10, 250)]
    cases += [("graphs made anew in every step", centre, {}, scans)]
    cases += [("scans and FC streamed from the host too", centre, {}, 0)]
    rows = []
    for name, size, changes, budget in cases:
        hyperparameters = common_settings("brio", **{**base, **changes})
        run(size, {**hyperparameters, "epochs": 12}, budget=budget)
        seconds, pace, memory = run(size, hyperparameters, budget=budget)
        kept = sum(part for part in tables(size) if budget is None or part <= budget) / 1e9
        numbers = (seconds, pace, memory, kept, memory - kept)
        expected = f"{complexity(size, hyperparameters):.2f}"
        rows.append((name, *(f"{number:.2f}" for number in numbers), expected))
        print(name, file=sys.stderr, flush=True)
    header = (
        "varied",
        "seconds",
        "ms per epoch and fold",
        "peak GB",
        "of it tables of all subjects",
        "the rest",
        "paper's expression, 10^9 per step and fold",
    )
    print(table(header, rows))


def main() -> None:
    torch.set_num_threads(ARGUMENTS.threads)
    begin("training", ARGUMENTS.device)
    full_runs()
    if GPU:
        begin("sweep", ARGUMENTS.device)
        sweep()


if __name__ == "__main__":
    main()
