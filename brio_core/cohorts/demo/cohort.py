"""The demo cohort: a synthetic study as a user would have it, some of it dirty on purpose."""

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from brio_core.cohorts.demo import files, model
from brio_core.system.files import write_json, write_text
from brio_core.system.seeds import numpy_generator

_PREFIX = "derivatives/prep"
_IMAGE = "task-rest_space-MNI152NLin2009cAsym_desc-preproc_bold"
_CONFOUNDS = "task-rest_desc-confounds_timeseries"
_SHORT_FRAMES, _NAN_FRAMES, _CONSTANT_ROI = 42, (17, 18, 61), 20

# What is wrong with the last subject of each site, who cannot be used ...
_UNUSABLE = (
    "too short",
    "duplicate",
    "missing image",
    "empty image",
    "truncated image",
    "missing diagnosis",
    "too short",
)
# ... and with a usable one (site, position), who stays in.
_USABLE = {(0, 2): "nan frames", (1, 1): "constant roi", (3, 3): "nan frames"}
_FAMILY = {(2, 0), (2, 1)}


@dataclass(frozen=True)
class Person:
    """One row of participants.tsv."""

    subject: str
    site: model.Site
    positive: bool
    family: str
    problem: str
    twin: str = ""


def people(usable_per_site: int) -> list[Person]:
    """Everyone in the study; each site has one unusable subject more, the last of the site."""
    everyone: list[Person] = []
    for number, site in enumerate(model.SITES):
        for position in range(usable_per_site + 1):
            last = position == usable_per_site
            identifier = len(everyone) + 1
            family = "fam-siblings" if (number, position) in _FAMILY else f"fam-{identifier:03d}"
            problem = _UNUSABLE[number] if last else _USABLE.get((number, position), "")
            twin = everyone[-2].subject if problem == "duplicate" else ""
            everyone.append(
                Person(f"sub-{identifier:03d}", site, position % 2 == 0, family, problem, twin)
            )
    return everyone


def make_demo(out: str | Path, usable_per_site: int = 14) -> None:
    """Write the demo cohort into ``out``; the same call always writes the same bytes."""
    out = Path(out)
    everyone = people(usable_per_site)
    rows = [_write_person(out, person) for person in everyone]
    header = "participant_id\tsite\tdiagnosis\tage\tsex\tmean_fd\tfamily"
    write_text(out / "participants.tsv", "\n".join([header, *rows]) + "\n")
    description = {"Name": "BRIO demo cohort (synthetic)", "BIDSVersion": "1.9.0"}
    write_json(out / "dataset_description.json", description)
    derivative = {"DatasetType": "derivative", "GeneratedBy": [{"Name": "BRIO make_demo"}]}
    write_json(out / _PREFIX / "dataset_description.json", description | derivative)
    files.write_atlas(out / "atlas")
    write_json(out / "truth.json", _truth(everyone))


def _write_person(out: Path, person: Person) -> str:
    """Write one subject's files and return the row of participants.tsv."""
    site = person.site
    # A duplicate is the other person's scan under a second name, drawn from the same numbers.
    origin = person.twin or person.subject
    draw = numpy_generator("demo", "scan", origin)
    frames = site.frames + int(draw.integers(-2, 3))
    if person.problem == "too short":
        frames = _SHORT_FRAMES
    rois = model.roi_signals(site, origin, person.positive, frames, draw)
    motion = files.head_motion(draw, frames)
    tissue = model.autoregressive(draw, (frames, 2), 0.6)
    values = files.voxel_signals(site, rois, motion, tissue, draw)
    volume = _damage(files.to_volume(values), person)

    folder = out / _PREFIX / person.subject / "func"
    folder.mkdir(parents=True, exist_ok=True)
    image = folder / f"{person.subject}_{_IMAGE}.nii.gz"
    content = files.image_bytes(volume, site.tr)
    if person.problem == "missing image":
        image.unlink(missing_ok=True)
    else:
        kept = {"empty image": 0, "truncated image": len(content) // 2}
        image.write_bytes(content[: kept.get(person.problem, len(content))])
    sidecar = {"TaskName": "rest", "RepetitionTime": site.tr, "SkullStripped": True}
    write_text(folder / f"{person.subject}_{_IMAGE}.json", json.dumps(sidecar, indent=1) + "\n")
    confounds = folder / f"{person.subject}_{_CONFOUNDS}"
    write_text(confounds.with_suffix(".tsv"), files.confounds_text(motion, tissue))
    write_text(confounds.with_suffix(".json"), files.confounds_description())

    draw = numpy_generator("demo", "person", person.subject)
    diagnosis = "patient" if person.positive else "control"
    if person.problem == "missing diagnosis":
        diagnosis = "n/a"
    mean_fd = files.framewise_displacement(motion).mean()
    age, sex = draw.uniform(18, 60), "FM"[int(draw.integers(2))]
    about = (diagnosis, f"{age:.1f}", sex, f"{mean_fd:.4f}", person.family)
    return "\t".join((person.subject, site.name, *about))


def _damage(volume: np.ndarray, person: Person) -> np.ndarray:
    labels = files.label_volume()
    if person.problem == "nan frames":
        *lost, spoiled = _NAN_FRAMES
        volume[..., lost] = np.nan
        volume[(*np.argwhere(labels == 1)[0], spoiled)] = np.nan
    elif person.problem == "constant roi":
        volume[labels == _CONSTANT_ROI + 1] = 1000
    return volume


def _truth(everyone: list[Person]) -> dict:
    """What was planted, for tests and for the report."""

    def describe(effects: model.Effects) -> list[dict]:
        return [
            {"index": list(pair), "names": [model.NAMES[k] for k in pair], "effect": size}
            for pair, size in effects.items()
        ]

    return {
        "shared": describe(model.shared_effects()),
        "spurious": {
            site.name: describe(model.spurious_effects(site.name)) for site in model.SITES
        },
        "networks": dict(zip(model.NAMES, model.NETWORKS)),
        "dirty": {
            person.subject: {"problem": person.problem, "of": person.twin or None}
            for person in everyone
            if person.problem
        },
        "families": [[p.subject for p in everyone if p.family == "fam-siblings"]],
    }
