"""Draw AUC and accuracy of BRIO and its ablations as bars."""

from brio_core.reporting.options import figure_options
from brio_core.system.cli import run


def main() -> None:
    arguments = figure_options(__doc__, "summaries", "runs").parse_args()

    from brio_core.reporting.figures.ablations import draw

    draw(arguments.summaries, arguments.runs, arguments.datasets, arguments.out_prefix)


if __name__ == "__main__":
    run(main)
