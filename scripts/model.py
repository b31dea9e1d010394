"""Train one model on all sites of a cohort, for scans of a new site, and write its bundle."""

import argparse
from pathlib import Path

from brio_core.system.cli import json_argument, run


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cohort-dir", type=Path, required=True)
    parser.add_argument(
        "--runs", type=Path, nargs="+", required=True, metavar="DIR",
        help="leave-one-site-out runs of the same variant, one per seed",
    )  # fmt: skip
    parser.add_argument("--params", type=json_argument, required=True, help="of scripts/train.py")
    parser.add_argument(
        "--settings", type=json_argument, required=True,
        help="JSON: 'block_length' of the configuration",
    )  # fmt: skip
    parser.add_argument(
        "--words", type=json_argument, default={}, help="title and task of the cohort"
    )
    parser.add_argument("--without", nargs="*", default=[], metavar="SITE", help="to be left out")
    parser.add_argument("--out", type=Path, required=True, help="the bundle")
    parser.add_argument("--card", type=Path, help="folder for the model card")
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto")
    parser.add_argument("--allow-cpu", action="store_true", help="use the CPU if there is no GPU")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--memory-mb", type=int, help="of the host, for all")
    parser.add_argument("--checkpoint-seconds", type=float, default=60.0)
    parser.add_argument("--code", default="", help="version of the code, recorded in the bundle")
    arguments = parser.parse_args()

    from brio_core.reporting.card import write_card
    from brio_core.reporting.model import make_bundle, read_left_out
    from brio_core.system.devices import choose_device, start_torch
    from brio_core.training.bundle import write_bundle
    from brio_core.training.final import Wanted, train_final

    start_torch(arguments.threads)
    runs, left_out = read_left_out(arguments.runs)
    first = runs[0].meta
    wanted = Wanted(
        arguments.cohort_dir,
        first["variant"],
        arguments.params,
        first["seed"],
        [one.meta for one in runs],
        left_out,
        arguments.settings,
        tuple(arguments.without),
        arguments.code,
    )
    device = choose_device(arguments.device, arguments.allow_cpu)
    unfinished = arguments.out.with_name(f".{arguments.out.name}.unfinished")
    seconds = arguments.checkpoint_seconds
    trained = train_final(wanted, device, arguments.memory_mb, unfinished, seconds)
    write_bundle(arguments.out, make_bundle(wanted, *trained, runs, arguments.words))
    if arguments.card:
        write_card(arguments.out, arguments.card)


if __name__ == "__main__":
    run(main)
