"""From an image to series: against label means written out and nilearn's cleaning."""

import warnings
from contextlib import suppress

import nibabel
import numpy as np
import pytest
from nilearn.interfaces.fmriprep import load_confounds
from nilearn.signal import clean

from brio_core.cohorts.atlases.atlas import read_atlas
from brio_core.cohorts.candidates import find_candidates
from brio_core.cohorts.demo import cohort as demo_cohort
from brio_core.cohorts.extraction import extract_batch
from brio_core.cohorts.readers.images import Extractor
from brio_core.cohorts.readers.reader import open_reader
from brio_core.cohorts.scan import AtlasMisfit, Unusable
from brio_core.system import signals
from brio_core.system.errors import BrioError


@pytest.fixture(scope="module")
def source(demo_data, load_dataset):
    return open_reader(load_dataset("demo"), demo_data)


@pytest.fixture(scope="module")
def candidates(source):
    return {candidate["subject"]: candidate for candidate in find_candidates(source)}


def _expected(source, candidate, dropped=()):
    """Label means one by one, then nilearn's cleaning of the frames that are left."""
    path = source.data_dir / candidate["source"]
    volume = nibabel.load(path).get_fdata(dtype=np.float32).astype(float)
    labels = demo_cohort.label_volume()
    means = np.stack([volume[labels == label].mean(0) for label in range(1, 25)], 1)
    kept = np.setdiff1d(np.arange(len(means)), dropped)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        confounds, _ = load_confounds(
            str(path), strategy=("motion", "wm_csf"), motion="basic", wm_csf="basic"
        )
        return clean(
            means,
            confounds=confounds,
            sample_mask=kept if len(dropped) else None,
            detrend=True,
            standardize="zscore_sample",
            high_pass=0.01,
            low_pass=0.1,
            t_r=float(candidate["tr"]),
        )


@pytest.mark.parametrize("subject", ["sub-002", "sub-040", "sub-100"])
def test_equals_plain_label_means_and_nilearn(source, candidates, subject):
    candidate = candidates[subject]
    scan = source.read(source.data_dir / candidate["source"], float(candidate["tr"]))
    np.testing.assert_allclose(scan.series, _expected(source, candidate), atol=1e-3)
    assert (scan.dead, scan.frames_before) == ((), len(scan.series))


def test_non_finite_frames_are_dropped_before_cleaning(source, candidates):
    candidate = candidates["sub-003"]
    scan = source.read(source.data_dir / candidate["source"], float(candidate["tr"]))
    expected = _expected(source, candidate, dropped=(17, 18, 61))
    assert len(scan.series) == scan.frames_before - 3
    np.testing.assert_allclose(scan.series, expected, atol=1e-3)


def test_constant_roi_is_exactly_zero(source, candidates):
    candidate = candidates["sub-017"]
    scan = source.read(source.data_dir / candidate["source"], float(candidate["tr"]))
    assert scan.dead == (20,)
    assert (scan.series[:, 20] == 0).all()
    assert (np.delete(scan.series, 20, 1).std(0) > 0.9).all()


def test_confounds_are_regressed_out(source, candidates):
    candidate = candidates["sub-002"]
    path = source.data_dir / candidate["source"]
    settings = {"detrend": True, "standardize": "zscore_sample"}
    confounds = {"strategy": ["motion", "wm_csf"], "motion": "basic", "wm_csf": "basic"}
    with_motion = Extractor(source.atlas, None, settings, 60).extract(path, 0.8).series
    without = Extractor(source.atlas, confounds, settings, 60).extract(path, 0.8).series
    motion, _ = load_confounds(str(path), strategy=("motion",), motion="basic")

    def most(series):
        return np.abs(np.corrcoef(series.T, motion.to_numpy().T)[:24, 24:]).max()

    assert most(with_motion) > 0.2
    assert most(without) < 0.1


def test_atlas_on_a_finer_grid_lands_on_the_image(source):
    image = nibabel.Nifti1Image(np.zeros(demo_cohort.SHAPE, np.float32), demo_cohort._affine())
    assert source.atlas.image.shape != image.shape
    resampled = np.asanyarray(source.atlas.on_grid(image).dataobj)
    np.testing.assert_array_equal(resampled, demo_cohort.label_volume())


