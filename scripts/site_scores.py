"""The long table of scores by site, and the means of sensitivity, specificity and calibration."""

import argparse

from brio_core import cli


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sites", nargs="+", required=True, metavar="CSV")
    parser.add_argument(
        "--experiment", type=cli.json_argument, required=True, help="JSON with title and caption"
    )
    parser.add_argument(
        "--datasets", type=cli.json_argument, default={}, help="JSON: settings by cohort (title)"
    )
    parser.add_argument(
        "--planned", type=cli.json_argument, help="JSON: settings and variants that belong there"
    )
    parser.add_argument("--out-prefix", required=True, help="writes .csv .md .tex .json")
    arguments = parser.parse_args()

    from brio_core.reporting.comparison import read_sites
    from brio_core.reporting.site_scores import site_scores_table
    from brio_core.reporting.writing import write_table

    sites = read_sites(arguments.sites)
    table = site_scores_table(sites, arguments.experiment, arguments.datasets, arguments.planned)
    write_table(arguments.out_prefix, sites, table)


if __name__ == "__main__":
    cli.run(main)
