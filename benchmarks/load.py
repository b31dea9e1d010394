"""Many short cells in one run: what Snakemake itself costs in time and memory.

python benchmarks/load.py --cores 2

Runs the demo cohort with all methods, both protocols and three seeds, and watches the processes.
Overhead is what the cores were paid for beyond the jobs' own training.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--seeds", type=int, default=3)
    return parser.parse_args()


ARGUMENTS = parse()

import psutil  # noqa: E402
import yaml  # noqa: E402
from common import machine, table  # noqa: E402


class Watch(threading.Thread):
    """The largest resident memory of a process and of any of its children, looked at often."""

    def __init__(self, process: int) -> None:
        super().__init__(daemon=True)
        self.process = psutil.Process(process)
        self.own = self.largest = 0

    def run(self) -> None:
        while self.process.is_running() and self.process.status() != psutil.STATUS_ZOMBIE:
            self.own = max(self.own, _resident(self.process))
            for child in self.process.children(recursive=True):
                self.largest = max(self.largest, _resident(child))
            time.sleep(0.2)


def _resident(process: psutil.Process) -> int:
    try:
        return process.memory_info().rss
    except psutil.NoSuchProcess:
        return 0


def run(folder: Path) -> tuple[float, Watch]:
    """Seconds of the whole run, and what its processes held."""
    demo = yaml.safe_load((ROOT / "config" / "config.yaml").read_text())
    many = {**demo, "experiments": ["main"], "seeds": list(range(ARGUMENTS.seeds))}
    (folder / "many.yaml").write_text(yaml.safe_dump(many))
    command = [sys.executable, "-m", "snakemake", "--snakefile", str(ROOT / "Snakefile")]
    command += ["main", "--directory", str(folder), "--cores", str(ARGUMENTS.cores), "--quiet"]
    command += ["--configfile", str(folder / "many.yaml")]
    begun = time.perf_counter()
    with open(folder / "log", "w") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
        watch = Watch(process.pid)
        watch.start()
        if process.wait():
            sys.exit((folder / "log").read_text()[-2000:])
    elapsed = time.perf_counter() - begun
    watch.join()
    return elapsed, watch


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        elapsed, watch = run(Path(name))
        runs = Path(name) / "results" / "runs"
        metas = [json.loads(path.read_text()) for path in runs.rglob("meta.json")]
        files = sum(1 for path in (Path(name) / "results").rglob("*") if path.is_file())
    training = sum(meta["training_seconds"] for meta in metas)
    jobs = sum(meta["seconds"] for meta in metas)
    paid = elapsed * ARGUMENTS.cores
    print(f"{machine('cpu')}, {ARGUMENTS.cores} cores\n")
    rows = [
        ("cells", len(metas)),
        ("folds", sum(len(meta["folds"]) for meta in metas)),
        ("files in results", files),
        ("wall time, minutes", f"{elapsed / 60:.1f}"),
        ("core time, minutes", f"{paid / 60:.1f}"),
        ("of it training, minutes", f"{training / 60:.1f}"),
        ("of it reading, predicting and writing in training jobs, minutes",
         f"{(jobs - training) / 60:.1f}"),
        ("overhead: starting programs, Snakemake, data, tables, figures, minutes",
         f"{(paid - jobs) / 60:.1f}"),
        ("memory of Snakemake, MB", f"{watch.own / 1e6:.0f}"),
        ("memory of the largest job, MB", f"{watch.largest / 1e6:.0f}"),
    ]  # fmt: skip
    print(table(("what", "measured"), rows))


if __name__ == "__main__":
    main()
