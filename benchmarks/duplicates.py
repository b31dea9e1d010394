"""Looking for copies of scans in cohorts of several sizes, from the files of the extract jobs.

One scan in a thousand is a copy of its predecessor that begins five frames later; all are found,
or the program stops. Call it with OMP_NUM_THREADS=1, as the workflow calls its jobs.
"""

import time
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from common import argument_parser, begin, peak_memory, smooth_noise, table

from brio_core.cohorts.duplicates import Sketches
from brio_core.cohorts.extraction import ExtractedScans, write_batch
from brio_core.cohorts.scan import Scan

ROIS, FRAMES, COPIES = 200, 200, 1000


def made_up(subjects: int):
    """Scans with connectivity of their own, as :func:`write_batch` takes them."""
    draw = np.random.default_rng(0)
    shared = draw.standard_normal((30, ROIS), np.float32)
    for number in range(subjects):
        if number % COPIES != COPIES - 1:
            mixing = shared + 0.5 * draw.standard_normal((30, ROIS), np.float32)
            series = smooth_noise(draw, FRAMES, 30) @ mixing + smooth_noise(draw, FRAMES, ROIS)
        else:
            series = series[5:]
        yield number, f"s{number:05d}", Scan(series, len(series), 0)


def measure(subjects: int) -> tuple:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "part.h5"
        write_batch(path, made_up(subjects))
        before, begun = peak_memory(), time.perf_counter()
        scans, sketches = ExtractedScans([path]), Sketches(ROIS)
        names = [f"s{number:05d}" for number in range(subjects)]
        for subject, series in zip(names, scans.series(names)):
            sketches.add(subject, series)
        read = time.perf_counter() - begun
        pairs = sketches.pairs(set(names))
        total = time.perf_counter() - begun
    expected = list(zip(names[COPIES - 2 :: COPIES], names[COPIES - 1 :: COPIES]))
    if [pair[:2] for pair in pairs] != expected:
        raise SystemExit(f"found {pairs} instead of {expected}")
    megabytes = max(0, peak_memory() - before) / 1e6
    return f"{subjects:,}", f"{read:.0f}", f"{total - read:.0f}", f"{total:.0f}", f"{megabytes:.0f}"


def main(sizes: list[int]) -> None:
    rows = [measure(size) for size in sizes]
    begin("duplicates", "cpu", f"; {FRAMES} frames, {ROIS} ROIs")
    header = ("scans", "read and sketched (s)", "compared (s)", "both (s)", "MB above the start")
    print(table(header, rows))


if __name__ == "__main__":
    PARSER = argument_parser(__doc__)
    PARSER.add_argument("--sizes", type=int, nargs="+", default=[1000, 4000])
    ARGUMENTS = PARSER.parse_args()
    main(ARGUMENTS.sizes)
