"""The page of a cohort with one line per subject. It stays with the data: nothing copies it.

Written without Jinja2 and Pillow, which the environment that reads connectivity does not have.
"""

import base64
import hashlib
import struct
import zlib
from collections.abc import Iterator
from html import escape
from math import isqrt
from pathlib import Path
from string import Template

import numpy as np
import pandas as pd

from brio_core.cohorts.stores import read_fc
from brio_core.reporting.cohorts import CohortTables, read_profiles
from brio_core.reporting.results import class_names, read_table
from brio_core.reporting.table import NONE, number, plural
from brio_core.system.errors import BrioError
from brio_core.system.files import ROOT

REPORT = ROOT / "workflow" / "report"
COLUMNS = (
    "Subject", "Site", "Class", "Frames", "Motion (mm)", "Constant ROIs", "Connectivity",
    "Distance to site", "Remark",
)  # fmt: skip
# Pixels of a side of a thumbnail, and of all thumbnails together: 5 million are about 3 MB.
SIDE, PIXELS = 48, 5_000_000
# Odd, so that one of them is white.
LEVELS = 15
_ENDS = ((0, 114, 178), (255, 255, 255), (213, 94, 0))


def render(folder: Path, dataset: dict) -> str:
    """The page of the cohort in ``folder``, as HTML; ``dataset`` says what it is called."""
    people = read_subjects(folder)
    names, matrices = read_fc(folder / "fc.h5")
    kept = people[people["kept"] == "yes"]
    if set(names) != set(kept["subject"]):
        raise BrioError(
            f"{folder}/fc.h5 and {folder}/inclusion.tsv list different subjects; run the workflow "
            "again so that both are made from the same cohort"
        )
    images = thumbnails(matrices)
    # Where the colours end, for all subjects alike: few values lie beyond.
    limit = max(float(np.quantile(np.abs(images), 0.99)), 1e-6) if images.size else 1.0
    site = kept.set_index("subject")["site"].loc[list(names)].to_numpy()
    pictures = dict(zip(names, (_image(one, limit) for one in images)))
    means = {
        name: _image(images[site == name].mean(axis=0), limit)
        for name in sorted(people["site"].unique())
        if (site == name).any()
    }
    script = (REPORT / "subjects.js").read_text(encoding="utf-8")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    cohort = CohortTables(folder.name, kept, people)
    reasons = "; ".join(f"{kind} ({count:,})" for kind, count in cohort.reasons.items())
    excluded = len(people) - len(kept)
    return Template((REPORT / "subjects.html").read_text(encoding="utf-8")).substitute(
        title=escape(dataset.get("title", folder.name)),
        summary=escape(
            f"{len(kept):,} of {plural(len(people), 'subject')} are in the cohort."
            + (f" {excluded:,} are not: {reasons}." if excluded else "")
        ),
        limit=f"{limit:.2f}",
        sites="\n".join(_sites(people, means)),
        heads="".join(f'<th scope="col">{escape(name)}</th>' for name in COLUMNS),
        rows="\n".join(_rows(people, pictures, class_names(dataset))),
        script=script,
        digest=digest,
    )


def read_subjects(folder: Path) -> pd.DataFrame:
    """One row per candidate: what the source says of it, what was decided, how it looks."""
    words = ("subject", "site", "kept", "reason")
    counts = ("frames_before", "frames_after", "constant_rois")
    decided = read_table(folder / "inclusion.tsv", words, ("label", *counts))
    asked = read_table(folder / "candidates.tsv", ("subject",), ("mean_fd",))
    profile = read_profiles([folder / "site_profile.tsv"])[folder.name]
    profile["distance"] = 1 - profile["typicality"]
    for other, columns in ((asked, ["mean_fd"]), (profile, ["distance", "outlier"])):
        decided = decided.merge(other[["subject", *columns]], "left", "subject", validate="1:1")
    decided["outlier"] = decided["outlier"].fillna("")
    return decided.sort_values(["site", "subject"], kind="stable", ignore_index=True)


def alike_together(mean: np.ndarray) -> np.ndarray:
    """An order of the regions of a matrix (P, P) that puts those with similar rows together.

    By their angle in the plane of the two leading eigenvectors, from the widest gap on.
    """
    if len(mean) < 3:
        return np.arange(len(mean))
    vectors = np.linalg.eigh(mean)[1][:, -2:]
    # Eigenvectors may come with either sign.
    vectors = vectors * np.where(vectors.sum(axis=0) < 0, -1, 1)
    angle = np.arctan2(vectors[:, 0], vectors[:, 1])
    order = np.argsort(angle, kind="stable")
    gaps = np.diff(angle[order], prepend=angle[order[-1]] - 2 * np.pi)
    return np.roll(order, -int(np.argmax(gaps)))


