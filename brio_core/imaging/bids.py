"""Preprocessed images in a BIDS-derivatives layout, as fMRIPrep writes them."""

import json
from functools import cached_property
from pathlib import Path

from brio_core.imaging.base import Scan, Source
from brio_core.imaging.tables import read_table

_ENDING = "desc-preproc_bold.nii.gz"


class BidsSource(Source):
    """``participants.tsv`` and one preprocessed 4D image with a confounds table per subject."""

    @property
    def table_path(self) -> Path:
        name = self.settings.get("participants", "participants.tsv")
        return self.need(self.inside(self.root, name, "source.participants"))

    def table(self):
        return read_table(self.table_path)

    def check(self) -> None:
        _ = self.atlas

    def scan_path(self, row: dict) -> Path:
        subject = row[self.dataset["columns"]["subject"]]
        subject = subject if subject.startswith("sub-") else f"sub-{subject}"
        session, run = self.settings.get("session"), self.settings.get("run")
        folder = f"{subject}/ses-{session}" if session else subject
        entities = [subject, f"task-{self.settings['task']}", f"space-{self.settings['space']}"]
        if session:
            entities.insert(1, f"ses-{session}")
        if run:
            entities.insert(-1, f"run-{run}")
        name = "_".join([*entities, _ENDING])
        relative = f"{self.settings['derivatives']}/{folder}/func/{name}"
        return self.inside(self.root, relative, f"the image of subject {subject}")

    def repetition_time(self, path: Path) -> float | None:
        sidecar = path.with_name(path.name.removesuffix(".nii.gz") + ".json")
        try:
            return json.loads(sidecar.read_text(encoding="utf-8")).get("RepetitionTime")
        except (OSError, ValueError, AttributeError):
            return None

    @cached_property
    def atlas(self):
        from brio_core.imaging.atlas import read_atlas

        setting = self.settings["atlas"]
        image = self.need(self.inside(self.root, setting["image"], "source.atlas.image"))
        names = setting.get("names")
        if names is not None:
            names = self.need(self.inside(self.root, names, "source.atlas.names"))
        return read_atlas(image, names, self.dataset["rois"]["expected"])

    @cached_property
    def _extractor(self):
        from brio_core.imaging.extraction import Extractor
        from brio_core.imaging.inclusion import Rules

        return Extractor(
            self.atlas,
            self.settings.get("confounds"),
            self.settings.get("cleaning") or {},
            Rules.of(self.dataset).min_frames,
        )

    def read(self, path: Path, tr: float | None) -> Scan:
        return self._extractor.extract(path, tr)

    def rois(self, names: tuple[str, ...]):
        from brio_core.cohort import Rois

        return Rois(self.atlas.names, self.atlas.centroids, self.atlas.hemispheres)

    def provenance(self) -> dict:
        from importlib.metadata import version

        return {"atlas_sha256": self.atlas.checksum, "nilearn": version("nilearn")}
