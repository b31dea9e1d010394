"""Draw the subjects per site and class, and the exclusions by reason."""

import argparse

from brio_core import cli


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--inclusion", nargs="+", required=True, metavar="TSV")
    parser.add_argument("--participants", nargs="+", required=True, metavar="TSV")
    parser.add_argument(
        "--datasets", type=cli.json_argument, default={}, help="JSON: settings by cohort"
    )
    parser.add_argument("--out-prefix", required=True, help="writes .pdf and .png")
    arguments = parser.parse_args()

    from brio_core.reporting.figures.cohort import draw

    draw(arguments.inclusion, arguments.participants, arguments.datasets, arguments.out_prefix)


if __name__ == "__main__":
    cli.run(main)
