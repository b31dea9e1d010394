"""From a 4D image to cleaned ROI series, with nilearn."""

import gc
import warnings
from dataclasses import dataclass, field
from pathlib import Path

import nibabel
import numpy as np
from nilearn.interfaces.fmriprep import load_confounds, load_confounds_strategy
from nilearn.maskers import NiftiLabelsMasker
from nilearn.signal import clean

from brio_core.cohorts.atlases.atlas import Atlas
from brio_core.cohorts.atlases.regions import shown
from brio_core.cohorts.inclusion import too_few_frames
from brio_core.cohorts.readers.label_means import (
    IMAGE_ERRORS,
    LabelMeans,
    can_stream,
    open_image,
    unreadable,
)
from brio_core.cohorts.scan import AtlasMisfit, Scan, Unusable, constant_columns


@dataclass
class Extractor:
    """Extracts all scans of a cohort; the atlas is resampled once per image grid.

    Parameters
    ----------
    atlas : Atlas
    confounds : dict or None
        Arguments of ``nilearn.interfaces.fmriprep.load_confounds``, or of
        ``load_confounds_strategy`` if ``denoise_strategy`` is one of them; None regresses nothing
        out.
    cleaning : dict
        ``detrend``, ``standardize``, ``high_pass`` and ``low_pass`` of ``nilearn.signal.clean``.
    min_frames : int
        A scan with fewer finite frames is not cleaned.
    averaging : dict
        ``statistic`` and ``smoothing_fwhm`` of the masker, and ``reader``: ``stream``, ``masker``,
        or ``auto``, which streams unless something needs the whole image.
    """

    atlas: Atlas
    confounds: dict | None
    cleaning: dict
    min_frames: int
    averaging: dict = field(default_factory=dict)

    def __post_init__(self):
        self._grid, self._labels, self._masker, self._means = None, None, None, None
        # nilearn collects garbage whenever it touches an image; frozen, the imported modules are
        # not searched each time (0.04 instead of 0.3 s for a demo scan).
        gc.freeze()

    def extract(self, path: Path, tr: float | None) -> Scan:
        """Label means, cleaned; frames with a non-finite voxel in any ROI are dropped first."""
        means, finite = self.label_means(path)
        kept = np.flatnonzero(finite)
        confounds, unscrubbed = self._load_confounds(path, len(means))
        if unscrubbed is not None:
            kept = np.intersect1d(kept, unscrubbed)
        if reason := too_few_frames(len(kept), self.min_frames):
            raise Unusable(reason, len(means), len(kept))
        series = self._clean(means, kept, confounds, tr)
        series[:, constant_columns(means[kept])] = 0
        return Scan(series.astype(np.float32), len(means), self.atlas.regions.rois.names)

    def label_means(self, path: Path) -> tuple[np.ndarray, np.ndarray]:
        """Mean over the voxels of each label, and which frames are finite in all of them."""
        image = open_image(path)
        self._prepare(image)
        if self.streams and can_stream(image):
            means, finite = self._means.read(path, image)
        else:
            means, finite = self._masked_means(path, image)
        # The cleaning would spread one bad frame over all others.
        return np.where(finite[:, None], means, 0), finite

    @property
    def streams(self) -> bool:
        """Whether one volume after the other is enough."""
        whole = self.averaging.get("smoothing_fwhm") is not None
        whole |= self.averaging.get("statistic", "mean") != "mean"
        reader = self.averaging.get("reader", "auto")
        return reader == "stream" or (reader == "auto" and not whole)

    def _masked_means(self, path: Path, image) -> tuple[np.ndarray, np.ndarray]:
        """By nilearn's masker, which turns non-finite voxels into zeros without a word."""
        try:
            values = image.get_fdata(dtype=np.float32)
        except IMAGE_ERRORS as error:
            raise unreadable(path, error) from None
        loaded = nibabel.Nifti1Image(values, image.affine)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            if self._masker is None:
                self._masker = NiftiLabelsMasker(
                    self._labels,
                    strategy=self.averaging.get("statistic", "mean"),
                    smoothing_fwhm=self.averaging.get("smoothing_fwhm"),
                    standardize=None,
                    resampling_target="data",
                    verbose=0,
                ).fit(loaded)
            inside = np.asanyarray(self._masker.labels_img_.dataobj) != 0
            finite = np.isfinite(values[inside]).all(axis=0)
            means = self._masker.transform(loaded)
        return np.asarray(means, np.float64), finite

    def _prepare(self, image: nibabel.Nifti1Image) -> None:
        """Put the labels on the grid of the image; most cohorts have one grid."""
        grid = (image.shape[:3], image.affine.tobytes())
        if grid == self._grid:
            return
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            labels = self.atlas.on_grid(image)
        if lost := self.atlas.lost_labels(labels):
            raise AtlasMisfit(
                f"atlas does not fit: label(s) {shown(lost)} of {self.atlas.regions.path.name} "
                "have no voxel in the image"
            )
        self._grid, self._labels, self._masker = grid, labels, None
        self._means = LabelMeans.of(np.asanyarray(labels.dataobj))

    def _load_confounds(self, path: Path, frames: int):
        options = dict(self.confounds or {})
        strategy = tuple(options.pop("strategy", ()))
        try:
            if "denoise_strategy" in options:
                confounds, unscrubbed = load_confounds_strategy(str(path), **options)
            elif strategy:
                confounds, unscrubbed = load_confounds(str(path), strategy=strategy, **options)
            else:
                return None, None
        except (ValueError, KeyError, TypeError, OSError) as error:
            raise Unusable(f"unusable confounds: {error}") from None
        if len(confounds) != frames:
            raise Unusable(f"unusable confounds: {len(confounds)} rows for {frames} frames")
        return confounds, unscrubbed

    def _clean(self, means: np.ndarray, kept: np.ndarray, confounds, tr: float | None):
        filtered = any(self.cleaning.get(name) is not None for name in ("high_pass", "low_pass"))
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
                    **self.cleaning,
                )
        except ValueError as error:
            raise Unusable(f"cannot be cleaned: {error}", len(means), len(kept)) from None
