"""Draw the estimated and used block length of every fold."""

import argparse

from brio_core import cli


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--block-lengths", nargs="+", required=True, metavar="JSON")
    parser.add_argument(
        "--datasets", type=cli.json_argument, default={}, help="JSON: settings by cohort (title)"
    )
    parser.add_argument("--out-prefix", required=True, help="writes .pdf and .png")
    arguments = parser.parse_args()

    from brio_core.reporting.figures.block_length import draw

    draw(arguments.block_lengths, arguments.datasets, arguments.out_prefix)


if __name__ == "__main__":
    cli.run(main)
