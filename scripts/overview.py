"""The overview page: one self-contained HTML file to be read from top to bottom."""

import argparse

from brio_core.system import cli


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tables", nargs="+", required=True, metavar="JSON")
    parser.add_argument("--figures", nargs="*", required=True, metavar="PNG")
    parser.add_argument("--summaries", nargs="+", required=True, metavar="CSV")
    parser.add_argument("--sites", nargs="+", required=True, metavar="CSV")
    parser.add_argument(
        "--runs", nargs="+", required=True, metavar="PATH", help="run folders or .runs.json files"
    )
    parser.add_argument("--config", required=True, metavar="YAML", help="shown as it is")
    parser.add_argument(
        "--datasets", type=cli.json_argument, default={}, help="JSON: settings by cohort (title)"
    )
    parser.add_argument(
        "--command", default="snakemake --cores all", help="how the page says to repeat the run"
    )
    parser.add_argument(
        "--methods-text", default="", metavar="MD", help="methods of a paper about this run"
    )
    parser.add_argument("--out", required=True, help="HTML")
    arguments = parser.parse_args()

    from brio_core.reporting.pages.overview import render
    from brio_core.system.files import write_text

    write_text(arguments.out, render(**vars(arguments)))


if __name__ == "__main__":
    cli.run(main)
