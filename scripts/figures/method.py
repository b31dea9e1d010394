"""Draw the overview of the method."""

import argparse

from brio_core import cli


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--datasets", type=cli.json_argument, default={}, help="not used; all figures are told"
    )
    parser.add_argument("--out-prefix", required=True, help="writes .pdf and .png")
    arguments = parser.parse_args()

    from brio_core.reporting.figures.method import draw

    draw(arguments.out_prefix)


if __name__ == "__main__":
    cli.run(main)
