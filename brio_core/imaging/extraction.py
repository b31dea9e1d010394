"""From a 4D image to cleaned ROI series, with nilearn."""

import gc
import warnings
import zlib
from dataclasses import dataclass
from pathlib import Path

import nibabel
import numpy as np
from nilearn.interfaces.fmriprep import load_confounds
from nilearn.maskers import NiftiLabelsMasker
from nilearn.signal import clean

from brio_core.imaging.atlas import Atlas, shown
from brio_core.imaging.base import AtlasMisfit, Scan, Unusable, constant_columns
from brio_core.imaging.inclusion import too_few_frames


@dataclass
class Extractor:
    """Extracts all scans of a cohort; the atlas is resampled once per image grid.

    Parameters
    ----------
    atlas : Atlas
    confounds : dict or None
        Arguments of ``nilearn.interfaces.fmriprep.load_confounds``; None regresses nothing out.
    cleaning : dict
        ``detrend``, ``standardize``, ``high_pass`` and ``low_pass`` of ``nilearn.signal.clean``.
    min_frames : int
        A scan with fewer finite frames is not cleaned.
    """

    atlas: Atlas
    confounds: dict | None
    cleaning: dict
    min_frames: int

    def __post_init__(self):
        self._grid, self._masker = None, None
        # nilearn collects garbage whenever it touches an image; frozen, the imported modules are
        # not searched each time (0.04 instead of 0.3 s for a demo scan).
        gc.freeze()

    def extract(self, path: Path, tr: float | None) -> Scan:
        """Label means, cleaned; frames with a non-finite voxel in any ROI are dropped first."""
        image = _load(path)
        means, finite = self.label_means(image)
        kept = np.flatnonzero(finite)
        confounds, unscrubbed = self._load_confounds(path, len(means))
        if unscrubbed is not None:
            kept = np.intersect1d(kept, unscrubbed)
        if reason := too_few_frames(len(kept), self.min_frames):
            raise Unusable(reason, len(means), len(kept))
        constant = constant_columns(means[kept])
        series = self._clean(means, kept, confounds, tr)
        series[:, constant] = 0
        return Scan(series.astype(np.float32), len(means), int(constant.sum()), self.atlas.names)

    def label_means(self, image: nibabel.Nifti1Image) -> tuple[np.ndarray, np.ndarray]:
        """Mean over the voxels of each label, and which frames are finite in all of them.

        The masker turns non-finite voxels into zeros without a word, so they are looked for here.
        """
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            masker = self._masker_for(image)
            inside = np.asanyarray(masker.labels_img_.dataobj) != 0
            finite = np.isfinite(np.asanyarray(image.dataobj)[inside]).all(axis=0)
            means = masker.transform(image)
        return np.asarray(means, np.float64), finite

    def _masker_for(self, image: nibabel.Nifti1Image):
        """A masker with the labels on the grid of the image; most cohorts have one grid."""
        grid = (image.shape[:3], image.affine.tobytes())
        if grid != self._grid:
            labels = self.atlas.on_grid(image)
            if lost := self.atlas.lost_labels(labels):
                raise AtlasMisfit(
                    f"atlas does not fit: label(s) {shown(lost)} of {self.atlas.path.name} have no "
                    "voxel in the image"
                )
            self._masker = NiftiLabelsMasker(
                labels, standardize=None, resampling_target="data", verbose=0
            ).fit(image)
            self._grid = grid
        return self._masker

    def _load_confounds(self, path: Path, frames: int):
        if not (self.confounds and self.confounds["strategy"]):
            return None, None
        settings = dict(self.confounds)
        strategy = tuple(settings.pop("strategy"))
        try:
            confounds, unscrubbed = load_confounds(str(path), strategy=strategy, **settings)
        except (ValueError, KeyError, TypeError, OSError) as error:
            raise Unusable(f"unusable confounds: {error}") from None
        if len(confounds) != frames:
            raise Unusable(f"unusable confounds: {len(confounds)} rows for {frames} frames")
        return confounds, unscrubbed

    def _clean(self, means: np.ndarray, kept: np.ndarray, confounds, tr: float | None):
        settings = dict(self.cleaning)
        filtered = settings.get("high_pass") is not None or settings.get("low_pass") is not None
        if filtered and tr is None:
            raise Unusable("unknown repetition time: filtering needs it")
        sample_mask = kept.copy() if len(kept) < len(means) else None
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                return clean(
                    means,
                    confounds=confounds,
                    sample_mask=sample_mask,
                    t_r=tr,
                    filter="butterworth" if filtered else False,
                    **settings,
                )
        except ValueError as error:
            raise Unusable(f"cannot be cleaned: {error}", len(means), len(kept)) from None


def _load(path: Path) -> nibabel.Nifti1Image:
    """The image with its data in memory, as single precision."""
    try:
        image = nibabel.load(path)
        values = image.get_fdata(dtype=np.float32)
    except (
        OSError,
        EOFError,
        ValueError,
        zlib.error,
        nibabel.filebasedimages.ImageFileError,
    ) as error:
        raise Unusable(f"unreadable image: {path.name} ({error or type(error).__name__})") from None
    if values.ndim != 4:
        raise Unusable(f"unreadable image: {path.name} has {values.ndim} dimensions instead of 4")
    return nibabel.Nifti1Image(values, image.affine)
