"""Train on another machine what 'snakemake handover' has prepared, and take the results back.

plan   (called by the rule) collect what the other machine needs
work   there: work the plan off, within a given time
pack   there: pack new results
take   here: check the results and put them in place
"""

import argparse
import math
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

# The package need not be installed: it lies beside this folder.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

# Beside this program; both import nothing heavy before they are run.
import diagnose
import train

from brio_core.system.cli import run
from brio_core.system.errors import BrioError

if TYPE_CHECKING:
    from brio_core.remote.plan import Job
    from brio_core.remote.work import Worker

BEGUN = time.monotonic()
PROGRAMS = {"train": train, "diagnose": diagnose}


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(required=True)

    one = commands.add_parser("plan", help="collect what the other machine needs")
    one.add_argument("--jobs", type=Path, required=True, help="what the workflow has written")
    one.add_argument("--folder", type=Path, required=True)
    one.set_defaults(action=plan)

    one = commands.add_parser("work", help="work the plan off")
    _plan_options(one)
    one.add_argument("--minutes", type=float, default=math.inf, help="stop after so many")
    one.add_argument("--processes", type=int, default=1, help="at the same time (default: 1)")
    one.add_argument("--device", choices=("auto", "cpu", "cuda"), help="for methods that use a GPU")
    one.add_argument("--threads", type=int, help="for every job (default: as the plan says)")
    one.add_argument("--memory-mb", type=int, help="of the host, for a job (default: the same)")
    one.add_argument("--checkpoint-seconds", type=float, default=20.0)
    one.add_argument(
        "--only", nargs="+", action="extend", default=[], metavar="PATTERN",
        help="jobs by variant, seed-0, cohort, …: 'brio*'",
    )  # fmt: skip
    one.add_argument("--without", nargs="+", action="extend", default=[], metavar="PATTERN")
    one.add_argument("--list", action="store_true", help="show the jobs and stop")
    one.add_argument(
        "--other-inputs", action="store_true", help="the cohort's files were made here"
    )
    one.add_argument("--pack", type=Path, dest="out", metavar="TAR", help="then pack new results")
    _pack_options(one)
    # For the processes that this program starts itself.
    one.add_argument("--call", help=argparse.SUPPRESS)
    one.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    one.set_defaults(action=work)

    one = commands.add_parser("pack", help="pack new results")
    _plan_options(one)
    one.add_argument("out", type=Path, metavar="TAR", help=".tar, or .tar.gz to compress")
    _pack_options(one)
    one.set_defaults(action=pack)

    one = commands.add_parser("take", help="check results and put them in place")
    one.add_argument("archives", type=Path, nargs="+", metavar="TAR")
    one.add_argument("--plan", type=Path, default=Path("results/handover/plan.json"))
    one.add_argument(
        "--other-inputs", action="store_true", help="accept results of other files of the cohort"
    )
    one.add_argument("--other-code", action="store_true", help="accept results of other code")
    one.set_defaults(action=take)
    return parser.parse_args()


def _plan_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("plan", type=Path, metavar="PLAN", help="plan.json")
    parser.add_argument("--results", type=Path, help="(default: 'results' beside the plan)")


def _pack_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--models", action="store_const", const=["*"], default=[], help="with the trained models"
    )
    parser.add_argument(
        "--models-of",
        nargs="+",
        dest="models",
        metavar="PATTERN",
        help="with those of some: 'brio*'",
    )
    parser.add_argument(
        "--part-size", type=float, default=math.inf, metavar="MB", help="several smaller files"
    )
    parser.add_argument("--all", action="store_true", help="also what was packed before")


def plan(arguments: argparse.Namespace) -> None:
    from brio_core.remote.plan import prepare

    made = prepare(arguments.jobs, PROGRAMS, arguments.folder)
    size = sum((arguments.folder / "results" / name).stat().st_size for name in made.inputs)
    print(f"{len(made.jobs)} jobs to do, {len(made.done)} are up to date")
    print(f"{arguments.folder} holds {size / 1e6:,.1f} MB of prepared files and the code")


def work(arguments: argparse.Namespace) -> None:
    from brio_core.remote.plan import read_plan
    from brio_core.remote.processes import describe_ends, run_together
    from brio_core.remote.work import Worker

    if arguments.processes < 1:
        raise BrioError(f"--processes {arguments.processes}: at least one is needed")
    root = arguments.results or arguments.plan.parent / "results"
    worker = Worker(
        read_plan(arguments.plan), root, PROGRAMS, arguments.only, arguments.without,
        arguments.call, arguments.processes,
    )  # fmt: skip
    if arguments.list:
        print("\n".join(worker.describe()))
        return
    if arguments.worker:
        _run(worker, arguments)
        return
    worker.check(not arguments.other_inputs)
    ends = []
    # More processes than jobs would only wait.
    arguments.processes = max(1, min(arguments.processes, len(worker.waiting)))
    if arguments.processes == 1:
        _run(worker, arguments)
    else:
        more = ["--worker", "--call", worker.claims.call, "--processes", arguments.processes]
        more += ["--minutes", max(0.0, _seconds_left(arguments)) / 60]
        command = [sys.executable, *sys.orig_argv[1:], *map(str, more)]
        ends = describe_ends(run_together([command] * arguments.processes))
        worker.look_again()
    failed = worker.claims.failed(job.folder for job in worker.chosen)
    left = [job for job in worker.waiting if job.folder not in failed]
    if left:
        print(f"{len(left)} jobs are left for the next call", flush=True)
    if arguments.out:
        pack(arguments)
    if failed:
        ends.append(f"{len(failed)} jobs have failed, see above; the first is {failed[0]}")
    if ends:
        raise BrioError("; ".join(ends))


def _seconds_left(arguments: argparse.Namespace) -> float:
    return 60 * arguments.minutes - (time.monotonic() - BEGUN)


def _run(worker: "Worker", arguments: argparse.Namespace) -> None:
    """Work in this process."""

    def options(job: "Job") -> list[str]:
        words = []
        if arguments.device and job.gpu:
            words += ["--device", arguments.device]
        if arguments.threads:
            words += ["--threads", str(arguments.threads)]
        if arguments.memory_mb:
            words += ["--memory-mb", str(arguments.memory_mb)]
        if job.program == "train":
            words += ["--checkpoint-seconds", str(arguments.checkpoint_seconds)]
        return words

    if arguments.processes > 1:
        from brio_core.system.devices import allow_sharing

        allow_sharing(arguments.processes)
    worker.run(_seconds_left(arguments), options)


def pack(arguments: argparse.Namespace) -> None:
    from brio_core.remote.pack import pack_new

    root = arguments.results or arguments.plan.parent / "results"
    parts = pack_new(
        arguments.plan, root, PROGRAMS, arguments.out, arguments.part_size,
        arguments.models, arguments.all,
    )  # fmt: skip
    if not parts:
        print("there are no new results to pack")
    for path in parts:
        print(f"{path}: {path.stat().st_size / 1e6:,.2f} MB")


def take(arguments: argparse.Namespace) -> None:
    from brio_core.remote.take import take as take_back

    take_back(
        arguments.archives, arguments.plan, PROGRAMS,
        not arguments.other_inputs, not arguments.other_code,
    )  # fmt: skip


def main() -> None:
    arguments = parse()
    arguments.action(arguments)


if __name__ == "__main__":
    run(main)
