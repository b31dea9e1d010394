"""Confounds: scores that carry only a confound, only signal, and both."""

import numpy as np
import pytest

from brio_core.evaluation.confounds import Scored, adjust, auc_over_sites, subgroups
from brio_core.evaluation.scores import auc

SIZES = (15, 18, 22, 30, 40, 55, 70, 100, 180, 16, 25, 35)


def simulated(seed: int, confound: float, signal: float, sizes=SIZES, noise: float = 1.0) -> Scored:
    """Patients are older, move more and are more often male; sites differ in all of it."""
    generator = np.random.default_rng(seed)
    site = np.repeat([f"site-{number}" for number in range(len(sizes))], sizes)
    n = len(site)
    label = (generator.random(n) < 0.5).astype(int)
    for name in np.unique(site):
        label[np.flatnonzero(site == name)[:2]] = (0, 1)
    level = generator.normal(size=len(sizes)).repeat(sizes)
    age = 20 + 5 * level + 4 * (generator.normal(size=n) + 0.8 * label)
    male = (generator.random(n) < 0.5 + 0.2 * label).astype(float)
    motion = np.exp(0.5 * (generator.normal(size=n) + 0.8 * label + level) - 2)
    frames = np.repeat(generator.integers(120, 250, len(sizes)), sizes).astype(float)
    explained = (age - 20) / 4 + np.log(motion) + male
    # Every fold has a model of its own, with another scale and offset.
    scale = np.exp(generator.normal(size=len(sizes))).repeat(sizes)
    pure = confound * explained + signal * label + noise * generator.normal(size=n)
    covariates = {"age": age, "male": male, "mean_fd": motion, "frames": frames}
    return Scored(site, label, (scale * pure + level)[None], covariates)


def mean_of(confound: float, signal: float, draws: int = 8, **words) -> tuple[float, float]:
    found = [adjust(simulated(seed, confound, signal, **words)) for seed in range(draws)]
    plain, adjusted = ([one[side].auc.value for one in found] for side in (0, 1))
    return float(np.mean(plain)), float(np.mean(adjusted))


def test_a_score_of_confounds_alone_falls_to_chance():
    plain, adjusted = mean_of(1.0, 0.0)
    assert plain > 0.70
    assert abs(adjusted - 0.5) < 0.015


def test_a_score_of_signal_alone_stays():
    plain, adjusted = mean_of(0.0, 1.0)
    assert plain > 0.70
    assert abs(adjusted - plain) < 0.01


def test_what_is_left_of_both_is_the_signal():
    _, adjusted = mean_of(1.0, 1.0)
    signal, _ = mean_of(0.0, 1.0)
    assert abs(adjusted - signal) < 0.02


def test_seven_small_sites_are_enough_to_be_right_on_average():
    plain, adjusted = mean_of(1.0, 0.0, draws=20, sizes=(15, 16, 18, 20, 22, 15, 17))
    assert plain > 0.70
    assert abs(adjusted - 0.5) < 0.03


def test_the_interval_of_the_adjusted_auc_holds_chance():
    inside = 0
    for seed in range(20):
        _, low, high = adjust(simulated(seed, 1.0, 0.0)).adjusted.auc
        inside += low <= 0.5 <= high
    assert inside >= 17


def test_slopes_are_those_of_least_squares_with_a_mean_per_site():
    """The slow reading: one column per site, controls only, normal equations."""
    scored = simulated(3, 0.7, 0.5)
    found = adjust(scored)
    covariates = scored.covariates
    columns = [covariates["age"], covariates["male"], np.log(covariates["mean_fd"])]
    design = np.stack(columns, 1)
    deviation = np.array([scored.logits[0][scored.site == name].std() for name in scored.site])
    score, rows = scored.logits[0] / deviation, scored.label == 0
    means = np.stack([scored.site[rows] == name for name in np.unique(scored.site)], 1)
    full = np.concatenate([design[rows], means.astype(float)], 1)
    score = score - design @ np.linalg.solve(full.T @ full, full.T @ score[rows])[:3]
    sites = [scored.site == one for one in np.unique(scored.site)]
    aucs = [auc(scored.label[here], score[here]) for here in sites]
    assert found.used == ("age", "male", "mean_fd"), "frames are the same within each site"
    assert found.adjusted.auc.value == pytest.approx(np.mean(aucs), abs=1e-9)


def test_the_explained_share_is_that_of_the_model():
    shares = {}
    for confound, noise in ((0.0, 1.0), (1.0, 1.0), (1.0, 0.01)):
        found = [adjust(simulated(seed, confound, 0.0, noise=noise)) for seed in range(8)]
        shares[confound, noise] = np.mean([one.explained for one in found])
    assert abs(shares[0.0, 1.0]) < 0.03
    assert shares[0.0, 1.0] < shares[1.0, 1.0] < shares[1.0, 0.01]
    assert shares[1.0, 0.01] > 0.99


def test_slopes_of_every_model_may_differ_where_a_share_is_explained():
    scored = simulated(0, 1.0, 0.0, noise=0.0)
    turned = np.where(np.char.endswith(scored.site, "3"), -1, 1)
    assert adjust(scored._replace(logits=scored.logits * turned)).explained == pytest.approx(1)


def test_unknown_values_are_counted_and_leave_subjects_out():
    scored = simulated(0, 1.0, 1.0)
    age, motion = scored.covariates["age"].copy(), np.full(len(scored.site), np.nan)
    age[::10] = np.nan
    found = adjust(scored._replace(covariates=scored.covariates | {"age": age, "mean_fd": motion}))
    assert found.used == ("age", "male")
    assert found.unknown["age"] == len(age[::10]) and found.unknown["mean_fd"] == len(motion)
    assert found.plain.subjects == found.adjusted.subjects == len(age) - len(age[::10])


def test_without_covariates_there_is_nothing_to_adjust():
    scored = simulated(0, 1.0, 1.0)
    nothing = {name: np.full(len(scored.site), np.nan) for name in scored.covariates}
    assert adjust(scored._replace(covariates=nothing)) is None
    assert all(group.sites == 0 for *_, group in subgroups(scored._replace(covariates=nothing)))


def test_subgroups_are_means_over_sites_with_enough_of_both_classes():
    scored = simulated(1, 0.5, 1.0)
    found = {(covariate, word): group for covariate, word, group in subgroups(scored)}
    assert list(found) == [
        ("male", "women"), ("male", "men"),
        ("age", "young"), ("age", "middle"), ("age", "old"),
        ("mean_fd", "low"), ("mean_fd", "medium"), ("mean_fd", "high"),
    ]  # fmt: skip
    men = scored.covariates["male"] == 1
    aucs, subjects = [], 0
    for one in np.unique(scored.site):
        here = men & (scored.site == one)
        label = scored.label[here]
        if label.sum() >= 3 and (1 - label).sum() >= 3:
            aucs.append(auc(label, scored.logits[0][here]))
            subjects += here.sum()
    group = found["male", "men"]
    assert group.auc.value == pytest.approx(np.mean(aucs))
    assert (group.sites, group.subjects) == (len(aucs), subjects)


def test_intervals_of_auc_end_where_auc_does():
    mean, low, high = auc_over_sites([1.0, 0.9, 1.0, 0.95])
    assert high == 1 and low < mean < 1
    assert np.isnan(auc_over_sites([1.0, 1.0, 1.0])[1:]).all()
    assert np.isnan(auc_over_sites([0.7])[1:]).all()
