"""The demo cohort: a synthetic study as a user would have it, some of it dirty on purpose.

Equal input gives equal bytes.
"""

import gzip
import json
from dataclasses import dataclass
from pathlib import Path

import nibabel
import numpy as np

from brio_core.cohorts.demo import model
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
    write_atlas(out / "atlas")
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
    motion = head_motion(draw, frames)
    tissue = model.autoregressive(draw, (frames, 2), 0.6)
    values = voxel_signals(site, rois, motion, tissue, draw)
    # Labelled voxels in (x, y, z, frames); air is zero.
    volume = np.zeros((*SHAPE, frames), np.float32)
    volume[label_volume() > 0] = values.T
    volume = _damage(volume, person)

    folder = out / _PREFIX / person.subject / "func"
    folder.mkdir(parents=True, exist_ok=True)
    image = folder / f"{person.subject}_{_IMAGE}.nii.gz"
    content = image_bytes(volume, site.tr)
    if person.problem == "missing image":
        image.unlink(missing_ok=True)
    else:
        kept = {"empty image": 0, "truncated image": len(content) // 2}
        image.write_bytes(content[: kept.get(person.problem, len(content))])
    sidecar = {"TaskName": "rest", "RepetitionTime": site.tr, "SkullStripped": True}
    write_text(folder / f"{person.subject}_{_IMAGE}.json", json.dumps(sidecar, indent=1) + "\n")
    confounds = folder / f"{person.subject}_{_CONFOUNDS}"
    write_text(confounds.with_suffix(".tsv"), confounds_text(motion, tissue))
    write_text(confounds.with_suffix(".json"), confounds_description())

    draw = numpy_generator("demo", "person", person.subject)
    diagnosis = "patient" if person.positive else "control"
    if person.problem == "missing diagnosis":
        diagnosis = "n/a"
    mean_fd = framewise_displacement(motion).mean()
    age, sex = draw.uniform(18, 60), "FM"[int(draw.integers(2))]
    about = (diagnosis, f"{age:.1f}", sex, f"{mean_fd:.4f}", person.family)
    return "\t".join((person.subject, site.name, *about))


def _damage(volume: np.ndarray, person: Person) -> np.ndarray:
    labels = label_volume()
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


SHAPE, VOXEL = (10, 12, 8), 15.0
_FINE = 3  # the atlas has three voxels where the images have one, with a common centre
_STEP = 0.5  # intensity per unit of the stored integers
MOTION = ("trans_x", "trans_y", "trans_z", "rot_x", "rot_y", "rot_z")


def _affine(fine: int = 1) -> np.ndarray:
    affine = np.diag([VOXEL / fine] * 3 + [1.0])
    corner = -VOXEL * np.array(SHAPE) / 2 + [0, -16, 8]
    affine[:3, 3] = corner + VOXEL / fine / 2
    return affine


def _positions(fine: int = 1) -> np.ndarray:
    """Millimetre coordinates of all voxel centres, (x, y, z, 3)."""
    shape = [fine * size for size in SHAPE]
    index = np.stack(np.meshgrid(*map(np.arange, shape), indexing="ij"), -1)
    affine = _affine(fine)
    return index @ affine[:3, :3].T + affine[:3, 3]


def label_volume(fine: int = 1) -> np.ndarray:
    """Every voxel of an ellipsoid belongs to the nearest centroid of its hemisphere."""
    position = _positions(fine)
    distance = np.linalg.norm(position[..., None, :] - model.CENTROIDS, axis=-1)
    other_side = np.sign(position[..., :1]) != np.sign(model.CENTROIDS[:, 0])
    labels = np.where(other_side, np.inf, distance).argmin(-1) + 1
    centre, radius = np.array([0, -16, 12]), np.array([74, 92, 62])
    outside = (((position - centre) / radius) ** 2).sum(-1) > 1
    return np.where(outside, 0, labels).astype(np.int16)


def _gzipped(image: nibabel.Nifti1Image) -> bytes:
    # The default of gzip stores the time of writing, which would differ from run to run.
    return gzip.compress(image.to_bytes(), compresslevel=6, mtime=0)


def write_atlas(folder: Path) -> None:
    """Label image on a grid finer than the scans', and the table of the regions."""
    folder.mkdir(parents=True, exist_ok=True)
    image = nibabel.Nifti1Image(label_volume(_FINE), _affine(_FINE))
    (folder / "demo_labels.nii.gz").write_bytes(_gzipped(image))
    lines = ["index\tname\tx\ty\tz\themisphere"]
    for index, (name, (x, y, z)) in enumerate(zip(model.NAMES, model.CENTROIDS)):
        side = model.HEMISPHERES[index]
        lines.append(f"{index + 1}\t{name}\t{x:g}\t{y:g}\t{z:g}\t{side}")
    write_text(folder / "demo_labels.tsv", "\n".join(lines) + "\n")


def head_motion(draw: np.random.Generator, frames: int) -> np.ndarray:
    """Slow wandering with a few jerks: translations in mm, rotations in rad."""
    steps = draw.standard_normal((frames, 6)) * 0.02
    jerks = draw.random(frames) < 0.03
    steps[jerks] += draw.standard_normal((int(jerks.sum()), 6)) * 0.25
    motion = np.zeros((frames, 6))
    for frame in range(1, frames):
        motion[frame] = 0.98 * motion[frame - 1] + steps[frame]
    motion[:, 3:] /= 50
    return motion


def framewise_displacement(motion: np.ndarray) -> np.ndarray:
    """Sum of absolute differences between frames, rotations as arcs on a 50 mm sphere."""
    return np.abs(np.diff(motion * [1, 1, 1, 50, 50, 50], axis=0)).sum(axis=1)


def voxel_signals(
    site: model.Site, rois: np.ndarray, motion: np.ndarray, tissue: np.ndarray, draw
) -> np.ndarray:
    """A scan (frames, labelled voxels): ROI signal, motion, tissue signals, drift and noise."""
    labels = label_volume()
    inside = labels > 0
    place = _positions()[inside] / 80
    frames = len(rois)
    baseline = 1000 + 60 * draw.standard_normal(len(place))
    motion_weight = draw.standard_normal((6, 3)) @ place.T + draw.standard_normal((6, 1))
    scaled = (motion - motion.mean(0)) / motion.std(0)
    values = 10 * rois[:, labels[inside] - 1]
    values += 4 * scaled @ motion_weight
    values += tissue @ draw.uniform(2, 6, (tissue.shape[1], len(place)))
    values += 6 * model.autoregressive(draw, (frames, len(place)), site.noise_colour)
    time = np.linspace(-1, 1, frames)[:, None]
    values += 1000 * site.drift * (time + 0.3 * time**2)
    return site.gain * (baseline + values)


def image_bytes(volume: np.ndarray, tr: float) -> bytes:
    """A compressed NIfTI file: scaled 16-bit integers, or floats where values are not finite."""
    image = nibabel.Nifti1Image(np.round(volume / _STEP) * np.float32(_STEP), _affine())
    image.header.set_zooms((VOXEL,) * 3 + (tr,))
    image.header.set_xyzt_units("mm", "sec")
    if np.isfinite(volume).all():
        image.set_data_dtype(np.int16)
        image.header.set_slope_inter(_STEP, 0)
    return _gzipped(image)


def confounds_text(motion: np.ndarray, tissue: np.ndarray) -> str:
    """The table that fMRIPrep writes beside an image, with the columns used here."""
    displacement = ["n/a", *(f"{value:.6f}" for value in framewise_displacement(motion))]
    lines = ["\t".join(("csf", "white_matter", *MOTION, "framewise_displacement"))]
    for frame, values in enumerate(np.hstack([500 + 10 * tissue, motion])):
        lines.append("\t".join([*(f"{value:.6f}" for value in values), displacement[frame]]))
    return "\n".join(lines) + "\n"


def confounds_description() -> str:
    """The JSON beside the confounds table."""
    units = {name: "mm" if name.startswith("trans") else "rad" for name in MOTION}
    columns = {name: {"Units": unit} for name, unit in units.items()}
    columns |= {"csf": {"Method": "Mean"}, "white_matter": {"Method": "Mean"}}
    return json.dumps(columns, indent=1) + "\n"
