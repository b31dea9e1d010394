"""Volume by volume gives what nilearn's masker gives, and finds files that are damaged."""

import gzip
import os
import re
import subprocess
import sys
from pathlib import Path

import nibabel
import numpy as np
import pytest
from nilearn.maskers import NiftiLabelsMasker

from brio_core.cohorts.atlases.atlas import read_atlas
from brio_core.cohorts.readers.images import Extractor
from brio_core.cohorts.readers.label_means import LabelMeans, can_stream
from brio_core.cohorts.scan import Unusable
from tests.cohorts.layouts import AFFINE, SHAPE, labels, save

FRAMES = 70
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def atlas(tmp_path):
    return read_atlas(save(tmp_path / "labels.nii.gz", labels()), None, 4)


@pytest.fixture
def volume():
    return 1000 + 50 * np.random.default_rng(0).normal(size=(*SHAPE, FRAMES)).astype(np.float32)


def _extractor(atlas, **averaging):
    return Extractor(atlas, None, {"detrend": True, "standardize": "zscore_sample"}, 60, averaging)


def _masker_series(path):
    masker = NiftiLabelsMasker(nibabel.Nifti1Image(labels(), AFFINE), standardize=None)
    return masker.fit_transform(nibabel.load(path))


def _scaled(volume, dtype):
    image = nibabel.Nifti1Image(volume, AFFINE)
    image.set_data_dtype(dtype)
    if np.dtype(dtype).kind in "iu":
        image.header.set_slope_inter(0.05, 10)
    return image


@pytest.mark.parametrize("ending", ["nii.gz", "nii"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int16, np.uint8, ">f4", ">i2"])
def test_equals_the_masker_within_single_precision(atlas, volume, tmp_path, dtype, ending):
    path = tmp_path / f"bold.{ending}"
    endian = ">" if np.dtype(dtype).byteorder == ">" else "<"
    image = _scaled(volume / (100 if np.dtype(dtype).itemsize == 1 else 1), dtype)
    header = image.header.as_byteswapped(endian)
    nibabel.save(nibabel.Nifti1Image(np.asanyarray(image.dataobj), AFFINE, header), path)
    means, finite = _extractor(atlas).label_means(path)
    expected = _masker_series(path)
    assert finite.all()
    np.testing.assert_allclose(means, expected, rtol=5e-7)


def test_version_2_of_nifti(atlas, volume, tmp_path):
    nibabel.save(nibabel.Nifti2Image(volume, AFFINE), tmp_path / "bold.nii.gz")
    means, _ = _extractor(atlas).label_means(tmp_path / "bold.nii.gz")
    np.testing.assert_allclose(means, _masker_series(tmp_path / "bold.nii.gz"), rtol=5e-7)


def test_both_readers_give_the_same_cleaned_scan(atlas, volume, tmp_path):
    volume[2, 2, 3, 7] = np.nan
    volume[0, 0, 0, 9] = np.inf  # outside of all labels
    volume[1:5, 1:5, 2] = 500
    path = save(tmp_path / "bold.nii.gz", volume)
    streamed, masked = (
        _extractor(atlas, reader=reader).extract(path, 2.0) for reader in ("stream", "masker")
    )
    assert len(streamed.series) == len(masked.series) == FRAMES - 1
    assert len(streamed.dead) == len(masked.dead) == 1
    np.testing.assert_allclose(streamed.series, masked.series, atol=2e-4)


@pytest.mark.parametrize(
    ("averaging", "streams"),
    [
        ({}, True),
        ({"statistic": "mean", "smoothing_fwhm": None}, True),
        ({"statistic": "median"}, False),
        ({"smoothing_fwhm": 6}, False),
        ({"reader": "masker"}, False),
    ],
)
def test_streams_unless_something_needs_the_whole_image(
    atlas, volume, tmp_path, monkeypatch, averaging, streams
):
    used = []
    monkeypatch.setattr(
        LabelMeans, "read", lambda self, path, image: used.append(path) or (np.zeros((70, 4)), None)
    )
    extractor = _extractor(atlas, **averaging)
    assert extractor.streams == streams
    path = save(tmp_path / "bold.nii.gz", volume)
    if streams:
        with pytest.raises(TypeError):
            extractor.label_means(path)
    else:
        extractor.label_means(path)
    assert bool(used) == streams


def test_median_and_smoothing_are_the_maskers(atlas, volume, tmp_path):
    path = save(tmp_path / "bold.nii.gz", volume)
    image = nibabel.Nifti1Image(labels(), AFFINE)
    masker = NiftiLabelsMasker(image, strategy="median", smoothing_fwhm=4, standardize=None)
    means, _ = _extractor(atlas, statistic="median", smoothing_fwhm=4).label_means(path)
    np.testing.assert_allclose(means, masker.fit_transform(nibabel.load(path)), rtol=1e-6)


def test_complex_images_are_not_streamed(volume):
    assert can_stream(nibabel.Nifti1Image(volume, AFFINE))
    assert not can_stream(nibabel.Nifti1Image(volume.astype(np.complex64), AFFINE))


@pytest.mark.parametrize("reader", ["stream", "masker"])
@pytest.mark.parametrize(
    "damage",
    [
        lambda content: content[: len(content) // 2],
        lambda content: content[:200],
        lambda content: b"no image at all",
        lambda content: gzip.compress(gzip.decompress(content)[:-5000]),
    ],
    ids=["half", "start", "text", "short inside"],
)
def test_damaged_files_are_reasons(atlas, volume, tmp_path, damage, reader):
    path = save(tmp_path / "bold.nii.gz", volume)
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(Unusable, match=r"unreadable image: bold\.nii\.gz"):
        _extractor(atlas, reader=reader).extract(path, 2.0)


def test_wrong_checksum_at_the_end_is_noticed(atlas, volume, tmp_path):
    path = save(tmp_path / "bold.nii.gz", volume)
    content = bytearray(path.read_bytes())
    content[-8] ^= 1
    path.write_bytes(content)
    with pytest.raises(Unusable, match="CRC check failed"):
        _extractor(atlas).extract(path, 2.0)


def test_memory_does_not_grow_with_the_number_of_volumes(atlas, tmp_path):
    import tracemalloc

    peaks = []
    for frames in (70, 700):
        path = save(tmp_path / "bold.nii", np.ones((*SHAPE, frames), np.float32))
        extractor = _extractor(atlas)
        image = nibabel.load(path)
        extractor._prepare(image)
        tracemalloc.start()
        extractor._means.read(path, image)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    # What grows is the result: four means of eight bytes per frame, and copies of it.
    assert peaks[1] - peaks[0] < 630 * 4 * 8 * 4


@pytest.mark.slow
def test_benchmark_shows_the_gain():
    """Time is left to the benchmark's own page: here other programs may be running."""
    command = [sys.executable, str(ROOT / "benchmarks" / "extraction.py"), "--repeats", "1"]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    masker, ours = map(float, re.findall(r"\| (\d+) \|$", done.stdout, re.MULTILINE))
    assert ours < 100 < masker, "megabytes"
    assert float(done.stdout.split()[-1]) < 1e-6
