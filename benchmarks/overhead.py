"""What Snakemake itself costs.

python benchmarks/overhead.py plan             # a dry run of the whole paper, three times
python benchmarks/overhead.py load --cores 2   # the demo with all methods, protocols, three seeds

Every command pays for a plan before its first job. Under load, overhead is what the cores were paid
for beyond the jobs' own training.
"""

import argparse
import json
import re
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SNAKEMAKE = [sys.executable, "-m", "snakemake"]


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("what", choices=("plan", "load"))
    parser.add_argument("--configfile", default="config/paper.yaml", help="what is planned")
    parser.add_argument("--cores", type=int, default=2, help="cores under load")
    return parser.parse_args()


def plan(configfile: str, repeats: int = 3) -> None:
    """Print the seconds of the best of several dry runs."""
    times = []
    for _ in range(repeats):
        begun = time.perf_counter()
        command = [*SNAKEMAKE, "-n", "-q", "--configfile", configfile]
        done = subprocess.run(command, cwd=ROOT, text=True, capture_output=True)
        times.append(time.perf_counter() - begun)
        if done.returncode:
            sys.exit(done.stdout + done.stderr)
    found = re.search(r"jobs +([\d,]+)", done.stdout)
    print(
        f"{configfile}: {found[1] if found else 0} jobs planned in {min(times):.1f} s "
        f"(best of {repeats}, worst {max(times):.1f} s)"
    )


class Watch(threading.Thread):
    """The largest resident memory of a process and of any of its children, looked at often."""

    def __init__(self, process: int) -> None:
        import psutil

        super().__init__(daemon=True)
        self.process, self.gone = psutil.Process(process), psutil.NoSuchProcess
        self.own = self.largest = 0

    def run(self) -> None:
        while self.process.is_running() and self.process.status() != "zombie":
            self.own = max(self.own, self._resident(self.process))
            for child in self.process.children(recursive=True):
                self.largest = max(self.largest, self._resident(child))
            time.sleep(0.2)

    def _resident(self, process) -> int:
        try:
            return process.memory_info().rss
        except self.gone:
            return 0


def run_demo(folder: Path, cores: int) -> tuple[float, Watch]:
    """Seconds of the demo's main experiment with three seeds, and what its processes held."""
    import yaml

    demo = yaml.safe_load((ROOT / "config" / "config.yaml").read_text())
    many = {**demo, "experiments": ["main"], "seeds": [0, 1, 2]}
    (folder / "many.yaml").write_text(yaml.safe_dump(many))
    command = [*SNAKEMAKE, "--snakefile", str(ROOT / "Snakefile"), "main", "--quiet"]
    command += ["--directory", str(folder), "--cores", str(cores)]
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


def load(cores: int) -> None:
    """Print where the time of many short runs goes."""
    from common import machine, table

    with tempfile.TemporaryDirectory() as name:
        elapsed, watch = run_demo(Path(name), cores)
        results = Path(name) / "results"
        metas = [json.loads(path.read_text()) for path in (results / "runs").rglob("meta.json")]
        files = sum(path.is_file() for path in results.rglob("*"))
    training = sum(meta["training_seconds"] for meta in metas)
    jobs = sum(meta["seconds"] for meta in metas)
    paid = elapsed * cores
    minutes = {
        "wall time": elapsed,
        "core time": paid,
        "of it training": training,
        "of it reading, predicting and writing in training jobs": jobs - training,
        "overhead: starting programs, Snakemake, data, tables, figures": paid - jobs,
    }
    rows = [
        ("runs", len(metas)),
        ("folds", sum(len(meta["folds"]) for meta in metas)),
        ("files in results", files),
        *((f"{what}, minutes", f"{spent / 60:.1f}") for what, spent in minutes.items()),
        ("memory of Snakemake, MB", f"{watch.own / 1e6:.0f}"),
        ("memory of the largest job, MB", f"{watch.largest / 1e6:.0f}"),
    ]
    print(f"{machine('cpu')}, {cores} cores\n")
    print(table(("what", "measured"), rows))


def main() -> None:
    arguments = parse()
    if arguments.what == "plan":
        plan(arguments.configfile)
    else:
        load(arguments.cores)


if __name__ == "__main__":
    main()
