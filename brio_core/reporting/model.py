"""A bundle of a model that was trained on all sites, with all that its card tells."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from brio_core.cohorts.cohort import Cohort, read_participants, read_table
from brio_core.cohorts.stores import input_checksums
from brio_core.evaluation.site_distance import describe
from brio_core.reporting.expectation import expectation
from brio_core.reporting.results import Run
from brio_core.training.bundle import Bundle
from brio_core.training.final import Final, Wanted
from brio_core.training.results import software

# What a bundle repeats of the dataset's YAML: how its scans were read.
DATASET = ("cohort", "source", "rois", "label", "columns", "inclusion")


def make_bundle(wanted: Wanted, final: Final, runs: Sequence[Run], words: dict) -> Bundle:
    """What was trained, on what, and what to expect of it.

    ``words`` are what the dataset's YAML tells to readers: title and task.
    """
    cohort = final.data.cohort
    table = read_participants(wanted.cohort_dir / "participants.tsv")
    people = dict(zip(cohort.subjects, cohort.covariates.astype(float)))
    names = ("age", "male", "mean_fd")
    covariates = {subject: dict(zip(names, values)) for subject, values in people.items()}
    training = describe(lambda rows: cohort.fc[final.rows[rows]], cohort.site[final.rows])
    dataset = cohort.series.provenance.get("dataset", {})
    inputs = input_checksums(wanted.cohort_dir)
    about = {
        "variant": wanted.variant,
        **{key: wanted.params[key] for key in ("method", "label")},
        "hyperparameters": final.hyperparameters,
        "seed": wanted.seed,
        "n_sites": len(np.unique(cohort.site[final.rows])),
        "chosen": {"epoch_or_point": final.stop, "by": final.how},
        "rois": _rois(wanted.cohort_dir / "regions.tsv", list(cohort.series.rois.names)),
        "dataset": {key: dataset[key] for key in DATASET if key in dataset}
        | {key: words[key] for key in ("title", "task") if key in words},
        "cohort": cohort.name,
        "training": _training(cohort, final.rows, table.iloc[final.rows]),
        "decision": final.decision,
        "block_length": final.block_length,
        "expectation": expectation(runs, covariates, wanted.without),
        "inputs": inputs,
        "code": wanted.code,
        "versions": software(),
    }
    state = {name: value.cpu() for name, value in final.state.items()}
    return Bundle(about, state, training._asdict())


def _rois(path: Path, names: list[str]) -> dict:
    """Names of the regions of the series, and of the whole atlas with the places of the former."""
    every, kept = names, list(range(len(names)))
    if path.exists():
        table = read_table(path)
        rows = table[table["kept"] != "n/a"]
        first = (rows[["site", "label"]] == rows[["site", "label"]].iloc[0]).all(axis=1)
        group = rows[first]
        every = group["region"].tolist()
        kept = np.flatnonzero(group["kept"] == "yes").tolist()
    return {"names": names, "all": every, "kept": kept}


def _training(cohort: Cohort, rows: np.ndarray, table: pd.DataFrame) -> dict:
    """The training cohort in counts, by site."""
    frames, (age, male, _) = cohort.series.frames[rows], cohort.covariates[rows].T
    table = table.assign(frames=frames, tr=pd.to_numeric(table["tr"], errors="coerce"))
    age = age[np.isfinite(age)]
    return {
        "subjects": len(table),
        "positives": int(table["label"].sum()),
        "men": int((male == 1).sum()),
        "women": int((male == 0).sum()),
        "age": [float(one) for one in np.percentile(age, (5, 50, 95))] if len(age) else None,
        "frames": [float(one) for one in np.percentile(frames, (5, 50, 95))],
        "sites": [
            {
                "site": str(name),
                "subjects": len(own),
                "positives": int(own["label"].sum()),
                "tr": sorted({float(one) for one in own["tr"].dropna()}),
                "frames": float(np.median(own["frames"])),
            }
            for name, own in table.groupby("site")
        ],
    }
