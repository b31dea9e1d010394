"""Assign the subjects of a cohort to training, validation and test, fold by fold."""

import argparse
from pathlib import Path

from brio_core.system.cli import run


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--participants", type=Path, required=True)
    parser.add_argument("--cohort", required=True)
    parser.add_argument("--protocol", required=True, help="loso, id, loso-permuted-1, …")
    parser.add_argument("--split-seed", type=int, required=True)
    parser.add_argument("--ring", type=int, default=0, help="number of this ring among several")
    parser.add_argument("--out", type=Path, required=True, help="JSON, with a checksum")
    parser.add_argument("--plain", type=Path, help="CSV for other code: subject, fold, split")
    arguments = parser.parse_args()

    from brio_core.cohorts.cohort import read_participants
    from brio_core.cohorts.splits import make_split, one_class_folds, plain_rows
    from brio_core.system.files import write_json, write_text

    table = read_participants(arguments.participants)
    asked = (arguments.cohort, arguments.protocol, arguments.split_seed, arguments.ring)
    split = make_split(table, *asked)
    write_json(arguments.out, split)
    if arguments.plain:
        write_text(arguments.plain, plain_rows(split).to_csv(index=False))
    for fold in split["folds"]:
        sizes = ", ".join(f"{len(fold[part])} {part}" for part in ("train", "validation", "test"))
        print(f"{fold['name']}: {sizes}")
    if poor := one_class_folds(split):
        print(f"warning: {poor}")


if __name__ == "__main__":
    run(main)
