"""Draw the estimated and used block length of every fold."""

from brio_core.reporting.options import figure_options
from brio_core.system.cli import run


def main() -> None:
    arguments = figure_options(__doc__, "block-lengths").parse_args()

    from brio_core.reporting.figures.block_length import draw

    draw(arguments.block_lengths, arguments.datasets, arguments.out_prefix)


if __name__ == "__main__":
    run(main)
