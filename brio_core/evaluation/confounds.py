"""How much of a score age, sex, motion and scan length explain, and what is left without them.

The adjusted AUC is the covariate-adjusted one of Janes and Pepe (2009) with a linear location
model: a score is compared with what controls of the same age, sex, motion and scan length have.
Slopes are those of controls within sites, pooled over all sites: a site of fifteen subjects could
not tell its own. Patients take no part in the fit, so what the disorder itself changes stays.
"""

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from brio_core.evaluation.intervals import interval_over_sites
from brio_core.evaluation.scores import Estimate, auc

COVARIATES = ("age", "male", "mean_fd", "frames")
LOGARITHMIC = ("mean_fd", "frames")
# A covariate that fewer subjects have is not used, rather than leave out the others.
LEAST_KNOWN = 0.5
# Of each class at a site. The AUC of fewer is little more than chance.
FEWEST = 3
# What is smaller than this share of the largest singular value is rounding.
RANK = 1e-8


class Scored(NamedTuple):
    """Test predictions of a variant, and covariates of the same subjects (NaN where unknown)."""

    site: np.ndarray
    label: np.ndarray
    logits: np.ndarray
    """One row per seed."""
    covariates: dict[str, np.ndarray]

    def of(self, rows: np.ndarray) -> "Scored":
        """Some subjects."""
        covariates = {name: value[rows] for name, value in self.covariates.items()}
        return Scored(self.site[rows], self.label[rows], self.logits[:, rows], covariates)


class Subgroup(NamedTuple):
    """The mean AUC over sites of some subjects; ``subjects`` and ``sites`` are those that count."""

    auc: Estimate
    subjects: int
    sites: int


class Adjusted(NamedTuple):
    """AUC as it is and adjusted, of the subjects whose covariates are all known."""

    plain: Subgroup
    adjusted: Subgroup
    change: Estimate
    explained: float
    """Share of the variance of scores within sites that covariates explain: an adjusted R².

    Every site has slopes of its own, because every fold has a model of its own.
    """
    used: tuple[str, ...]
    unknown: dict[str, int]
    """Subjects without a value, of every covariate."""


def usable_covariates(scored: Scored) -> tuple[str, ...]:
    """Covariates that most subjects have and that differ within sites."""
    found = []
    for name, value in scored.covariates.items():
        known = np.isfinite(value)
        rows = (known & (scored.site == one) for one in np.unique(scored.site[known]))
        if known.mean() >= LEAST_KNOWN and any(np.ptp(value[own]) > 0 for own in rows):
            found.append(name)
    return tuple(found)


def adjust(scored: Scored) -> Adjusted | None:
    """The adjusted AUC, or None where no covariate is known."""
    used = usable_covariates(scored)
    unknown = {name: int((~np.isfinite(v)).sum()) for name, v in scored.covariates.items()}
    complete = np.all([np.isfinite(scored.covariates[name]) for name in used], axis=0)
    if not used or not complete.any():
        return None
    own = scored.of(complete)
    design = np.stack([_scaled(name, own.covariates[name]) for name in used], 1)
    design, scores = _centred(design, own.site), _standardised(own)
    controls = own.label == 0
    x, y = (_centred(values[controls], own.site[controls]) for values in (design, scores))
    rest = scores - design @ np.linalg.lstsq(x, y, rcond=RANK)[0]
    plain, adjusted = (site_aucs(own._replace(logits=one)) for one in (own.logits, rest.T))
    both = [name for name in plain if name in adjusted]
    change = interval_over_sites([adjusted[name] - plain[name] for name in both])
    about = (over_sites(own, aucs) for aucs in (plain, adjusted))
    return Adjusted(*about, change, _explained(design, scores, own.site), used, unknown)


def subgroups(scored: Scored) -> Iterator[tuple[str, str, Subgroup]]:
    """(covariate, name, AUC) by sex, and by thirds of age and motion among all subjects."""
    male = scored.covariates["male"]
    groups = [("male", "women", male == 0), ("male", "men", male == 1)]
    for name, words in (
        ("age", ("young", "middle", "old")),
        ("mean_fd", ("low", "medium", "high")),
    ):
        value = scored.covariates[name]
        third = np.where(np.isfinite(value), np.searchsorted(thirds(value), value), -1)
        groups += [(name, word, third == number) for number, word in enumerate(words)]
    for covariate, word, rows in groups:
        own = scored.of(rows)
        yield covariate, word, over_sites(own, site_aucs(own, FEWEST))


def thirds(value: np.ndarray) -> np.ndarray:
    """Where the first and the second third of the known values end."""
    known = value[np.isfinite(value)]
    return np.quantile(known, (1 / 3, 2 / 3)) if len(known) else np.full(2, np.nan)


def _scaled(name: str, value: np.ndarray) -> np.ndarray:
    """A covariate with deviation 1; motion and length count by their logarithm."""
    value = np.log(np.maximum(value, 1e-6)) if name in LOGARITHMIC else value.astype(float)
    return value / (value.std() or 1.0)


def _centred(values: np.ndarray, site: np.ndarray) -> np.ndarray:
    """Values minus the mean of their site."""
    found = np.array(values, float)
    for one in np.unique(site):
        found[site == one] -= found[site == one].mean(0)
    return found


def _standardised(scored: Scored) -> np.ndarray:
    """Scores (subjects, seeds) with deviation 1 at every site: every fold has its own model."""
    found = np.array(scored.logits.T, float)
    for one in np.unique(scored.site):
        here = scored.site == one
        deviation = found[here].std(0)
        found[here] /= np.where(deviation > 0, deviation, 1.0)
    return found


def _explained(design: np.ndarray, scores: np.ndarray, site: np.ndarray) -> float:
    """Adjusted R² of regressions within sites, whose squares and degrees of freedom add up."""
    total = left = 0.0
    degrees = np.zeros(2)
    for one in np.unique(site):
        x, y = design[site == one], scores[site == one]
        x, y = x - x.mean(0), y - y.mean(0)
        slopes, _, rank, _ = np.linalg.lstsq(x, y, rcond=RANK)
        if len(y) > rank + 1:
            total += np.square(y).sum()
            left += np.square(y - x @ slopes).sum()
            degrees += (len(y) - 1, len(y) - 1 - rank)
    return float(1 - (left / degrees[1]) / (total / degrees[0])) if total > 0 else math.nan


def site_aucs(scored: Scored, fewest: int = 1) -> dict[str, float]:
    """The AUC of every site that has enough subjects of both classes, averaged over seeds."""
    found = {}
    for one in np.unique(scored.site):
        here = scored.site == one
        label = scored.label[here]
        if min((label == 0).sum(), (label == 1).sum()) >= fewest:
            found[str(one)] = float(np.mean([auc(label, own[here]) for own in scored.logits]))
    return found


def over_sites(scored: Scored, aucs: dict[str, float]) -> Subgroup:
    """The mean of :func:`site_aucs`, and who counts in it."""
    subjects = int(np.isin(scored.site.astype(str), list(aucs)).sum())
    return Subgroup(auc_over_sites(list(aucs.values())), subjects, len(aucs))


def auc_over_sites(aucs: Sequence[float]) -> Estimate:
    """The mean with an interval inside 0 and 1, as summaries have it.

    Where all sites say the same, such as 1, they do not tell how sure that is.
    """
    mean, low, high = interval_over_sites(aucs)
    ends = (max(low, 0.0), min(high, 1.0)) if low < high else (math.nan, math.nan)
    return Estimate(mean, *ends)
