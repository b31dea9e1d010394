"""Draw the subjects per site and class, and the exclusions by reason."""

from brio_core.reporting.options import figure_options
from brio_core.system.cli import run


def main() -> None:
    arguments = figure_options(__doc__, "inclusion", "participants").parse_args()

    from brio_core.reporting.figures.cohort import draw

    draw(arguments.inclusion, arguments.participants, arguments.datasets, arguments.out_prefix)


if __name__ == "__main__":
    run(main)
