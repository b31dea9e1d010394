"""Training all folds of an ABIDE-sized run at once: time, memory, and the floor below them.

python benchmarks/training.py --device cuda             # both parcellations, all parts of a run
python benchmarks/training.py --device cuda --sweep     # how time and memory grow
"""

import argparse
import gc
import os
import sys
from dataclasses import replace


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--method", default="brio")
    parser.add_argument("--epochs", type=int, help="default: 200 on a GPU, 4 on a CPU")
    parser.add_argument("--rois", type=int, nargs="+", help="default: 116 and 200, 116 on a CPU")
    parser.add_argument("--folds", type=int, help="default: all 20 on a GPU, 2 on a CPU")
    parser.add_argument("--sweep", action="store_true")
    parser.add_argument("--threads", type=int, default=2)
    return parser.parse_args()


ARGUMENTS = parse()
# What takes seconds on a GPU takes hours on a CPU, where a taste of it has to do.
GPU = ARGUMENTS.device.startswith("cuda")
EPOCHS = ARGUMENTS.epochs or (200 if GPU else 4)
ROIS = ARGUMENTS.rois or ([116, 200] if GPU else [116])
FOLDS = ARGUMENTS.folds or (None if GPU else 2)
SHORT = {"warmup_epochs": EPOCHS // 4, "first_epoch": EPOCHS // 4 + 1}
os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")

import torch  # noqa: E402
from common import Size, common_settings, machine, table, train_folds  # noqa: E402

from brio_core.system.devices import make_deterministic  # noqa: E402


def run(
    size: Size, hyperparameters: dict, deterministic: bool = True, budget: int | None = None
) -> tuple[float, float, int]:
    """Seconds for all folds, peak gigabytes, and epochs times folds of one run."""
    gc.collect()
    make_deterministic(torch.device(ARGUMENTS.device), hyperparameters["precision"])
    torch.use_deterministic_algorithms(deterministic)
    given = (ARGUMENTS.method, hyperparameters, ARGUMENTS.device, FOLDS, budget)
    elapsed, results = train_folds(size, *given)
    memory = torch.cuda.max_memory_allocated() / 1e9 if GPU else float("nan")
    return elapsed, memory, sum(result.epochs for result in results)


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
        hyperparameters = common_settings(ARGUMENTS.method, epochs=EPOCHS)
        if EPOCHS < 200:
            hyperparameters |= {
                name: value for name, value in SHORT.items() if name in hyperparameters
            }
        for name, changes, deterministic in (
            ("shipped defaults (deterministic, TF32), first run in a process", {}, True),
            ("shipped defaults (deterministic, TF32)", {}, True),
            ("without deterministic kernels", {}, False),
            ("float32 products instead of TF32", {"precision": "float32"}, True),
            ("bfloat16 products in training", {"precision": "bfloat16"}, True),
        ):
            seconds, memory, epochs = run(size, {**hyperparameters, **changes}, deterministic)
            per_epoch = 1e3 * seconds / epochs
            rows.append((rois, name, f"{seconds:.1f}", f"{per_epoch:.2f}", f"{memory:.1f}"))
        if "subjects_per_site_class" in hyperparameters and "layers" in hyperparameters:
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
        hyperparameters = common_settings(ARGUMENTS.method, **{**base, **changes})
        run(size, {**hyperparameters, "epochs": 12}, budget=budget)
        seconds, memory, epochs = run(size, hyperparameters, budget=budget)
        kept = sum(part for part in tables(size) if budget is None or part <= budget) / 1e9
        numbers = (seconds, 1e3 * seconds / epochs, memory, kept, memory - kept)
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
    print(f"{ARGUMENTS.method}: {machine(ARGUMENTS.device)}\n")
    sweep() if ARGUMENTS.sweep else full_runs()


if __name__ == "__main__":
    main()