def thumbnails(matrices) -> np.ndarray:
    """Matrices (N, P, P) as means over squares (N, s, s), small enough for one page."""
    count, regions = matrices.shape[:2]
    mean = sum((matrices[row].astype(np.float64) for row in range(count)), np.zeros(1)) / count
    order = alike_together(np.broadcast_to(mean, (regions, regions)))
    side = max(1, min(SIDE, regions, isqrt(PIXELS // max(count, 1))))
    starts = np.arange(side) * regions // side
    size = np.diff([*starts, regions])
    found = np.empty((count, side, side), np.float32)
    for row in range(count):
        matrix = matrices[row][order][:, order]
        sums = np.add.reduceat(np.add.reduceat(matrix, starts, 0), starts, 1)
        found[row] = sums / np.outer(size, size)
    return found


def png(image: np.ndarray, limit: float) -> bytes:
    """Values from ``-limit`` (blue) over zero (white) to ``limit`` (orange), 4 bits a pixel."""
    level = np.rint((np.clip(image / limit, -1, 1) + 1) / 2 * (LEVELS - 1)).astype(np.uint8)
    height, width = level.shape
    even = np.pad(level, ((0, 0), (0, width % 2)))
    packed = (even[:, ::2] << 4) | even[:, 1::2]
    lines = np.pad(packed, ((0, 0), (1, 0))).tobytes()
    place = np.linspace(0, 2, LEVELS)
    palette = np.stack([np.interp(place, range(3), colour) for colour in zip(*_ENDS)], 1)
    parts = (
        (b"IHDR", struct.pack(">IIBBBBB", width, height, 4, 3, 0, 0, 0)),
        (b"PLTE", np.rint(palette).astype(np.uint8).tobytes()),
        (b"IDAT", zlib.compress(lines, 9)),
        (b"IEND", b""),
    )
    chunks = [
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        for kind, data in parts
    ]
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunks)


def _image(image: np.ndarray, limit: float) -> str:
    data = base64.b64encode(png(image, limit)).decode()
    return f'<img src="data:image/png;base64,{data}" alt="">'


def _sites(people: pd.DataFrame, means: dict[str, str]) -> Iterator[str]:
    """A link per site with its mean connectivity; the script makes a filter of it."""
    for place, (name, own) in enumerate(people.groupby("site")):
        kept = (own["kept"] == "yes").sum()
        text = f"{kept:,} in, {len(own) - kept:,} out"
        odd = (own["outlier"] != "").sum()
        text += f", {odd:,} stand out" if odd else ""
        yield (
            f'<li><a href="#site-{place}" data-site="{escape(name)}">{means.get(name, "")}'
            f"<b>{escape(name)}</b><span>{text}</span></a></li>"
        )


def _rows(people: pd.DataFrame, pictures: dict, classes: tuple[str, str]) -> Iterator[str]:
    first = {name: place for place, name in enumerate(sorted(people["site"].unique()))}
    for row in people.itertuples():
        # The first row of a site is where its link leads.
        place = first.pop(row.site, None)
        anchor = "" if place is None else f' id="site-{place}"'
        is_in = row.kept == "yes"
        state = ("odd" if row.outlier else "in") if is_in else "out"
        frames = number(row.frames_after, ".0f")
        if row.frames_before > row.frames_after:
            frames += f" of {row.frames_before:.0f}"
        label = NONE if np.isnan(row.label) else classes[int(row.label)]
        remark = row.outlier if is_in else f"excluded: {row.reason}"
        cells = [
            _cell(row.site, row.site),
            _cell(label, label),
            _cell(frames, row.frames_after),
            _cell(number(row.mean_fd, ".2f"), row.mean_fd),
            _cell(number(row.constant_rois, ".0f"), row.constant_rois),
            f"<td>{pictures.get(row.subject, NONE)}</td>",
            _cell(number(row.distance, ".3f"), row.distance),
            f'<td class="left">{escape(remark)}</td>',
        ]
        yield (
            f'<tr{anchor} class="{state}" data-site="{escape(row.site)}">'
            f'<th scope="row">{escape(row.subject)}</th>{"".join(cells)}</tr>'
        )


def _cell(text: str, value: str | float) -> str:
    """A cell and what it is sorted by; unknown numbers have nothing and come last."""
    if isinstance(value, str):
        return f'<td class="left">{escape(text)}</td>'
    sort = "" if np.isnan(value) else f' data-value="{value:g}"'
    return f"<td{sort}>{escape(text)}</td>"
