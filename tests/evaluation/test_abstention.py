"""Who is kept when the least certain are set aside, and what their predictions are worth."""

import numpy as np
import pytest

from brio_core.evaluation.abstention import (
    PROBABILITY,
    SHARES,
    STABILITY,
    curve,
    most_certain_first,
)
from brio_core.evaluation.scores import auc


def people(count=23, seed=0):
    generator = np.random.default_rng(seed)
    label = generator.integers(0, 2, count)
    margin = generator.normal(label - 0.5)
    agreement = np.round(generator.uniform(0.5, 1, count) * 8) / 8
    return label, margin, agreement, generator.uniform(0.1, 1, count)


def test_subjects_are_kept_by_agreement_then_by_deviation_or_by_margin():
    _, margin, agreement, deviation = people()
    every = range(len(margin))
    found = most_certain_first(STABILITY, margin, agreement, deviation)
    assert found.tolist() == sorted(every, key=lambda one: (-agreement[one], deviation[one]))
    found = most_certain_first(PROBABILITY, margin, agreement, deviation)
    assert found.tolist() == sorted(every, key=lambda one: -abs(margin[one]))


@pytest.mark.parametrize("count", [10, 23])
def test_a_curve_is_the_plain_reading(count):
    label, margin, *_ = people(count)
    order = np.random.default_rng(1).permutation(count)
    accuracy, area = curve(label, margin, order)
    for place, share in enumerate(SHARES):
        kept = [one for rank, one in enumerate(order) if rank < round(share * count, 9)]
        assert accuracy[place] == np.mean([(margin[one] > 0) == label[one] for one in kept])
        assert area[place] == pytest.approx(auc(label[kept], margin[kept]), nan_ok=True)
    assert curve(np.ones(4), np.ones(4), np.arange(4))[0].tolist() == [1.0] * len(SHARES)
    assert np.isnan(curve(np.ones(4), np.ones(4), np.arange(4))[1]).all()


def test_perfect_certainty_gains_and_none_does_not():
    label, margin, *_ = people(4000)
    right = (margin > 0) == label
    best = np.argsort(~right, kind="stable")
    found = curve(label, margin, best)[0]
    assert (np.diff(found) >= 0).all() and found[-1] == 1 > found[0]
    blind = curve(label, margin, np.random.default_rng(2).permutation(4000))[0]
    assert np.ptp(blind) < 0.03
