"""List the candidate subjects of a cohort: candidates.tsv."""

import argparse

from brio_core.system.cli import json_argument, run


def main() -> None:
    """Read the source's table, check it, and write one row per candidate."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dataset", type=json_argument, required=True, help="the dataset as JSON")
    parser.add_argument("--data-dir", required=True, help="the folder of all cohorts")
    parser.add_argument("--on-bad-subject", choices=("exclude", "stop"), default="exclude")
    parser.add_argument("--out", required=True, help="candidates.tsv to write")
    arguments = parser.parse_args()

    from brio_core.cohorts.candidates import COLUMNS, find_candidates
    from brio_core.cohorts.inclusion import stop_if_bad
    from brio_core.cohorts.readers.reader import open_reader
    from brio_core.cohorts.tables import write_table

    candidates = find_candidates(open_reader(arguments.dataset, arguments.data_dir))
    if arguments.on_bad_subject == "stop":
        reasons = {candidate["subject"]: candidate["excluded"] for candidate in candidates}
        stop_if_bad(reasons, arguments.dataset["cohort"])
    write_table(arguments.out, COLUMNS, candidates)


if __name__ == "__main__":
    run(main)
