"""Time a dry run of the whole paper: what every command pays before its first job."""

import argparse
import re
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def plan(configfile: str) -> tuple[float, str]:
    """Seconds of one dry run, and the number of jobs it says it has."""
    command = [sys.executable, "-m", "snakemake", "-n", "-q", "--configfile", configfile]
    begun = time.perf_counter()
    done = subprocess.run(command, cwd=ROOT, text=True, capture_output=True)
    seconds = time.perf_counter() - begun
    if done.returncode:
        sys.exit(done.stdout + done.stderr)
    found = re.search(r"jobs +([\d,]+)", done.stdout)
    return seconds, found[1] if found else "0"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--configfile", default="config/paper.yaml")
    parser.add_argument("--repeats", type=int, default=3)
    arguments = parser.parse_args()
    times = []
    for _ in range(arguments.repeats):
        seconds, jobs = plan(arguments.configfile)
        times.append(seconds)
    print(
        f"{arguments.configfile}: {jobs} jobs planned in {min(times):.1f} s "
        f"(best of {len(times)}, worst {max(times):.1f} s)"
    )


if __name__ == "__main__":
    main()
