"""Headers of images with changed bytes: each is read, or is the reason against one scan."""

import warnings

import nibabel
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from making import cases, damaged

from brio_core.cohorts.atlases.atlas import read_atlas
from brio_core.cohorts.readers.images import Extractor
from brio_core.cohorts.scan import Unusable

pytestmark = pytest.mark.fuzz
HEADER = 352


@pytest.fixture(scope="module")
def image(tmp_path_factory):
    """A small image and an extractor whose atlas fits it."""
    folder, generator = tmp_path_factory.mktemp("images"), np.random.default_rng(0)
    labels = np.zeros((6, 6, 6), np.int16)
    labels[1:5, 1:5, 1:3], labels[1:5, 1:5, 3:5] = 1, 2
    affine = np.diag([3.0, 3, 3, 1])
    nibabel.save(nibabel.Nifti1Image(labels, affine), folder / "atlas.nii")
    volume = 1000 + generator.normal(size=(6, 6, 6, 12)).astype(np.float32)
    nibabel.save(nibabel.Nifti1Image(volume, affine), folder / "image.nii")
    return folder / "image.nii", Extractor(read_atlas(folder / "atlas.nii", None, 2), None, {}, 5)


@cases(300)
@given(data=st.data())
def test_images(image, data):
    path, extractor = image
    content = path.read_bytes()
    changed = path.with_name("fuzzed.nii")
    changed.write_bytes(data.draw(damaged(content[:HEADER])) + content[HEADER:])
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            scan = extractor.extract(changed, 2.0)
    except Unusable as unusable:
        assert len(str(unusable)) <= 500
        return
    assert scan.series.shape[1] == 2 and np.isfinite(scan.series).all()
