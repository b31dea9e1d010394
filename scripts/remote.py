"""Train on another machine what 'snakemake remote' has planned, and take the results back."""

import argparse
import math
import sys
from pathlib import Path

# The package need not be installed: it lies beside this folder.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from brio_core.system.cli import run


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    commands = parser.add_subparsers(required=True)
    one = commands.add_parser("plan", help="called by the rule: collect what is needed there")
    one.add_argument("plan", type=Path, help="plan.json, to be written beside jobs.json")
    one.set_defaults(action=plan)
    one = commands.add_parser("work", help="there: do jobs and pack their results")
    one.add_argument("plan", type=Path, help="plan.json; results go to 'results' beside it")
    one.add_argument(
        "--minutes", type=float, default=math.inf, help="stop in time; 0: only show jobs"
    )
    one.add_argument("--only", nargs="+", default=["*"], metavar="PATTERN", help="such as 'brio*'")
    one.add_argument("--other-inputs", action="store_true", help="the cohort was made there")
    one.add_argument("--pack", type=Path, metavar="ZIP", help="then pack what is finished")
    one.add_argument("--models", action="store_true", help="pack the trained models too")
    one.set_defaults(action=work)
    one = commands.add_parser("take", help="here: check results and put them in place")
    one.add_argument("archives", type=Path, nargs="+", metavar="ZIP")
    one.add_argument("--plan", type=Path, default=Path("results/remote/plan.json"))
    one.add_argument("--other-inputs", action="store_true", help="accept those of other files")
    one.add_argument("--other-code", action="store_true", help="accept those of other code")
    one.set_defaults(action=take)
    arguments = parser.parse_args()
    arguments.action(arguments)


def plan(arguments: argparse.Namespace) -> None:
    from brio_core.remote.plan import prepare

    print(sum(not job.done for job in prepare(arguments.plan).jobs), "jobs to do")


def work(arguments: argparse.Namespace) -> None:
    from brio_core.remote.plan import check_files, do_jobs, pack, read_plan

    planned, folder = read_plan(arguments.plan), arguments.plan.resolve().parent
    chosen = planned.choose(arguments.only)
    check_files(planned, folder, arguments.other_inputs)
    failed = do_jobs(planned, folder, chosen, 60 * arguments.minutes)
    left = planned.unfinished(folder / "results")
    for job in chosen:
        print("waiting " if job in left else "finished", job.folder)
    if arguments.pack:
        finished = [job for job in chosen if job not in left]
        pack(finished, folder / "results", arguments.pack, arguments.models)
    if failed:
        sys.exit(f"error: failed, see above: {', '.join(failed)}")


def take(arguments: argparse.Namespace) -> None:
    from brio_core.remote.take import take

    accept = [key for key in ("inputs", "code") if vars(arguments)[f"other_{key}"]]
    print(take(arguments.archives, arguments.plan, accept))


if __name__ == "__main__":
    run(main)
