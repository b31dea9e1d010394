"""The demo's sites and effects as ROI series: no images, no files, nobody who is unusable."""

import numpy as np

from brio_core.cohorts.arrays import LabelledScans, Scans, series_of
from brio_core.cohorts.demo import model
from brio_core.cohorts.stores import Rois
from brio_core.system.seeds import numpy_generator

# Of unit signals: what is left of a voxel's noise in the mean of a region.
NOISE = 1.0


def demo_scans(per_site: int = 14) -> LabelledScans:
    """Seven sites with as many patients (1) as controls (0); always the same numbers."""
    scans, people = [], []
    for site in model.SITES:
        for _ in range(per_site):
            subject, label = f"sub-{len(people) + 1:03d}", 1 - len(people) % 2
            draw = numpy_generator("demo-series", subject)
            signals = model.roi_signals(site, subject, bool(label), site.frames, draw)
            noise = model.autoregressive(draw, signals.shape, site.noise_colour)
            scans.append(((signals + NOISE * noise) * site.gain).astype(np.float32))
            about = (draw.uniform(18, 60), float(draw.integers(2)), draw.uniform(0.05, 0.3))
            people.append((subject, label, site.name, about))
    subjects, y, sites, covariates = zip(*people)
    rois = Rois(model.NAMES, model.CENTROIDS.astype(np.float32), model.HEMISPHERES)
    return LabelledScans(
        Scans(series_of(scans, subjects, rois), "demo-series"),
        np.array(y),
        np.array(sites),
        np.array(covariates, np.float32),
        np.full(len(y), "n/a"),
    )
