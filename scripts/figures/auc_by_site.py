"""Draw the AUC of every test fold and its mean with a 95 % interval, per method."""

from brio_core.reporting.options import figure_options
from brio_core.system.cli import run


def main() -> None:
    arguments = figure_options(__doc__, "summaries", "sites").parse_args()

    from brio_core.reporting.figures.auc_by_site import draw

    draw(arguments.summaries, arguments.sites, arguments.datasets, arguments.out_prefix)


if __name__ == "__main__":
    run(main)
