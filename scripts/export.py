"""Write what a data-use agreement lets one share: aggregates, without groups of few people."""

import argparse
from pathlib import Path

from brio_core.system import cli

README = """\
# Shared results

Aggregates only: no row, name or file of a person. Numbers that rest on fewer than {least} people
of a class are left empty. Further sites are empty where totals would give the first ones away:
what is left for each hidden count is a range of {least} people or more. Sites of which nobody is
used are not listed. Sites keep their names; rename them where these are confidential.

- `cohorts.csv`: people per site and class; excluded people for whole cohorts only.
- `scores-*.csv`: one row per method, with intervals, as in the tables.
- `sites-*.csv`: AUC and accuracy per test fold.

Scores have three digits. Two cohorts of the same people differ by those whom one of them leaves
out: share one of them. Check all files against your own agreement before you share them.
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--inclusion", nargs="+", required=True, metavar="TSV")
    parser.add_argument("--participants", nargs="+", required=True, metavar="TSV")
    parser.add_argument("--summaries", nargs="+", required=True, metavar="CSV")
    parser.add_argument("--sites", nargs="+", required=True, metavar="CSV", help="scores per fold")
    parser.add_argument("--smallest-group", type=int, required=True, help="fewest people shown")
    parser.add_argument(
        "--known-minimum", type=int, default=0, help="people of a class that every site has"
    )
    parser.add_argument("--out-dir", type=Path, required=True)
    arguments = parser.parse_args()

    import pandas as pd

    from brio_core.reporting.cohorts import read_cohorts, site_rows
    from brio_core.reporting.export import (
        hidden_sites,
        shared_cohorts,
        shared_scores,
        shared_summaries,
    )
    from brio_core.reporting.results import COSTS, read_summaries, read_table
    from brio_core.system.files import write_text

    out, least = arguments.out_dir, arguments.smallest_group
    cohorts = read_cohorts(arguments.inclusion, arguments.participants)
    rows = pd.concat([site_rows(cohort) for cohort in cohorts], ignore_index=True)
    shared = shared_cohorts(rows, least, arguments.known_minimum)
    hidden = hidden_sites(shared)
    write_text(out / "cohorts.csv", shared.to_csv(index=False))
    for path in arguments.summaries:
        scores = read_summaries([path]).drop(columns=list(COSTS), errors="ignore")
        scores = shared_summaries(scores, hidden)
        write_text(out / f"scores-{_name(path)}.csv", scores.to_csv(index=False))
    for path in arguments.sites:
        words = ("cohort", "protocol", "fold", "variant")
        scores = read_table(path, words, ("n", "positives", "auc", "acc"))
        scores = shared_scores(scores, hidden, least)
        write_text(out / f"sites-{_name(path)}.csv", scores.to_csv(index=False))
    write_text(out / "README.md", README.format(least=least))


def _name(path: str) -> str:
    """experiment-cohort-protocol, from where the summary lies."""
    parts = Path(path).parts[-3:]
    return "-".join([*parts[:2], Path(path).stem.removesuffix("-sites")])


if __name__ == "__main__":
    cli.run(main)
