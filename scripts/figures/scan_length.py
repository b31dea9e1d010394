"""Draw how AUC changes when test scans are cut short."""

from brio_core.reporting.options import figure_options
from brio_core.system.cli import run


def main() -> None:
    arguments = figure_options(__doc__, "diagnostics").parse_args()

    from brio_core.reporting.figures.scan_length import draw

    draw(arguments.diagnostics, arguments.datasets, arguments.out_prefix)


if __name__ == "__main__":
    run(main)