def test_filtering_needs_a_repetition_time(source, candidates):
    with pytest.raises(Unusable, match="unknown repetition time"):
        source.read(source.data_dir / candidates["sub-002"]["source"], None)


def test_one_image_on_another_grid_does_not_lose_the_batch(demo_data, load_dataset):
    """The atlas misses one image of two: that subject is excluded. It misses all: an error."""
    good = open_reader(load_dataset("demo"), demo_data)
    rows = {c["subject"]: c for c in find_candidates(good)}
    shifted = demo_data / "shifted.nii.gz"
    image = nibabel.load(demo_data / rows["sub-002"]["source"])
    affine = image.affine.copy()
    affine[:3, 3] += 90
    nibabel.save(nibabel.Nifti1Image(image.get_fdata(), affine), shifted)
    bad = rows["sub-001"] | {"source": shifted.name}
    results = list(extract_batch(good, [bad, rows["sub-002"]]))
    assert isinstance(results[0][1], AtlasMisfit)
    assert len(results[1][1].series) > 100
    with pytest.raises(BrioError, match=r"atlas of cohort demo fits none .* label\(s\) "):
        list(extract_batch(good, [bad]))
    shifted.unlink()


def test_a_signal_is_no_bad_scan(source, candidates, monkeypatch):
    """Libraries in C may make an error of their own of what a handler has raised."""

    def read(*given):
        with suppress(KeyboardInterrupt):
            signals.interrupt(15, None)
        raise RuntimeError("can't read data")

    monkeypatch.setattr(signals, "_received", [])
    monkeypatch.setattr(source, "read_runs", read)
    with pytest.raises(KeyboardInterrupt):
        list(extract_batch(source, [candidates["sub-002"]]))


def test_three_dimensional_image_is_a_reason(source, candidates, tmp_path):
    path = tmp_path / "flat.nii.gz"
    nibabel.save(nibabel.Nifti1Image(np.zeros((3, 3, 3), np.float32), np.eye(4)), path)
    with pytest.raises(Unusable, match="has 3 dimensions instead of 4"):
        source.read(path, 2.0)


@pytest.fixture
def atlas_files(tmp_path):
    image, names = tmp_path / "labels.nii.gz", tmp_path / "labels.tsv"

    def write(labels, rows, columns="index\tname"):
        volume = np.zeros((4, 4, 4), np.int16)
        volume.flat[: len(labels)] = labels
        nibabel.save(nibabel.Nifti1Image(volume, np.eye(4)), image)
        names.write_text("\n".join([columns, *rows]) + "\n")
        return image, names

    return write


def test_atlas_columns_follow_the_labels(atlas_files):
    image, names = atlas_files([2001, 5], ["2001\tPrecentral", "5\tInsula", "0\tbackground"])
    atlas = read_atlas(image, names, 2)
    assert atlas.regions.rois.names == ("Insula", "Precentral")
    assert atlas.regions.rois.centroids.tolist() == [[0, 0, 1], [0, 0, 0]]
    assert atlas.regions.rois.hemispheres == ("n/a", "n/a")


@pytest.mark.parametrize(
    ("labels", "rows", "columns", "sentence"),
    [
        ([1, 2], ["1\ta", "2\tb", "3\tc"], "index\tname", r"does not hold the label\(s\) 3 "),
        ([1, 2, 3], ["1\ta", "2\tb"], "index\tname", r"does not name the label\(s\) 3 "),
        ([1, 2], ["1\ta", "1\tb"], "index\tname", "names one label twice"),
        ([1, 2], ["1\ta", "2\tb"], "number\tname", "has no column 'index'"),
        ([1, 2], ["one\ta", "2\tb"], "index\tname", "must hold the whole numbers"),
        ([1, 2, 3], ["1\ta", "2\tb", "3\tc"], "index\tname", "has 3 labels, but rois.expected"),
    ],
)
def test_atlas_that_does_not_match_is_one_sentence(atlas_files, labels, rows, columns, sentence):
    image, names = atlas_files(labels, rows, columns)
    with pytest.raises(BrioError, match=sentence):
        read_atlas(image, names, 2)
