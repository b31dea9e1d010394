"""Train the runs of a variant, one per seed, with all their folds: in one process."""

import argparse
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from brio_core.system.cli import json_argument, run


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cohort-dir", type=Path, required=True)
    parser.add_argument("--split", type=Path, required=True)
    parser.add_argument("--block-length", type=Path, required=True)
    parser.add_argument("--variant", required=True)
    parser.add_argument("--params", type=json_argument, required=True)
    parser.add_argument("--seed", type=int, nargs="+", required=True)
    parser.add_argument("--out-dir", type=Path, nargs="+", required=True, help="one per seed")
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto")
    parser.add_argument("--allow-cpu", action="store_true", help="use the CPU if there is no GPU")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument(
        "--memory-mb", type=int, help="of the host, for all; what does not fit is read from files"
    )
    parser.add_argument("--checkpoint-seconds", type=float, default=60.0)
    parser.add_argument("--compress-models", action="store_true", help="smaller models.pt")
    parser.add_argument("--code", default="", help="version of the code, recorded in meta.json")
    arguments = parser.parse_args()
    if len(arguments.seed) != len(arguments.out_dir):
        parser.error("--seed and --out-dir must name as many seeds as folders")

    from brio_core.cohorts.cohort import Cohort

    # Files are read while torch is imported. They may take an eighth of the memory.
    at_once = (arguments.memory_mb or 4000) * 10**6 // 8
    cohort = ThreadPoolExecutor(1).submit(Cohort.load, arguments.cohort_dir, at_once)

    from brio_core.system.devices import start_torch
    from brio_core.training.data import RunFiles
    from brio_core.training.run import Machine, Runs, train_runs

    start_torch(arguments.threads)
    files = RunFiles(arguments.cohort_dir, arguments.split, arguments.block_length, cohort)
    machine = Machine(
        arguments.device,
        arguments.allow_cpu,
        checkpoint_seconds=arguments.checkpoint_seconds,
        memory_mb=arguments.memory_mb,
        compress_models=arguments.compress_models,
    )
    folders = dict(zip(arguments.seed, arguments.out_dir))
    runs = Runs(files, arguments.variant, arguments.params, folders, arguments.code)
    train_runs(runs, machine)


if __name__ == "__main__":
    run(main)
