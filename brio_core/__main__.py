"""Check and fetch cohorts, predict the scans of a new site, run the workflow.

Arguments are read before anything heavy is imported, so that help comes at once.
"""

import argparse
import inspect
import os
import sys
from importlib.util import find_spec
from pathlib import Path

from brio_core.system.cli import run
from brio_core.system.errors import BrioError

CLONE = Path(__file__).resolve().parents[1]
# A longer table would hide what is said after it.
LONGEST_TABLE = 100


def need_clone(command: str) -> None:
    """Make the planning code importable, which lies beside the package in a clone."""
    if not (CLONE / "workflow" / "Snakefile").is_file():
        raise BrioError(
            f"'brio {command}' needs a clone of the repository, but the package in {CLONE} is "
            "alone; call 'make venv' in a clone, and then its .venv/bin/brio"
        )
    if str(CLONE) not in sys.path:
        sys.path.insert(0, str(CLONE))


def check(arguments: argparse.Namespace) -> None:
    """Read everything that a dataset file describes, and change nothing.

    Prints the inclusion table, the counts per site and reason, and every problem. The table of more
    than 100 subjects is written to a file instead. Exit code 1 if the workflow could not run on
    this cohort.
    """
    need_clone("check")
    from brio_core.cohorts.check import check_cohort
    from brio_core.cohorts.inclusion import COLUMNS
    from brio_core.cohorts.tables import write_table
    from workflow.planning.schema import read_dataset

    dataset = read_dataset(arguments.dataset)
    report = check_cohort(dataset, arguments.data_dir, arguments.split_seed)
    if arguments.dataset.stem != dataset["cohort"]:
        report.notes.append(
            f"to run it, save the file as config/datasets/{dataset['cohort']}.yaml, like its cohort"
        )
    if len(report.rows) <= LONGEST_TABLE:
        print(report.text())
    else:
        path = arguments.table or Path(f"check-{dataset['cohort']}.tsv")
        write_table(path, COLUMNS, report.rows)
        print(report.text(path))
    if report.errors:
        sys.exit(1)


def fetch(arguments: argparse.Namespace) -> None:
    """Download an open cohort (ABIDE, source kind pcp) into the data folder.

    What is there already is kept, and a call that was interrupted goes on where it ended.
    """
    need_clone("fetch")
    from workflow.planning.schema import read_dataset

    dataset = read_dataset(arguments.dataset)
    if dataset["source"]["kind"] != "pcp":
        advice = dataset["how_to_get"].strip()
        raise BrioError(f"cohort {dataset['cohort']} cannot be downloaded by a program; {advice}")

    from brio_core.cohorts.readers.pcp import PcpReader
    from brio_core.cohorts.readers.pcp_download import download

    reader = PcpReader(dataset, arguments.data_dir)
    came, there = download(reader, arguments.attempts, arguments.wait, arguments.url)
    print(f"{came} scans downloaded, {there} were there; check them with 'brio check'")


def predict(arguments: argparse.Namespace) -> None:
    """Predict the scans of a new site with a model bundle. Not for clinical use."""
    from brio_core.reporting.new_site import predict_scans

    labels, reestimates = arguments.labels, arguments.reestimates
    predict_scans(
        arguments.bundle, arguments.scans, arguments.out, labels, reestimates, arguments.device
    )


def card(arguments: argparse.Namespace) -> None:
    """Write the card of a model bundle: what it is for, and what to expect of it."""
    from brio_core.reporting.card import write_card

    write_card(arguments.bundle, arguments.out)


def run_workflow(words: list[str]) -> None:
    """Become Snakemake, with the clone's Snakefile in the current folder."""
    need_clone("run")
    if find_spec("snakemake") is None:
        raise BrioError(
            "'brio run' needs Snakemake, which this environment lacks; call 'make venv' in "
            f"{CLONE}, and then its .venv/bin/brio"
        )
    # Rules call `python`, which must be this one.
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    # Without -P, files of the current folder could take the place of packages.
    command = [sys.executable, "-P", "-m", "snakemake", "--snakefile", str(CLONE / "Snakefile")]
    sys.stdout.flush()
    os.execve(sys.executable, [*command, *words], os.environ | {"PATH": path})


def parser() -> argparse.ArgumentParser:
    """All commands and their options."""
    top = argparse.ArgumentParser(prog="brio", description=__doc__.splitlines()[0])
    commands = top.add_subparsers(dest="command", metavar="COMMAND", required=True)

    def add(name: str, action, *positional: tuple[str, str]) -> argparse.ArgumentParser:
        text = inspect.cleandoc(action.__doc__)
        command = commands.add_parser(
            name,
            help=text.split("\n")[0],
            description=text,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        command.set_defaults(action=action)
        for argument, about in positional:
            command.add_argument(argument, type=Path, help=about)
        return command

    dataset = ("dataset", "dataset file, such as config/datasets/mine.yaml")
    one = add("check", check, dataset)
    one.add_argument("--data-dir", default="data", help="the folder of all cohorts (data)")
    one.add_argument("--split-seed", type=int, default=0, help="as in the configuration (0)")
    one.add_argument("--table", type=Path, help="where to write a long table (check-COHORT.tsv)")

    one = add("fetch", fetch, dataset)
    one.add_argument("--data-dir", default="data", help="the folder of all cohorts (data)")
    one.add_argument("--attempts", type=int, default=5, help="how often a file is tried (5)")
    one.add_argument("--wait", type=float, default=2.0, help="seconds before the second (2)")
    one.add_argument("--url", help="another server with the project's files")

    scans = ("scans", "a folder of ROI series, BIDS derivatives, or series.h5")
    one = add("predict", predict, ("bundle", "the model bundle"), scans)
    one.add_argument("--out", type=Path, required=True, help="folder for table and page")
    one.add_argument("--labels", type=Path, help="table with the true classes, to be scored")
    one.add_argument("--reestimates", type=int, default=20, help="of each scan (20)")
    one.add_argument("--device", choices=("cpu", "cuda"), default="cpu", help="(cpu)")

    one = add("card", card, ("bundle", "the model bundle"))
    one.add_argument("--out", type=Path, required=True, help="folder for card.md and card.html")

    # Its words are Snakemake's, so this is here for the help only.
    commands.add_parser("run", help="Run Snakemake with the Snakefile of the clone.")
    return top


def main() -> None:
    """What ``brio`` does with the arguments of the command line."""
    if sys.argv[1:2] == ["run"]:
        return run_workflow(sys.argv[2:])
    arguments = parser().parse_args()
    return arguments.action(arguments)


def command() -> None:
    """The entry point of the installed package."""
    run(main)


if __name__ == "__main__":
    command()
