"""Draw the AUC of every test fold and its mean with a 95 % interval, per method."""

import argparse

from brio_core import cli


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--summaries", nargs="+", required=True, metavar="CSV")
    parser.add_argument("--sites", nargs="+", required=True, metavar="CSV", help="scores per fold")
    parser.add_argument(
        "--datasets", type=cli.json_argument, default={}, help="JSON: settings by cohort (title)"
    )
    parser.add_argument("--out-prefix", required=True, help="writes .pdf and .png")
    arguments = parser.parse_args()

    from brio_core.reporting.figures.auc_by_site import draw

    draw(arguments.summaries, arguments.sites, arguments.datasets, arguments.out_prefix)


if __name__ == "__main__":
    cli.run(main)
