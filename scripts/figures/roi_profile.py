"""Draw the regions that the qualified factors of BRIO pool from."""

import argparse

from brio_core import cli


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--diagnostics", nargs="+", required=True, metavar="DIR")
    parser.add_argument(
        "--datasets", type=cli.json_argument, default={}, help="JSON: settings by cohort (title)"
    )
    parser.add_argument("--out-prefix", required=True, help="writes .pdf and .png")
    arguments = parser.parse_args()

    from brio_core.reporting.figures.roi_profile import draw

    draw(arguments.diagnostics, arguments.datasets, arguments.out_prefix)


if __name__ == "__main__":
    cli.run(main)
