"""Age, sex, motion, scan length and connectivity per site and class, before any training."""

import argparse

from brio_core import cli


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--profiles", nargs="+", required=True, metavar="TSV")
    parser.add_argument(
        "--experiment", type=cli.json_argument, required=True, help="JSON with title and caption"
    )
    parser.add_argument(
        "--datasets", type=cli.json_argument, default={}, help="JSON: settings by cohort"
    )
    parser.add_argument("--out-prefix", required=True, help="writes .csv .md .tex .json")
    arguments = parser.parse_args()

    from brio_core.reporting.site_profiles import profile_rows, profile_table, read_profiles
    from brio_core.reporting.writing import write_table

    profiles = read_profiles(arguments.profiles)
    rows = profile_rows(profiles)
    table = profile_table(rows, profiles, arguments.experiment, arguments.datasets)
    write_table(arguments.out_prefix, rows, table)


if __name__ == "__main__":
    cli.run(main)
