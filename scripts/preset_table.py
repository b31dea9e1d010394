"""Every method with the common budget and with its authors' settings."""

from brio_core.reporting.options import experiment_options
from brio_core.system.cli import run


def main() -> None:
    arguments = experiment_options(__doc__, "summaries", "runs", planned=True).parse_args()

    from brio_core.reporting.presets import preset_rows, preset_table
    from brio_core.reporting.results import read_summaries
    from brio_core.reporting.writing import write_table

    summaries = read_summaries(arguments.summaries)
    rows = preset_rows(summaries, arguments.runs, arguments.planned["variants"])
    table = preset_table(rows, arguments.experiment, arguments.datasets)
    write_table(arguments.out_prefix, rows, table)


if __name__ == "__main__":
    run(main)
