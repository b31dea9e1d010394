"""Small files in the layouts of real derivatives, for tests."""

import json
from pathlib import Path

import nibabel
import numpy as np

SHAPE = (6, 6, 6)
AFFINE = np.diag([3.0, 3.0, 3.0, 1.0])
MOTION = [f"{kind}_{axis}" for kind in ("trans", "rot") for axis in "xyz"]
SPACE = "space-MNI152NLin2009cAsym"


def labels() -> np.ndarray:
    """Four slabs, numbered as real atlases are: not from one, not without gaps."""
    volume = np.zeros(SHAPE, np.int16)
    for index, label in enumerate((2001, 2002, 2101, 9170)):
        volume[1:5, 1:5, index + 1] = label
    return volume


def save(path: Path, volume: np.ndarray, **options) -> Path:
    """A NIfTI image with the common affine."""
    path.parent.mkdir(parents=True, exist_ok=True)
    nibabel.save(nibabel.Nifti1Image(volume, AFFINE, **options), path)
    return path


def write_atlas(folder: Path) -> None:
    """``atlas/labels.nii.gz`` and ``atlas/labels.tsv``."""
    save(folder / "atlas" / "labels.nii.gz", labels())
    names = ("Precentral_L", "Precentral_R", "Frontal_Sup_L", "Vermis_10")
    rows = [f"{label}\t{name}" for label, name in zip((2001, 2002, 2101, 9170), names)]
    (folder / "atlas" / "labels.tsv").write_text("\n".join(["index\tname", *rows]) + "\n")


def write_run(func: Path, stem: str, frames: int = 80, seed: int = 0, res: str = "") -> Path:
    """An image, its sidecar, and the confounds table with its JSON, as fMRIPrep writes them."""
    draw = np.random.default_rng(seed)
    volume = 1000 + draw.normal(size=(*SHAPE, frames)).astype(np.float32)
    name = f"{stem}_{SPACE}{res}_desc-preproc_bold"
    path = save(func / f"{name}.nii.gz", volume)
    (func / f"{name}.json").write_text(json.dumps({"RepetitionTime": 2.0}))
    columns = {name: draw.normal(size=frames) for name in MOTION}
    columns |= {name: draw.normal(size=frames) for name in ("csf", "white_matter", "global_signal")}
    columns |= {f"a_comp_cor_0{index}": draw.normal(size=frames) for index in range(3)}
    columns |= {"cosine00": np.cos(np.linspace(0, np.pi, frames))}
    columns["framewise_displacement"] = np.r_[np.nan, np.full(frames - 1, 0.1)]
    columns["framewise_displacement"][[20, 21, 40]] = 0.9
    columns["std_dvars"] = np.r_[np.nan, np.ones(frames - 1)]
    text = ["\t".join(columns)]
    for row in zip(*columns.values()):
        text.append("\t".join("n/a" if np.isnan(value) else f"{value:.6f}" for value in row))
    confounds = func / f"{stem}_desc-confounds_timeseries.tsv"
    confounds.write_text("\n".join(text) + "\n")
    about = {
        f"a_comp_cor_0{index}": {
            "Method": "aCompCor", "Mask": "combined", "Retained": True, "VarianceExplained": 0.3,
        }
        for index in range(3)
    }  # fmt: skip
    confounds.with_suffix(".json").write_text(json.dumps(about | {"csf": {"Method": "Mean"}}))
    return path


def bids_dataset(**source) -> dict:
    """A dataset on the small images; keyword arguments change its source."""
    return {
        "cohort": "small",
        "source": {
            "kind": "bids", "folder": "small", "derivatives": "derivatives/fmriprep",
            "task": "rest", "space": "MNI152NLin2009cAsym", "participants": "participants.tsv",
            "atlas": {"image": "atlas/labels.nii.gz", "names": "atlas/labels.tsv"},
            "confounds": {"strategy": []},
            "cleaning": {"detrend": True, "standardize": "zscore_sample"},
        } | source,
        "columns": {"subject": "participant_id", "site": "site", "label": "group"},
        "label": {"positive": "case", "negative": "control"},
        "rois": {"expected": 4},
        "inclusion": {"min_frames": 60},
    }  # fmt: skip
