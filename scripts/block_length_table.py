"""BRIO with shorter and longer blocks: frames, seconds, AUC and ACC."""

from brio_core.reporting.options import experiment_options
from brio_core.system.cli import run


def main() -> None:
    arguments = experiment_options(__doc__, "summaries", "block-lengths", planned=True).parse_args()

    from brio_core.reporting.block_lengths import block_length_rows, block_length_table
    from brio_core.reporting.results import read_summaries
    from brio_core.reporting.writing import write_table

    summaries = read_summaries(arguments.summaries)
    rows = block_length_rows(summaries, arguments.block_lengths, arguments.planned)
    table = block_length_table(rows, arguments.experiment, arguments.datasets)
    write_table(arguments.out_prefix, rows, table)


if __name__ == "__main__":
    run(main)
