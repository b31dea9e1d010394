"""Draw age, motion, scan length and connectivity per site and class, before any training."""

import argparse

from brio_core import cli


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--profiles", nargs="+", required=True, metavar="TSV")
    parser.add_argument(
        "--datasets", type=cli.json_argument, default={}, help="JSON: settings by cohort"
    )
    parser.add_argument("--out-prefix", required=True, help="writes .pdf and .png")
    arguments = parser.parse_args()

    from brio_core.reporting.figures.sites import draw

    draw(arguments.profiles, arguments.datasets, arguments.out_prefix)


if __name__ == "__main__":
    cli.run(main)
