"""Growing cohorts: time and memory of every stage, or of the search for copies of scans.

python benchmarks/scale.py --subjects 2500 5000 10000 20000 --memory-mb 8000
OMP_NUM_THREADS=1 python benchmarks/scale.py duplicates --subjects 1000 4000

A made-up cohort (smoothed noise in which a few edges know the label, 20 sites, 200 ROIs, 300
frames) goes through the very programs that the workflow runs, each in a process of its own whose
largest resident memory the system reports. Training is that of one fold: two epochs of BRIO, the
second with a refresh of its qualifications at its beginning, and the linear rows.

Copies are looked for in the files of the extract jobs. One scan in a thousand is a copy of its
predecessor that begins five frames later; all are found, or the program stops.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pandas as pd
from common import (
    ROOT,
    argument_parser,
    begin,
    common_settings,
    peak_memory,
    smooth_noise,
    table,
)

from brio_core.cohorts.cohort import PARTICIPANT_COLUMNS
from brio_core.cohorts.duplicates import Sketches
from brio_core.cohorts.extraction import ExtractedScans, write_batch
from brio_core.cohorts.scan import Scan
from brio_core.cohorts.splits import split_checksum
from brio_core.cohorts.stores import Rois, write_series
from brio_core.system.files import read_json, write_json

# A kind of connectivity may follow a method.
ROWS = (
    "brio", "linear-confounds", "linear-correlation", "linear-combat", "linear-reestimation",
    "linear-logarithm", "linear-logarithm:partial", "linear-tangent",
)  # fmt: skip
PARSER = argument_parser(__doc__)
PARSER.add_argument("what", nargs="?", choices=("stages", "duplicates"), default="stages")
PARSER.add_argument("--subjects", type=int, nargs="*", default=(2500, 5000, 10000, 20000))
PARSER.add_argument("--rois", type=int, default=200)
PARSER.add_argument("--frames", type=int, help="default: 300, of copies 200")
PARSER.add_argument("--sites", type=int, default=20)
PARSER.add_argument("--memory-mb", type=int, default=8000)
PARSER.add_argument("--methods", nargs="*", default=ROWS)
PARSER.add_argument("--folder", type=Path, help="where the cohort goes (default: temporary)")
ARGUMENTS = PARSER.parse_args()
FRAMES = ARGUMENTS.frames or (300 if ARGUMENTS.what == "stages" else 200)
# One scan of so many is a copy.
COPIES = 1000


def make(folder: Path, subjects: int) -> None:
    """participants.tsv and series.h5, scan by scan."""
    generator = np.random.default_rng(0)
    rois = ARGUMENTS.rois
    label = np.arange(subjects) % 2
    site = np.arange(subjects) * ARGUMENTS.sites // subjects
    names = [f"s{index:06d}" for index in range(subjects)]

    def scan(index: int) -> np.ndarray:
        noise = smooth_noise(generator, FRAMES, rois)
        noise[:, :10] += 0.3 * label[index] * noise[:, 10:20]
        return noise

    regions = Rois.named(f"roi{index}" for index in range(rois))
    write_series(folder / "series.h5", names, map(scan, range(subjects)), regions, {})
    people = pd.DataFrame({"subject": names, "label": label, "tr": 2, "group": "n/a"})
    people["site"] = [f"site{number:02d}" for number in site]
    people["age"] = generator.uniform(8, 60, subjects).round(1)
    people["sex"] = generator.choice(["M", "F"], subjects)
    people["mean_fd"] = generator.uniform(0.05, 0.4, subjects).round(3)
    people["source"] = names
    file = folder / "participants.tsv"
    people.to_csv(file, sep="\t", index=False, columns=PARTICIPANT_COLUMNS)


def run(*arguments: object) -> str:
    """Seconds, processor seconds and peak gigabytes of one of the workflow's programs."""
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
    seconds, processor = time.perf_counter() - begun, usage.ru_utime + usage.ru_stime
    cost = f"{seconds:.0f} s, {processor:.0f} s CPU, {usage.ru_maxrss * 1024 / 1e9:.2f} GB"
    print(arguments[0], cost, file=sys.stderr, flush=True)
    return cost


def params(method: str, kind: str) -> str:
    changes = {"connectivity": kind} if kind else {}
    if method == "brio":
        # One refresh in two epochs: its length grows with subjects like that of an epoch.
        changes |= {"epochs": 2, "warmup_epochs": 1, "first_epoch": 2, "refresh_interval": 10**6}
    params = {"method": method, "label": method, "group": "-"}
    return json.dumps(params | {"hyperparameters": common_settings(method, **changes)})


