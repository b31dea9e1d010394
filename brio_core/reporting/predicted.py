"""Predictions for scans of a new site, by a bundle: how sure, how stable, how far from training."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import torch

from brio_core.cohorts.arrays import series_of
from brio_core.cohorts.new_scans import NewScan, People, read_new_scans, read_people
from brio_core.cohorts.scan import Unusable
from brio_core.cohorts.stores import Rois
from brio_core.evaluation.intervals import auc_interval, prediction_interval
from brio_core.evaluation.scores import Estimate
from brio_core.evaluation.site_distance import FAR, Training, edges_of
from brio_core.system.devices import choose_device
from brio_core.system.errors import BrioError
from brio_core.training.bundle import Bundle, answers

COLUMNS = (
    "subject", "probability", "decision", "stability", "probability_low", "probability_high",
    "distance", "distance_percentile", "nearest_site", "frames", "logit", "label", "warnings",
)  # fmt: skip
# Of all re-estimates; below this a decision is called unstable.
STABLE = 0.9
UNSTABLE = "unstable decision"
# A difference of repetition times that counts as none, in seconds.
SAME_TR = 0.05


@dataclass(frozen=True)
class Predicted:
    """What the page of a prediction shows."""

    bundle: Bundle
    table: pd.DataFrame
    reestimates: int
    auc: Estimate | None
    site_distance: float
    """Of the mean of all new scans from the nearest training site's."""


def predict(
    bundle: Bundle, scans: Path, labels: Path | None, reestimates: int, device: str
) -> Predicted:
    """Read, check and predict all scans of a place."""
    about, place = bundle.about, choose_device(device, allow_cpu=False)

    def meanwhile() -> None:
        if place.type == "cuda":
            warm_up(bundle, reestimates, place)

    read = read_new_scans(scans, about["dataset"], [labels] if labels else [], meanwhile)
    subjects = [one.subject for one in read]
    people = People.unknown(len(read))
    if labels:
        people = read_people(labels, subjects, about["dataset"])
    needs = bundle.module.needed(bundle.module.hyperparameters)
    if "covariates" in needs and np.isnan(people.covariates).all():
        raise BrioError(
            f"the method {about['method']} needs age, sex and mean_fd of every subject; give "
            "them in a table with --labels, with n/a where a class is unknown"
        )
    fitted = [_fitted(one, about["rois"], scans) for one in read]
    problems = [_problem(one, values, bundle) for one, values in zip(read, fitted)]
    usable = [row for row, problem in enumerate(problems) if not problem]
    if not usable:
        raise BrioError(f"{scans} has no usable scan: {subjects[0]}: {problems[0]}; correct it")
    series = series_of(
        [fitted[row] for row in usable],
        [subjects[row] for row in usable],
        Rois.named(about["rois"]["names"]),
    )
    training = Training(**bundle.arrays)
    parts, mean = [], 0.0
    for part in answers(
        bundle.module, series, reestimates, about["block_length"], people.covariates[usable],
        place,
    ):  # fmt: skip
        edges = edges_of(part.fisher_z)
        mean = mean + edges.sum(0, dtype=float)
        parts.append((part.logits, part.again, training.from_sites(edges)))
    logits, again, distances = (np.concatenate(values) for values in zip(*parts))
    tr = [one.tr if one.tr is not None else tr for one, tr in zip(read, people.tr)]
    told = _told(bundle, training, logits, again, distances).set_axis(usable)
    warnings = [problem and f"not predicted: {problem}" for problem in problems]
    for row, values in told.iterrows():
        warnings[row] = "; ".join(_warnings(read[row], fitted[row], tr[row], values, about))
    told["frames"] = [len(fitted[row]) for row in usable]
    table = pd.DataFrame({"subject": subjects, "label": people.label, "warnings": warnings})
    table = table.join(told).reindex(columns=list(COLUMNS))
    whole = ("decision", "distance_percentile", "frames", "label")
    table = table.astype(dict.fromkeys(whole, "Int64"))
    validated = None
    scored = np.isfinite(people.label[usable])
    if len(set(people.label[usable][scored])) == 2:
        validated = auc_interval(people.label[usable][scored], logits[scored])
    sizes = [one["subjects"] for one in about["training"]["sites"]]
    far = float(training.of_means((mean / len(usable))[None], [len(usable)], sizes).min())
    return Predicted(bundle, table, reestimates, validated, far)


def warm_up(bundle: Bundle, reestimates: int, place: torch.device) -> None:
    """Answer some noise: the first scans take a GPU seconds, in which others can be read."""
    frames, names = max(bundle.module.min_frames, 64), bundle.about["rois"]["names"]
    noise = np.random.default_rng(0).normal(size=(16, frames, len(names)))
    series = series_of(list(noise), [str(row) for row in range(len(noise))])
    people = np.zeros((len(noise), 3), np.float32)
    for _ in answers(
        bundle.module, series, reestimates, bundle.about["block_length"], people, place
    ):
        pass


