"""Draw the validation AUC over epochs of trained cells."""

from brio_core.reporting.options import figure_options
from brio_core.system.cli import run


def main() -> None:
    arguments = figure_options(__doc__, "runs").parse_args()

    from brio_core.reporting.figures.training import draw

    draw(arguments.runs, arguments.datasets, arguments.out_prefix)


if __name__ == "__main__":
    run(main)
