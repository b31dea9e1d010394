"""Age, sex, motion, scan length and connectivity per site and class, before any training."""

from brio_core.reporting.options import experiment_options
from brio_core.system.cli import run


def main() -> None:
    arguments = experiment_options(__doc__, "profiles").parse_args()

    from brio_core.reporting.site_profiles import profile_rows, profile_table, read_profiles
    from brio_core.reporting.writing import write_table

    profiles = read_profiles(arguments.profiles)
    rows = profile_rows(profiles)
    table = profile_table(rows, profiles, arguments.experiment, arguments.datasets)
    write_table(arguments.out_prefix, rows, table)


if __name__ == "__main__":
    run(main)
