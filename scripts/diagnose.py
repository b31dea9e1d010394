"""All diagnostics of trained runs of the same folds."""

import argparse
from pathlib import Path

from brio_core.system.cli import json_argument, run


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cohort-dir", type=Path, required=True)
    parser.add_argument("--split", type=Path, required=True)
    parser.add_argument("--block-length", type=Path, required=True)
    parser.add_argument(
        "--run", type=Path, nargs="+", required=True, metavar="DIR", help="their folders"
    )
    parser.add_argument(
        "--settings", type=json_argument, required=True,
        help="JSON: 'diagnostics' of the configuration",
    )  # fmt: skip
    parser.add_argument(
        "--out-dir", type=Path, nargs="+", required=True,
        help="one per run, with one CSV file per diagnostic",
    )  # fmt: skip
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="cpu")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--memory-mb", type=int, help="that the process may have (default: all)")
    parser.add_argument("--code", default="", help="version of the code, recorded in meta.json")
    arguments = parser.parse_args()
    if len(arguments.run) != len(arguments.out_dir):
        parser.error("--run and --out-dir must name as many runs as folders")

    from brio_core.evaluation.diagnostics.run import diagnose_run
    from brio_core.system.devices import choose_device, start_torch
    from brio_core.training.data import RunFiles

    start_torch(arguments.threads)
    files = RunFiles(arguments.cohort_dir, arguments.split, arguments.block_length)
    device = choose_device(arguments.device, allow_cpu=True)
    options, others = arguments.settings, (device, arguments.code, arguments.memory_mb)
    for run_dir, out_dir in zip(arguments.run, arguments.out_dir):
        diagnose_run(files, run_dir, options, out_dir, *others)


if __name__ == "__main__":
    run(main)
