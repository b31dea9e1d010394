"""Training all folds of an ABIDE-sized run at once: time and memory.

python benchmarks/training.py --device cuda

A GPU trains both parcellations with all folds, and then shows how time and memory grow beside the
paper's expression for them. A CPU has to do with four epochs of two folds.
"""

import gc
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
FOLDS = None if GPU else 2


def run(
    size: Size, hyperparameters: dict, deterministic: bool, budget: int | None
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


def cases() -> list[tuple]:
    """What is trained: its name, size, changes, whether kernels are deterministic, and a budget."""
    short = {"warmup_epochs": EPOCHS // 4, "first_epoch": EPOCHS // 4 + 1} if EPOCHS < 200 else {}
    whole = {"epochs": EPOCHS, **short}
    found = []
    for rois in (116, 200) if GPU else (116,):
        about = f"ABIDE's size, {rois} ROIs, {FOLDS or 'all'} folds, {EPOCHS} epochs"
        found += [
            (f"{about}{what}", Size(rois=rois), whole | changes, deterministic, None)
            # On a CPU the others would change nothing, or be very slow.
            for what, changes, deterministic in (
                ("", {}, True),
                (", without deterministic kernels", {}, False),
                (", float32 products instead of TF32", {"precision": "float32"}, True),
                (", bfloat16 products", {"precision": "bfloat16"}, True),
            )[: None if GPU else 1]
        ]
    if not GPU:
        return found
    # One thing is varied at a time around a small centre.
    centre = Size(subjects=520, sites=10, rois=116)
    varied = [("centre", centre, {}, None)]
    varied += [(f"{n} subjects", replace(centre, subjects=n), {}, None) for n in (260, 1040, 2080)]
    varied += [(f"{n} ROIs", replace(centre, rois=n), {}, None) for n in (50, 200, 400)]
    varied += [(f"{n} sites", replace(centre, sites=n), {}, None) for n in (5, 20)]
    varied += [(f"K = {n}", centre, {"reestimates": n}, None) for n in (2, 32)]
    varied += [(f"M = {n}", centre, {"refresh_interval": n}, None) for n in (10, 250)]
    # Bytes of scans and FC, which leave no room for the graphs of all folds.
    scans = 4 * centre.subjects * centre.rois * (centre.rois + centre.frames[1])
    varied += [("graphs made anew in every step", centre, {}, scans)]
    varied += [("scans and FC streamed from the host too", centre, {}, 0)]
    base = {"epochs": 60, "warmup_epochs": 10, "first_epoch": 11}
    return found + [(name, size, base | own, True, kept) for name, size, own, kept in varied]


def main() -> None:
    torch.set_num_threads(ARGUMENTS.threads)
    begin("training", ARGUMENTS.device)
    header = (
        "what",
        "seconds",
        "ms per epoch and fold",
        "peak GB",
        "paper's expression, 10^9 per step and fold",
    )
    print(table(header, []), flush=True)
    for name, size, changes, deterministic, budget in cases():
        hyperparameters = common_settings("brio", **changes)
        if GPU:
            # The first time sets up kernels, and is not counted.
            short = {"epochs": 12, "warmup_epochs": 2, "first_epoch": 3}
            run(size, hyperparameters | short, deterministic, budget)
        seconds, pace, memory = run(size, hyperparameters, deterministic, budget)
        numbers = (seconds, pace, memory, complexity(size, hyperparameters))
        cells = (name, *(f"{number:.2f}" for number in numbers))
        print("|", " | ".join(cells), "|", flush=True)


if __name__ == "__main__":
    main()
