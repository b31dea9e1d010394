"""Options that the programs of tables and figures share.

They stand apart from what all programs share, because a job runs again when code changes that it
imports: an option of a figure must not train models again.
"""

from argparse import ArgumentParser

from brio_core.system.cli import json_argument

INPUTS = {
    "summaries": ("CSV", "summaries of experiments"),
    "sites": ("CSV", "scores per fold"),
    "runs": ("DIR", "run folders"),
    "diagnostics": ("DIR", "folders of diagnostics, one per cell"),
    "block-lengths": ("JSON", "block lengths of the folds"),
    "inclusion": ("TSV", "inclusion.tsv of every cohort"),
    "participants": ("TSV", "participants.tsv of every cohort"),
    "profiles": ("TSV", "site profiles of the cohorts"),
}


def figure_options(description: str, *inputs: str) -> ArgumentParser:
    """The needed ``inputs`` of :data:`INPUTS`, what the cohorts are called, and where to draw."""
    return _options(description, inputs, "writes .pdf and .png")


def table_options(description: str, *inputs: str) -> ArgumentParser:
    """The same for a table."""
    return _options(description, inputs, "writes .csv .md .tex .json")


def experiment_options(
    description: str, *inputs: str, planned: bool | None = None
) -> ArgumentParser:
    """The same for a table of an experiment.

    ``planned`` says whether it needs to be told what was planned; None if that is of no use to it.
    """
    parser = table_options(description, *inputs)
    parser.add_argument(
        "--experiment", type=json_argument, required=True, help="JSON with title and caption"
    )
    if planned is not None:
        text = "JSON: settings and variants that belong there"
        parser.add_argument("--planned", type=json_argument, required=planned, help=text)
    return parser


def _options(description: str, inputs: tuple[str, ...], written: str) -> ArgumentParser:
    parser = ArgumentParser(description=description)
    for name in inputs:
        metavar, text = INPUTS[name]
        parser.add_argument(f"--{name}", nargs="+", required=True, metavar=metavar, help=text)
    parser.add_argument(
        "--datasets", type=json_argument, default={}, help="JSON: settings by cohort (title)"
    )
    parser.add_argument("--out-prefix", required=True, help=written)
    return parser
