"""Make the demo cohort: a small synthetic multi-site study with images, always the same bytes."""

import argparse

from brio_core.system.cli import run


def main() -> None:
    """Write the cohort into a folder."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", required=True, help="folder to write, for example data/demo")
    arguments = parser.parse_args()

    from brio_core.cohorts.demo.cohort import make_demo

    make_demo(arguments.out)


if __name__ == "__main__":
    run(main)
