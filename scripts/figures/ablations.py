"""Draw AUC and accuracy of BRIO and its ablations as bars."""

import argparse

from brio_core import cli


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--summaries", nargs="+", required=True, metavar="CSV")
    parser.add_argument(
        "--runs", nargs="+", required=True, metavar="DIR", help="run folders, for settings"
    )
    parser.add_argument(
        "--datasets", type=cli.json_argument, default={}, help="JSON: settings by cohort (title)"
    )
    parser.add_argument("--out-prefix", required=True, help="writes .pdf and .png")
    arguments = parser.parse_args()

    from brio_core.reporting.figures.ablations import draw

    draw(arguments.summaries, arguments.runs, arguments.datasets, arguments.out_prefix)


if __name__ == "__main__":
    cli.run(main)
