"""What Snakemake itself costs.

python benchmarks/overhead.py plan               # a dry run of the whole paper, three times
python benchmarks/overhead.py load --threads 2   # the demo with all methods, protocols, three seeds

Every command pays for a plan before its first job. Under load, overhead is what the cores were paid
for beyond the jobs' own training.
"""

import json
import re
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import yaml
from common import ROOT, argument_parser, begin, peak_memory, table

SNAKEMAKE = [sys.executable, "-m", "snakemake"]
REPEATS = 3


def plan(configfile: str) -> None:
    """Print the seconds of the best of several dry runs."""
    times = []
    for _ in range(REPEATS):
        begun = time.perf_counter()
        command = [*SNAKEMAKE, "-n", "-q", "--configfile", configfile]
        done = subprocess.run(command, cwd=ROOT, text=True, capture_output=True)
        times.append(time.perf_counter() - begun)
        if done.returncode:
            sys.exit(done.stdout + done.stderr)
    begin("planning", "cpu")
    found = re.search(r"jobs +([\d,]+)", done.stdout)
    print(
        f"{configfile}: {found[1] if found else 0} jobs planned in {min(times):.1f} s "
        f"(best of {REPEATS}, worst {max(times):.1f} s)"
    )


def run_demo(folder: Path, cores: int) -> tuple[float, int]:
    """Seconds of the demo's main experiment with three seeds, and the memory of Snakemake."""
    demo = yaml.safe_load((ROOT / "config" / "config.yaml").read_text())
    many = {**demo, "experiments": ["main"], "seeds": [0, 1, 2]}
    (folder / "many.yaml").write_text(yaml.safe_dump(many))
    command = [*SNAKEMAKE, "--snakefile", str(ROOT / "Snakefile"), "main", "--quiet"]
    command += ["--directory", str(folder), "--cores", str(cores)]
    command += ["--configfile", str(folder / "many.yaml")]
    begun, memory = time.perf_counter(), 0
    with open(folder / "log", "w") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
        while process.poll() is None:
            memory = peak_memory(process.pid) or memory
            time.sleep(0.2)
    if process.returncode:
        sys.exit((folder / "log").read_text()[-2000:])
    return time.perf_counter() - begun, memory


def load(cores: int) -> None:
    """Print where the time of many short runs goes."""
    with tempfile.TemporaryDirectory() as name:
        elapsed, memory = run_demo(Path(name), cores)
        results = Path(name) / "results"
        metas = [json.loads(path.read_text()) for path in (results / "runs").rglob("meta.json")]
        files = sum(path.is_file() for path in results.rglob("*"))
    # The largest of all processes that have ended, in kilobytes; jobs need more than Snakemake.
    largest = 1024 * resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
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
        ("memory of Snakemake, MB", f"{memory / 1e6:.0f}"),
        ("memory of the largest job, MB", f"{largest / 1e6:.0f}"),
    ]
    begin("Many short runs", "cpu", f", {cores} cores")
    print(table(("what", "measured"), rows))


if __name__ == "__main__":
    PARSER = argument_parser(__doc__)
    PARSER.add_argument("what", nargs="?", choices=("plan", "load"), default="plan")
    PARSER.add_argument("--configfile", default="config/paper.yaml", help="what is planned")
    ARGUMENTS = PARSER.parse_args()
    plan(ARGUMENTS.configfile) if ARGUMENTS.what == "plan" else load(ARGUMENTS.threads)
