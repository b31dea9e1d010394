"""The page of a cohort with one line per subject: frames, motion, connectivity, exclusions."""

import argparse
from pathlib import Path

from brio_core.system import cli


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cohort-dir", type=Path, required=True, help="folder of the cohort")
    parser.add_argument(
        "--dataset", type=cli.json_argument, default={}, help="JSON: title and classes"
    )
    parser.add_argument("--out", required=True, help="HTML")
    arguments = parser.parse_args()

    from brio_core.reporting.pages.subjects import render
    from brio_core.system.files import write_text

    write_text(arguments.out, render(arguments.cohort_dir, arguments.dataset))


if __name__ == "__main__":
    cli.run(main)
