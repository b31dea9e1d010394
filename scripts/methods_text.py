"""The methods section of a paper about this run, and BibTeX of what it cites."""

import argparse
from pathlib import Path

from brio_core.system import cli


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--config", required=True, metavar="YAML", help="run_config.yaml")
    parser.add_argument(
        "--citations", type=cli.json_argument, default={}, help="JSON: the origin of every method"
    )
    parser.add_argument("--references", nargs="+", required=True, metavar="BIB")
    parser.add_argument("--inclusion", nargs="+", required=True, metavar="TSV")
    parser.add_argument("--participants", nargs="+", required=True, metavar="TSV")
    parser.add_argument("--runs", nargs="+", required=True, metavar="PATH")
    parser.add_argument("--out", type=Path, required=True, help="Markdown")
    parser.add_argument("--bibtex", type=Path, required=True, help="BibTeX to write")
    arguments = parser.parse_args()

    from brio_core.reporting.cohorts import read_cohorts
    from brio_core.reporting.methods_text import methods_text, read_references
    from brio_core.reporting.results import read_runs
    from brio_core.reporting.tables.settings import read_yaml
    from brio_core.system.files import own_or_shipped, write_text

    text, bibtex = methods_text(
        read_yaml(arguments.config),
        read_runs(arguments.runs),
        read_cohorts(arguments.inclusion, arguments.participants),
        arguments.citations,
        read_references(map(own_or_shipped, arguments.references)),
    )
    write_text(arguments.bibtex, bibtex + "\n")
    fence = f"```bibtex\n{bibtex}\n```"
    write_text(arguments.out, f"# Methods\n\n{text}\n\n## References\n\n{fence}\n")


if __name__ == "__main__":
    cli.run(main)
