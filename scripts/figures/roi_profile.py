"""Draw the regions that the qualified factors of BRIO pool from."""

from brio_core.reporting.options import figure_options
from brio_core.system.cli import run


def main() -> None:
    arguments = figure_options(__doc__, "diagnostics").parse_args()

    from brio_core.reporting.figures.roi_profile import draw

    draw(arguments.diagnostics, arguments.datasets, arguments.out_prefix)


if __name__ == "__main__":
    run(main)