def stages(folder: Path) -> dict[str, str]:
    """Every stage with what it took."""
    split, lengths = folder / "loso.json", folder / "block_length.json"
    series, people = folder / "series.h5", folder / "participants.tsv"
    measured = {"connect": run("connect.py", "--series", series, "--out", folder / "fc.h5")}
    measured["split"] = run(
        "split.py", "--participants", people, "--cohort", "scale", "--protocol", "loso",
        "--split-seed", 0, "--out", split,
    )  # fmt: skip
    one_fold = read_json(split)
    one_fold["folds"] = one_fold["folds"][:1]
    write_json(split, {**one_fold, "checksum": split_checksum(one_fold)})
    measured["blocklength"] = run(
        "blocklength.py", "--series", series, "--participants", people, "--split", split,
        "--settings", "{}", "--out", lengths,
    )  # fmt: skip
    for row in ARGUMENTS.methods:
        method, _, kind = row.partition(":")
        measured[f"train {row}"] = run(
            "train.py", "--cohort-dir", folder, "--split", split, "--block-length", lengths,
            "--variant", method, "--params", params(method, kind), "--seed", 0, "--device", "cpu",
            "--out-dir", folder / row, "--threads", ARGUMENTS.threads,
            "--memory-mb", ARGUMENTS.memory_mb,
        )  # fmt: skip
    return measured


def made_up(subjects: int):
    """Scans with connectivity of their own, as :func:`write_batch` takes them."""
    draw, rois = np.random.default_rng(0), ARGUMENTS.rois
    shared = draw.standard_normal((30, rois), np.float32)
    for number in range(subjects):
        if number % COPIES != COPIES - 1:
            mixing = shared + 0.5 * draw.standard_normal((30, rois), np.float32)
            series = smooth_noise(draw, FRAMES, 30) @ mixing + smooth_noise(draw, FRAMES, rois)
        else:
            series = series[5:]
        yield f"s{number:05d}", Scan(series, len(series))


def search(subjects: int) -> tuple:
    """A row of the table of copies: seconds and megabytes."""
    with tempfile.TemporaryDirectory(dir=ARGUMENTS.folder) as folder:
        path = Path(folder) / "part.h5"
        write_batch(path, made_up(subjects))
        before, begun = peak_memory(), time.perf_counter()
        scans, sketches = ExtractedScans([path]), Sketches(ARGUMENTS.rois)
        names = [f"s{number:05d}" for number in range(subjects)]
        for subject in names:
            sketches.add(subject, scans.series(subject))
        read = time.perf_counter() - begun
        pairs = sketches.pairs(set(names))
        total = time.perf_counter() - begun
    expected = list(zip(names[COPIES - 2 :: COPIES], names[COPIES - 1 :: COPIES]))
    if [pair[:2] for pair in pairs] != expected:
        raise SystemExit(f"found {pairs} instead of {expected}")
    megabytes = max(0, peak_memory() - before) / 1e6
    return f"{subjects:,}", f"{read:.0f}", f"{total - read:.0f}", f"{total:.0f}", f"{megabytes:.0f}"


def every_stage() -> None:
    size = f"{ARGUMENTS.rois} ROIs, {FRAMES} frames, {ARGUMENTS.sites} sites"
    limits = f"{ARGUMENTS.threads} threads, a limit of {ARGUMENTS.memory_mb} MB"
    begin("Cohorts larger than memory", "cpu", f"; {size}, {limits}")
    found = {}
    for subjects in ARGUMENTS.subjects:
        with tempfile.TemporaryDirectory(dir=ARGUMENTS.folder) as folder:
            make(Path(folder), subjects)
            found[subjects] = stages(Path(folder))
    header = ("stage", *(f"{subjects:,} subjects" for subjects in found))
    named = list(found.values())
    rows = [(stage, *(costs[stage] for costs in named)) for stage in named[0]]
    print(table(header, rows))


def copies() -> None:
    rows = [search(subjects) for subjects in ARGUMENTS.subjects]
    begin("duplicates", "cpu", f"; {FRAMES} frames, {ARGUMENTS.rois} ROIs")
    header = ("scans", "read and sketched (s)", "compared (s)", "both (s)", "MB above the start")
    print(table(header, rows))


if __name__ == "__main__":
    every_stage() if ARGUMENTS.what == "stages" else copies()
