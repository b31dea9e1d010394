"""The choices that the paper leaves open, with our values and where to change them."""

import argparse
from pathlib import Path

from brio_core.system import cli

ROOT = Path(__file__).resolve().parents[1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--config", required=True, metavar="YAML", help="run_config.yaml")
    parser.add_argument("--methods", nargs="+", required=True, metavar="YAML")
    parser.add_argument("--schemas", default=ROOT / "workflow" / "schemas", metavar="DIR")
    parser.add_argument(
        "--stated", type=cli.json_argument, required=True,
        help="JSON: settings that the paper states, by method",
    )  # fmt: skip
    parser.add_argument("--out-prefix", required=True, help="writes .csv .md .tex .json")
    parser.add_argument("--others-prefix", required=True, help="the same for BRIO's competitors")
    arguments = parser.parse_args()

    from brio_core.reporting.settings import open_choices, settings_tables
    from brio_core.reporting.writing import write_table

    # A path is looked for in the working directory first, then in the repository.
    methods = [path if Path(path).exists() else ROOT / path for path in arguments.methods]
    rows = open_choices(arguments.config, methods, arguments.schemas, arguments.stated)
    prefixes = (arguments.out_prefix, arguments.others_prefix)
    for prefix, (part, table) in zip(prefixes, settings_tables(rows)):
        write_table(prefix, part, table)


if __name__ == "__main__":
    cli.run(main)
