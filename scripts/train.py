"""Train one run (cohort, protocol, variant, seed): all folds, in one process."""

import argparse
import os
from collections.abc import Sequence
from pathlib import Path

from brio_core.system.cli import json_argument, run


def parse(argv: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cohort-dir", type=Path, required=True)
    parser.add_argument("--split", type=Path, required=True)
    parser.add_argument("--block-length", type=Path, required=True)
    parser.add_argument("--variant", required=True)
    parser.add_argument("--params", type=json_argument, required=True)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--out-dir", type=Path, required=True)
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto")
    parser.add_argument("--allow-cpu", action="store_true", help="use the CPU if there is no GPU")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument(
        "--memory-mb", type=int, help="of the host, for all; what does not fit is read from files"
    )
    parser.add_argument("--checkpoint-seconds", type=float, default=60.0)
    parser.add_argument("--compress-models", action="store_true", help="smaller models.pt")
    parser.add_argument("--code", default="", help="version of the code, recorded in meta.json")
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> None:
    arguments = parse(argv)
    # cuBLAS is deterministic only with a fixed workspace, read when CUDA starts.
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    import torch

    torch.set_num_threads(arguments.threads)
    from brio_core.training.data import RunFiles
    from brio_core.training.run import Machine, Run, train_run

    files = RunFiles(arguments.cohort_dir, arguments.split, arguments.block_length)
    machine = Machine(
        arguments.device,
        arguments.allow_cpu,
        checkpoint_seconds=arguments.checkpoint_seconds,
        memory_mb=arguments.memory_mb,
        compress_models=arguments.compress_models,
    )
    wanted = Run(files, arguments.variant, arguments.params, arguments.seed, arguments.code)
    train_run(wanted, machine, arguments.out_dir)


if __name__ == "__main__":
    run(main)
