"""Draw the overview of the method."""

from brio_core.reporting.options import figure_options
from brio_core.system.cli import run


def main() -> None:
    arguments = figure_options(__doc__).parse_args()

    from brio_core.reporting.figures.method import draw

    draw(arguments.out_prefix)


if __name__ == "__main__":
    run(main)
