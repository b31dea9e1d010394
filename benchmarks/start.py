"""When a training program reaches its first step, and its end.

python benchmarks/start.py results/mine/remote/plan.json --device cuda

The plan is that of ``snakemake remote``. Its jobs run in its folder, with the device that it names,
each as a program of its own. Seconds count from where the program is started; the GPU has then done
all that it was asked for. The first program of a method is not counted: it compiles.
"""

import json
import os
import runpy
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import wraps
from pathlib import Path
from typing import Any

BEGUN, MARKS = "BRIO_BENCHMARK_BEGUN", "BRIO_BENCHMARK_MARKS"
STAGES = ("torch imported", "files read", "set up", "first step", "captured", "trained", "ended")


def mark(stage: str) -> None:
    """Note when a stage was reached."""
    import torch

    if torch.cuda.is_initialized():
        torch.cuda.synchronize()
    with open(os.environ[MARKS], "a") as stream:
        print(json.dumps([stage, time.time() - float(os.environ[BEGUN])]), file=stream)


def watch(owner: Any, name: str, *stages: str) -> None:
    """A function of ``owner`` reaches a stage whenever it returns, as long as there are some."""
    call, left = getattr(owner, name), list(stages)

    @wraps(call)
    def watched(*arguments: object, **options: object) -> object:
        found = call(*arguments, **options)
        if left:
            mark(left.pop(0))
        return found

    setattr(owner, name, watched)


def train(arguments: Sequence[str]) -> None:
    """What ``scripts/train.py`` does, noting when."""
    sys.argv = ["train.py", *arguments]
    submit = ThreadPoolExecutor.submit

    def submitted(*work: Any) -> Any:
        # The program imports all of this as soon as another thread reads.
        ThreadPoolExecutor.submit = submit
        found = submit(*work)
        from brio_core.system import devices
        from brio_core.system.replay import Replay
        from brio_core.training import run
        from brio_core.training.data import RunFiles
        from brio_core.training.gradient import GradientFit

        watch(devices, "start_torch", STAGES[0])
        watch(RunFiles, "read", STAGES[1])
        watch(GradientFit, "__init__", STAGES[2])
        watch(Replay, "__call__", STAGES[3], STAGES[4])
        watch(run, "search", STAGES[5])
        watch(run, "train_runs", STAGES[6])
        return found

    ThreadPoolExecutor.submit = submitted
    runpy.run_path("scripts/train.py", run_name="__main__")


def measure(folder: Path, arguments: Sequence[str]) -> list[float]:
    """Seconds at which a job has reached every stage."""
    with tempfile.NamedTemporaryFile("r") as marks:
        settings = {BEGUN: str(time.time()), MARKS: marks.name, "PYTHONPATH": str(folder)}
        command = [sys.executable, __file__, "--train", *arguments]
        subprocess.run(command, cwd=folder, env=os.environ | settings, check=True)
        found = dict(map(json.loads, marks))
        return [found[stage] for stage in STAGES]


def main() -> None:
    # Not above: this imports torch, and a program that is timed must do it at its own time.
    from common import argument_parser, begin, table

    parser = argument_parser(__doc__)
    parser.add_argument("plan", type=Path)
    parser.add_argument("--variants", nargs="+", default=["brio"])
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 5], help="how many at once")
    parser.add_argument("--times", type=int, default=2)
    asked = parser.parse_args()
    found: dict[str, list[str]] = {}
    for job in json.loads(asked.plan.read_text())["jobs"]:
        if not job["run"]:
            # The first of a variant, which plans have for unseen sites.
            found.setdefault(job["folder"].split("/")[-2], job["arguments"])
    if unknown := sorted(set(asked.variants) - set(found)):
        parser.error(f"the plan has no run of {unknown[0]}, only of {', '.join(found)}")
    rows = []
    for variant in asked.variants:
        for number, count in enumerate([1, *asked.seeds * asked.times]):
            with tempfile.TemporaryDirectory() as out:
                given = list(found[variant])
                folders = [f"{out}/{seed}" for seed in range(count)]
                for key, values in (("--seed", range(count)), ("--out-dir", folders)):
                    place = given.index(key) + 1
                    given[place : place + 1] = map(str, values)
                reached = measure(asked.plan.parent.resolve(), given)
            if number:
                rows.append((variant, count, *(f"{one:.1f}" for one in reached)))
    begin("Starting", asked.device)
    print(table(("variant", "seeds", *STAGES), sorted(rows, key=lambda row: row[:2])))


if __name__ == "__main__":
    train(sys.argv[2:]) if sys.argv[1:2] == ["--train"] else main()
