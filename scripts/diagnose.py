"""Site discrepancy and predictive re-estimation variation of one trained cell."""

import argparse
from pathlib import Path

from brio_core.cli import json_argument, run


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cohort-dir", type=Path, required=True)
    parser.add_argument("--split", type=Path, required=True)
    parser.add_argument("--block-length", type=Path, required=True)
    parser.add_argument("--run-dir", type=Path, required=True)
    parser.add_argument("--settings", type=json_argument, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="cpu")
    parser.add_argument("--threads", type=int, default=1)
    return parser.parse_args()


def main() -> None:
    arguments = parse()
    import torch

    torch.set_num_threads(arguments.threads)
    from brio_core.diagnostics.cell import diagnose_cell
    from brio_core.results import write_records
    from brio_core.training import choose_device

    records = diagnose_cell(
        arguments.cohort_dir,
        arguments.split,
        arguments.block_length,
        arguments.run_dir,
        arguments.settings["reestimates"],
        arguments.settings["epsilon"],
        choose_device(arguments.device, allow_cpu=True),
    )
    write_records(arguments.out, records)


if __name__ == "__main__":
    run(main)
