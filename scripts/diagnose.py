"""All diagnostics of a trained run."""

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
    parser.add_argument("--run", type=Path, required=True, metavar="DIR", help="its folder")
    parser.add_argument(
        "--settings", type=json_argument, required=True,
        help="JSON: 'diagnostics' of the configuration",
    )  # fmt: skip
    parser.add_argument("--out-dir", type=Path, required=True, help="one CSV file per diagnostic")
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="cpu")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--memory-mb", type=int, help="that the process may have (default: all)")
    parser.add_argument("--code", default="", help="version of the code, recorded in meta.json")
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> None:
    arguments = parse(argv)
    # cuBLAS is deterministic only with a workspace of its own, set before torch starts.
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    import torch

    torch.set_num_threads(arguments.threads)
    from brio_core.evaluation.diagnostics.run import diagnose_run
    from brio_core.system.devices import choose_device
    from brio_core.training.data import RunFiles

    diagnose_run(
        RunFiles(arguments.cohort_dir, arguments.split, arguments.block_length),
        arguments.run,
        arguments.settings,
        arguments.out_dir,
        choose_device(arguments.device, allow_cpu=True),
        arguments.code,
        arguments.memory_mb,
    )


if __name__ == "__main__":
    run(main)
