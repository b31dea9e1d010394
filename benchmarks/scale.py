"""Cohorts larger than memory: time and memory of every stage, for growing numbers of subjects.

python benchmarks/scale.py --subjects 2500 5000 10000 20000 --memory-mb 8000

A made-up cohort (smoothed noise in which a few edges know the label, 20 sites, 200 ROIs, 300
frames) goes through the very programs that the workflow runs, each in a process of its own whose
largest resident memory the system reports. Training is that of one fold: two epochs of BRIO, the
second with a refresh of its qualifications at its beginning, and the linear rows.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
ROWS = ("brio", "linear-confounds", "linear-correlation", "linear-reestimation", "linear-tangent")


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--subjects", type=int, nargs="*", default=(2500, 5000, 10000, 20000))
    parser.add_argument("--rois", type=int, default=200)
    parser.add_argument("--frames", type=int, default=300)
    parser.add_argument("--sites", type=int, default=20)
    parser.add_argument("--memory-mb", type=int, default=8000)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--methods", nargs="*", default=ROWS)
    parser.add_argument("--folder", type=Path, help="where the cohort goes (default: temporary)")
    return parser.parse_args()


ARGUMENTS = parse()

import numpy as np  # noqa: E402
from common import common_settings, machine, smooth_noise, table  # noqa: E402

from brio_core.cohorts.cohort import PARTICIPANT_COLUMNS  # noqa: E402
from brio_core.cohorts.splits import split_checksum  # noqa: E402
from brio_core.cohorts.stores import Rois, write_series  # noqa: E402
from brio_core.cohorts.tables import write_table  # noqa: E402
from brio_core.system.files import read_json, write_json  # noqa: E402


def make(folder: Path, subjects: int) -> None:
    """participants.tsv and series.h5, scan by scan."""
    generator = np.random.default_rng(0)
    rois, frames = ARGUMENTS.rois, ARGUMENTS.frames
    label = np.arange(subjects) % 2
    site = np.arange(subjects) * ARGUMENTS.sites // subjects
    names = [f"s{index:06d}" for index in range(subjects)]

    def scan(index: int) -> np.ndarray:
        noise = smooth_noise(generator, frames, rois)
        noise[:, :10] += 0.3 * label[index] * noise[:, 10:20]
        return noise

    regions = Rois.named(f"roi{index}" for index in range(rois))
    write_series(folder / "series.h5", names, map(scan, range(subjects)), regions, {})
    rows = [
        {
            "subject": name, "site": f"site{site[index]:02d}", "label": label[index],
            "age": f"{generator.uniform(8, 60):.1f}", "sex": "MF"[generator.integers(2)],
            "mean_fd": f"{generator.uniform(0.05, 0.4):.3f}", "tr": "2", "group": "n/a",
            "source": name,
        }
        for index, name in enumerate(names)
    ]  # fmt: skip
    write_table(folder / "participants.tsv", PARTICIPANT_COLUMNS, rows)


class Cost(NamedTuple):
    """What a program took: seconds, processor seconds, peak gigabytes of resident memory."""

    seconds: float
    processor: float
    memory: float

    def __str__(self) -> str:
        return f"{self.seconds:.0f} s, {self.processor:.0f} s CPU, {self.memory:.2f} GB"


def run(*arguments: object) -> Cost:
    """Run one of the workflow's programs."""
    # One thread, as Snakemake has it; training is told otherwise.
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    begun = time.perf_counter()
    program = subprocess.Popen(
        [sys.executable, *map(str, arguments)], cwd=ROOT / "scripts", env=environment,
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
    )  # fmt: skip
    said = program.stderr.read().decode()
    _, status, usage = os.wait4(program.pid, 0)
    if status:
        raise SystemExit(f"{arguments[0]} failed:\n{said}")
    processor = usage.ru_utime + usage.ru_stime
    return Cost(time.perf_counter() - begun, processor, usage.ru_maxrss * 1024 / 1e9)


def one_fold(split: Path) -> None:
    content = read_json(split)
    content["folds"] = content["folds"][:1]
    write_json(split, {**content, "checksum": split_checksum(content)})


def params(method: str) -> str:
    changes = {}
    if method == "brio":
        # One refresh in two epochs: its length grows with subjects like that of an epoch.
        changes = {"epochs": 2, "warmup_epochs": 1, "first_epoch": 2, "refresh_interval": 10**6}
    hyperparameters = common_settings(method, **changes)
    return json.dumps(
        {"method": method, "label": method, "group": "-", "hyperparameters": hyperparameters}
    )


def stages(folder: Path) -> dict[str, Cost]:
    """Every stage with its seconds and gigabytes."""
    split, lengths = folder / "loso.json", folder / "block_length.json"
    series, people = folder / "series.h5", folder / "participants.tsv"
    measured = {"connect": run("connect.py", "--series", series, "--out", folder / "fc.h5")}
    measured["split"] = run(
        "split.py", "--participants", people, "--cohort", "scale", "--protocol", "loso",
        "--split-seed", 0, "--out", split,
    )  # fmt: skip
    one_fold(split)
    measured["blocklength"] = run(
        "blocklength.py", "--series", series, "--participants", people, "--split", split,
        "--settings", "{}", "--out", lengths,
    )  # fmt: skip
    for method in ARGUMENTS.methods:
        measured[f"train {method}"] = run(
            "train.py", "--cohort-dir", folder, "--split", split, "--block-length", lengths,
            "--variant", method, "--params", params(method), "--seed", 0, "--device", "cpu",
            "--out-dir", folder / method, "--threads", ARGUMENTS.threads,
            "--memory-mb", ARGUMENTS.memory_mb,
        )  # fmt: skip
        print(f"{method}: {measured[f'train {method}']}", file=sys.stderr, flush=True)
    return measured


def main() -> None:
    print(
        f"{machine('cpu')}; {ARGUMENTS.rois} ROIs, {ARGUMENTS.frames} frames, {ARGUMENTS.sites} "
        f"sites, {ARGUMENTS.threads} threads, a limit of {ARGUMENTS.memory_mb} MB\n"
    )
    found = {}
    for subjects in ARGUMENTS.subjects:
        with tempfile.TemporaryDirectory(dir=ARGUMENTS.folder) as folder:
            make(Path(folder), subjects)
            found[subjects] = stages(Path(folder))
    header = ("stage", *(f"{subjects:,} subjects" for subjects in found))
    rows = []
    for stage in next(iter(found.values())):
        rows.append((stage, *(found[subjects][stage] for subjects in found)))
    print(table(header, rows))


if __name__ == "__main__":
    main()
