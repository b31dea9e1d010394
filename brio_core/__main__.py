"""Describe, check and fetch cohorts, predict the scans of a new site, run the workflow.

Arguments are read before anything heavy is imported, so that help comes at once.
"""

import argparse
import inspect
import os
import sys
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

from brio_core.system.cli import run
from brio_core.system.errors import BrioError
from brio_core.system.files import IN_CLONE, ROOT, make_planning_importable, write_text

# Its help and messages call it what the user did.
SNAKEMAKE = "import sys; sys.argv[0] = 'brio run'; from snakemake.cli import main; main()"
# A longer table would hide what is said after it.
LONGEST_TABLE = 100


def check(arguments: argparse.Namespace) -> None:
    """Read everything that a dataset file describes, and change nothing.

    Prints the inclusion table, the counts per site and reason, and every problem. The table of more
    than 100 subjects is written to a file instead. Exit code 1 if the workflow could not run on
    this cohort.
    """
    make_planning_importable()
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
    make_planning_importable()
    from workflow.planning.schema import read_dataset

    dataset = read_dataset(arguments.dataset)
    if dataset["source"]["kind"] != "pcp":
        advice = dataset["how_to_get"].strip()
        raise BrioError(f"cohort {dataset['cohort']} cannot be downloaded by a program; {advice}")

    from brio_core.cohorts.readers.pcp import PcpReader, download

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


def new_cohort(arguments: argparse.Namespace) -> None:
    """Describe a new cohort: write its dataset file and a configuration, then check them.

    What the files tell need not be said. On a terminal the rest is asked, and what the files tell
    is offered; an empty answer takes it.
    """
    make_planning_importable()
    from brio_core.cohorts.new_cohort import METHODS, Answers, as_yaml, configuration, describe
    from workflow.planning.files import read_yaml
    from workflow.planning.loading import load
    from workflow.planning.schema import check as check_schema
    from workflow.planning.schema import schema

    name, data_dir = arguments.name, arguments.data_dir
    paths = Path("config", "datasets", f"{name}.yaml"), Path("config", f"{name}.yaml")
    for path in paths:
        if path.exists():
            raise BrioError(f"{path} is there already; edit it, or choose another name")
    asks = sys.stdin.isatty() and not arguments.yes
    answers = Answers(vars(arguments), input if asks else None)
    dataset = describe(name, data_dir, answers)
    config = configuration(dataset, data_dir, arguments.methods or METHODS)
    check_schema(dataset, schema("dataset"), "the new dataset file")
    texts = {path: as_yaml(content) for path, content in zip(paths, (dataset, config))}
    # Methods and all else are checked elsewhere first, so that a mistake leaves no file behind.
    with TemporaryDirectory() as folder:
        copies = [Path(folder, path) for path in paths]
        for copy, text in zip(copies, texts.values()):
            write_text(copy, text)
        try:
            if IN_CLONE:
                load(read_yaml(copies[1]), [copies[1]])
        except BrioError as error:
            raise BrioError(str(error).replace(f"{folder}{os.sep}", "")) from None
    for path, text in texts.items():
        write_text(path, text)
        print(f"{path}:\n{text}")
    if not arguments.no_check:
        check(argparse.Namespace(dataset=paths[0], data_dir=data_dir, split_seed=0, table=None))
    print(f"\nrun it: brio run --configfile {paths[1]}")


def run_workflow(words: list[str]) -> None:
    """Become Snakemake, with the clone's Snakefile in the current folder."""
    if not IN_CLONE:
        raise BrioError(
            "'brio run' needs a clone of the repository, and this package is installed without "
            "one; call 'make venv' in a clone, and then its .venv/bin/brio"
        )
    if find_spec("snakemake") is None:
        raise BrioError(
            "'brio run' needs Snakemake, which this environment lacks; call 'make venv' in "
            f"{ROOT}, and then its .venv/bin/brio"
        )
    # Rules call `python`, which must be this one.
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    # Without -P, files of the current folder could take the place of packages.
    command = [sys.executable, "-P", "-c", SNAKEMAKE, "--snakefile", str(ROOT / "Snakefile")]
    sys.stdout.flush()
    os.execve(sys.executable, [*command, *words], os.environ | {"PATH": path})


def _count(text: str) -> int:
    count = int(text)
    if count < 0:
        raise argparse.ArgumentTypeError(f"{text} is below 0")
    return count


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
    one.add_argument("--reestimates", type=_count, default=20, help="of each scan (20)")
    one.add_argument("--device", choices=("cpu", "cuda"), default="cpu", help="(cpu)")

    one = add("card", card, ("bundle", "the model bundle"))
    one.add_argument("--out", type=Path, required=True, help="folder for card.md and card.html")

    one = add("new-cohort", new_cohort)
    one.add_argument("name", help="name of the cohort, such as mine")
    one.add_argument("--data-dir", type=Path, default=Path("data"), help="of all cohorts (data)")
    one.add_argument("--folder", help="the cohort's folder there (its name)")
    one.add_argument("--participants", help="table of subjects (participants.tsv)")
    for role in ("subject", "site", "label", "age", "sex", "mean-fd", "group"):
        one.add_argument(f"--{role}", metavar="COLUMN", help=f"column with the {role}")
    one.add_argument("--positive", metavar="VALUE", help="value of class 1, such as patient")
    one.add_argument("--negative", metavar="VALUE", help="value of class 0, such as control")
    one.add_argument("--kind", choices=("series", "bids"), help="ROI series, or BIDS derivatives")
    one.add_argument("--pattern", help="file of a subject, such as series/{subject}.tsv")
    for key in ("derivatives", "task", "space", "atlas"):
        one.add_argument(f"--{key}", help=f"{key} of BIDS derivatives")
    one.add_argument("--rois", type=int, help="number of ROIs")
    one.add_argument("--methods", nargs="+", help="methods to run (three linear models)")
    one.add_argument("--yes", action="store_true", help="ask nothing, take what the files tell")
    one.add_argument("--no-check", action="store_true", help="do not read the scans")

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
