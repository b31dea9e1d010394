"""Draw age, motion, scan length and connectivity per site and class, before any training."""

from brio_core.reporting.options import figure_options
from brio_core.system.cli import run


def main() -> None:
    arguments = figure_options(__doc__, "profiles").parse_args()

    from brio_core.reporting.figures.sites import draw

    draw(arguments.profiles, arguments.datasets, arguments.out_prefix)


if __name__ == "__main__":
    run(main)
