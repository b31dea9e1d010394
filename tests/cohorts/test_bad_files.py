"""One bad file never takes others down: it is an excluded subject, also where memory is scarce."""

import gzip
import json
import os
import resource
import struct
import subprocess
import sys
import zipfile
from io import BytesIO
from pathlib import Path

import h5py
import nibabel
import numpy as np
import pytest
from layouts import bids_dataset, write_atlas, write_run

ROOT = Path(__file__).resolve().parents[2]
MEMORY = 4 << 30
# Reads all candidates in one batch and prints what became of each.
PROGRAM = """
import json, sys
from brio_core.cohorts.candidates import find_candidates
from brio_core.cohorts.extraction import extract_batch
from brio_core.cohorts.readers.reader import open_reader
from brio_core.cohorts.scan import Scan

reader = open_reader(json.loads(sys.argv[1]), sys.argv[2])
found = {subject: isinstance(result, Scan) or str(result)
         for subject, result in extract_batch(reader, find_candidates(reader))}
print(json.dumps(found))
"""


def outcomes(dataset: dict, data_dir: Path) -> dict:
    """True for a subject that was read, else the reason, in a process of four gigabytes."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, json.dumps(dataset), str(data_dir)],
        capture_output=True, text=True, check=False,
        env=os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY)),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def write_participants(folder: Path, subjects) -> None:
    rows = [f"{name}\tA\t{('case', 'control')[i % 2]}" for i, name in enumerate(subjects)]
    text = "\n".join(["participant_id\tsite\tgroup", *rows]) + "\n"
    (folder / "participants.tsv").write_text(text)


# --- images: what a header may declare ----------------------------------------------------------
# Place and form of fields in the 348 bytes of NIfTI-1.
FIELDS = {
    "dim": (40, "8h"), "datatype": (70, "h"), "pixdim": (76, "8f"), "vox_offset": (108, "f"),
    "qform_code": (252, "h"), "sform_code": (254, "h"), "srow_x": (280, "4f"), "srow": (280, "12f"),
}  # fmt: skip
HEADERS = {
    "sformzero": {"srow": [0] * 12},
    "sformlarge": {"srow": [1e30] * 12},
    "sformnan": {"srow": [float("nan")] * 12},
    "flat": {"srow_x": [0] * 4},
    "pixdimzero": {"sform_code": [0], "qform_code": [0], "pixdim": [0] * 8},
    "dimnegative": {"dim": [4, -1, 6, 6, 80, 1, 1, 1]},
    "dimzero": {"dim": [4, 6, 6, 6, 0, 1, 1, 1]},
    "dim2000": {"dim": [4, 2000, 2000, 2000, 80, 1, 1, 1]},
    "dim32767": {"dim": [4, 32767, 32767, 32767, 32767, 1, 1, 1]},
    "dims": {"dim": [9, 6, 6, 6, 80, 1, 1, 1]},
    "frames": {"dim": [4, 6, 6, 6, 32767, 1, 1, 1]},
    "offsetlarge": {"vox_offset": [1e30]},
    "offsetnegative": {"vox_offset": [-1e9]},
    "offsetnan": {"vox_offset": [float("nan")]},
    "datatype": {"datatype": [12345]},
}


@pytest.mark.parametrize("averaging", [{}, {"reader": "masker"}], ids=["stream", "masker"])
def test_headers_of_images(tmp_path, averaging):
    folder = tmp_path / "small"
    write_atlas(folder)
    names = ["sub-good", *(f"sub-{name}" for name in HEADERS), "sub-bomb", "sub-last"]
    write_participants(folder, names)
    for name in names:
        func = folder / "derivatives/fmriprep" / name / "func"
        path = write_run(func, f"{name}_task-rest")
        content = bytearray(gzip.decompress(path.read_bytes()))
        for field, values in HEADERS.get(name.removeprefix("sub-"), {}).items():
            start, form = FIELDS[field]
            struct.pack_into(f"<{form}", content, start, *values)
        if name == "sub-bomb":
            # A few megabytes that hold what they declare, one volume of 16 GB or more.
            struct.pack_into("<8h", content, 40, 4, 2000, 2000, 2000, 1, 1, 1, 1)
            content += bytes(64 << 20)
        path.write_bytes(gzip.compress(bytes(content), 1))
    found = outcomes(bids_dataset(averaging=averaging), tmp_path)
    assert {name for name, reason in found.items() if reason is True} == {"sub-good", "sub-last"}
    for reason in set(found.values()) - {True}:
        assert reason.startswith(("unreadable image: ", "atlas does not fit: ")), reason
        assert "Error" not in reason or "HeaderDataError" in reason, reason


def test_sidecars_and_confounds(tmp_path):
    folder = tmp_path / "small"
    write_atlas(folder)
    texts = {
        "sub-digits": '{"RepetitionTime": 1' + "0" * 400 + "}",
        "sub-deep": "[" * 100_000,
        "sub-many": '{"RepetitionTime": 1' + "0" * 5000 + "}",
    }
    write_participants(folder, ["sub-good", *texts])
    for name in ("sub-good", *texts):
        path = write_run(folder / "derivatives/fmriprep" / name / "func", f"{name}_task-rest")
        if name in texts:
            path.with_name(path.name.replace(".nii.gz", ".json")).write_text(texts[name])
    found = outcomes(bids_dataset(), tmp_path)
    assert found["sub-good"] is True and found["sub-deep"] is True and found["sub-many"] is True
    assert found["sub-digits"] == "invalid repetition time: 10000000000000000000"


# --- series -------------------------------------------------------------------------------------
VALUES = np.random.default_rng(0).standard_normal((80, 8))


def npy(shape: str = "(80, 8)") -> bytes:
    stream = BytesIO()
    np.save(stream, VALUES)
    return stream.getvalue().replace(b"(80, 8)", shape.encode())


def npz(content: bytes) -> bytes:
    stream = BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        archive.writestr("series.npy", content)
    return stream.getvalue()


def hdf5(shape: tuple, **options) -> bytes:
    stream = BytesIO()
    with h5py.File(stream, "w") as store:
        store.create_dataset("series", shape, "f8", **options)
    return stream.getvalue()


def text(first: str = "") -> bytes:
    lines = ["\t".join(f"{value:.4f}" for value in row) for row in VALUES]
    return "\n".join([*([first] if first else []), *lines]).encode()


def bad_series() -> dict[str, bytes]:
    digits = "\t".join(["9" * 400, *["1.5"] * 7])
    zeros = gzip.compress(bytes(64 << 20), 9)
    return {
        "field.tsv": text("\t".join(["x" * 140_000, *"abcdefg"])),
        "field.csv": text("x" * 140_000 + ",1").replace(b"\t", b","),
        "digits.tsv": text() + b"\n" + digits.encode(),
        "whole.tsv": b"5\t3\n" * 80 + b"4\t" + b"9" * 400,
        "first.tsv": digits.encode() + b"\n" + text(),
        "more.tsv": "\t".join([*"1234567", "9" * 5000]).encode() + b"\n" + text(),
        "line.tsv.gz": zeros * 20,
        "named.npy": npz(npy()),
        "large.npy": npy("(100000000, 8)"),
        "huge.npy": npy("(10000000000000000, 80000)"),
        "negative.npy": npy("(-80, 8)"),
        "header.npy": npy("(80, [8)"),
        "named.npz": npy(),
        "large.npz": npz(npy("(100000000, 8)")),
        "bomb.npz": npz(npy() + bytes(1 << 30)),
        "large.h5": hdf5((10**8, 8)),
        "chunked.h5": hdf5((10**8, 8), chunks=(1000, 8), compression="gzip"),
        "empty.h5": hdf5((0, 0)),
        "large.mat": hdf5((10**8, 8)),
    }


def test_series(tmp_path):
    """All endings in one batch: the pattern of the dataset has the name of the file."""
    folder = tmp_path / "small"
    folder.mkdir()
    files = {"good.tsv": text(), **bad_series(), "good.npy": npy(), "good.npz": npz(npy())}
    for name, content in files.items():
        (folder / name).write_bytes(content)
    write_participants(folder, files)
    dataset = bids_dataset() | {
        "source": {"kind": "series", "folder": "small", "pattern": "{subject}"}
    }
    found = outcomes(dataset, tmp_path)
    # A long name of a region is none of ours, and an infinite number costs its frame.
    good = {"good.tsv", "good.npy", "good.npz"}
    may_be_good = good | {"field.tsv", "digits.tsv", "first.tsv"}
    assert good <= {name for name, reason in found.items() if reason is True} <= may_be_good
    for name in found.keys() - may_be_good:
        assert found[name].startswith(f"unreadable file: {name} ("), found[name]
        assert "Error" not in found[name] and len(found[name]) <= 500, found[name]


def test_what_nobody_foresaw_is_a_reason(tmp_path, monkeypatch):
    from brio_core.cohorts.candidates import find_candidates
    from brio_core.cohorts.extraction import extract_batch
    from brio_core.cohorts.readers import series
    from brio_core.cohorts.readers.reader import open_reader
    from brio_core.cohorts.scan import Scan

    for name in ("a.tsv", "b.tsv"):
        (tmp_path / name).write_bytes(text())
    write_participants(tmp_path, ["a.tsv", "b.tsv"])
    dataset = bids_dataset() | {"source": {"kind": "series", "folder": ".", "pattern": "{subject}"}}
    usual = series.series_scan

    def moody(path, variable):
        if path.name == "a.tsv":
            raise AssertionError("deep inside of a library")
        return usual(path, variable)

    monkeypatch.setattr(series, "series_scan", moody)
    reader = open_reader(dataset, tmp_path)
    first, second = (result for _, result in extract_batch(reader, find_candidates(reader)))
    assert str(first) == "unreadable file: a.tsv (AssertionError: deep inside of a library)"
    assert isinstance(second, Scan)


def test_nibabel_still_reads_the_good_image(tmp_path):
    """The limits let every image through that the tests of readers make."""
    from brio_core.cohorts.readers.label_means import open_image

    path = tmp_path / "x.nii"
    affine = np.diag([-0.4, 0.4, 0.4, 1])
    nibabel.save(nibabel.Nifti1Image(np.zeros((5, 6, 7, 3), np.int8), affine), path)
    assert open_image(path).shape == (5, 6, 7, 3)