def _told(bundle: Bundle, training: Training, logits, again, distances) -> pd.DataFrame:
    """Probability, decision, stability and distance of every scan."""
    sites = np.array([one["site"] for one in bundle.about["training"]["sites"]])
    decision, nearest = bundle.decides(logits), distances.min(1)
    told = {
        "probability": bundle.calibrated(logits),
        "decision": decision.astype(int),
        "distance": nearest.astype(float),
        "distance_percentile": training.percentile(nearest),
        "nearest_site": sites[distances.argmin(1)],
        "logit": logits.astype(float),
    }
    if again.shape[1]:
        low, high = np.quantile(bundle.calibrated(again), (0.025, 0.975), axis=1)
        told |= {"stability": (bundle.decides(again) == decision[:, None]).mean(1)}
        told |= {"probability_low": low, "probability_high": high}
    return pd.DataFrame(told)


def _fitted(one: NewScan, rois: dict, scans: Path) -> np.ndarray | None:
    """The series of the model's regions; other regions, or another order, are an error for all."""
    if isinstance(one.scan, Unusable):
        return None
    values, names, every = one.scan.series, list(one.scan.names), rois["all"]
    count = values.shape[1]
    if count not in (len(every), len(rois["names"])):
        transposed = len(values) in (len(every), len(rois["names"]))
        what = "its rows and columns seem to be exchanged; write" if transposed else "give"
        raise BrioError(
            f"{scans}: the scan of {one.subject} has {count} ROIs, but the bundle was trained with "
            f"{len(every)}; {what} frames by ROIs of the same atlas"
        )
    expected = every if count == len(every) else rois["names"]
    if names and names != expected and not _cannot_tell(names, expected):
        place = next(at for at in range(count) if names[at] != expected[at])
        same = sorted(names) == sorted(expected)
        what = "the ROIs of the bundle in another order" if same else "other ROIs than the bundle"
        advice = "write them in the order of the bundle" if same else "use the same atlas"
        raise BrioError(
            f"{scans}: the scan of {one.subject} has {what}: number {place + 1} is "
            f"{names[place]!r} and not {expected[place]!r}; {advice}"
        )
    return values[:, rois["kept"]] if count == len(every) else values


def _cannot_tell(names: Sequence[str], expected: Sequence[str]) -> bool:
    """Whether one side has numbers or ``ROI 1`` for names, and so nothing to compare."""

    def is_number(name: str) -> bool:
        return name.removeprefix("ROI").strip().isdecimal()

    return set(names).isdisjoint(expected) and (
        all(map(is_number, names)) or all(map(is_number, expected))
    )


def _problem(one: NewScan, values: np.ndarray | None, bundle: Bundle) -> str:
    """Why a scan is not predicted; empty if it is."""
    if values is None:
        return str(one.scan)
    least = max(bundle.module.min_frames, 3)
    return f"it has {len(values)} frames, and {least} are needed" if len(values) < least else ""


def _warnings(
    one: NewScan, values: np.ndarray, tr: float | None, row: pd.Series, about: dict
) -> list[str]:
    """What makes a prediction doubtful, each in a few words."""
    found = []
    known = sorted({tr for site in about["training"]["sites"] for tr in site["tr"]})
    nearest = min((abs(tr - other) for other in known), default=0.0) if tr is not None else 0.0
    if nearest > SAME_TR:
        seconds = ", ".join(f"{other:g}" for other in known)
        found.append(f"TR {tr:g} s, trained with {seconds} s")
    few = about["training"]["frames"][0]
    if len(values) < few:
        found.append(f"{len(values)} frames, 95 % of training scans have {few:.0f} or more")
    constant = int((~values.any(0)).sum())
    if constant:
        found.append(f"{constant} constant ROIs")
    if row["distance_percentile"] >= FAR:
        found.append(f"far from all training sites: farther than {FAR} % of training subjects")
    if row.get("stability", 1.0) < STABLE:
        found.append(UNSTABLE)
    return found


def external_validation(found: Predicted) -> str:
    """What labels say, in one to three sentences."""
    label = found.table.loc[found.table["probability"].notna(), "label"]
    sizes = tuple(int((label == side).sum()) for side in (1, 0))
    labelled = f"{sum(sizes)} of {len(label)} predicted scans have a label"
    auc = found.auc
    if auc is None:
        one, zero = sizes
        return f"{labelled}: {one} of class 1 and {zero} of class 0, so there is no AUC."
    others = found.bundle.about["expectation"]["by_site"]
    known = [(one["auc"], one["variance"]) for one in others if one["variance"] is not None]
    low, high = prediction_interval(*np.array(known).reshape(-1, 2).T, sizes)
    text = "" if sum(sizes) == len(label) else f"{labelled}. "
    text += f"AUC {100 * auc.value:.1f} % [{100 * auc.low:.1f}, {100 * auc.high:.1f}]."
    if np.isnan(low):
        return text
    where = "inside" if low <= auc.value <= high else "outside"
    return (
        f"{text} For so many subjects of a new site, [{100 * low:.1f}, {100 * high:.1f}] was to be "
        f"expected; it lies {where}."
    )
