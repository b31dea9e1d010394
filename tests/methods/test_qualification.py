"""Qualification against loops over subjects, and both propositions as properties."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from brio_core.methods.brio.qualification import VARIANTS, qualify

STABILISER = 1e-8


def slow_qualification(a, site, label, w, without="none"):
    """The equations of the paper, one number at a time."""
    n_sites, (_, k_plus_1, n_factors) = max(site) + 1, a.shape
    mu, v, d, t, q = (np.zeros((n_sites, 2, n_factors)) for _ in range(5))
    for e in range(n_sites):
        for c in (0, 1):
            members = [i for i in range(len(a)) if site[i] == e and label[i] == c]
            for j in range(n_factors):
                mu[e, c, j] = np.mean([a[i, 0, j] for i in members])
                v[e, c, j] = np.mean([(a[i, 0, j] - mu[e, c, j]) ** 2 for i in members])
                d[e, c, j] = np.mean(
                    [(a[i, k, j] - a[i, 0, j]) ** 2 for i in members for k in range(1, k_plus_1)]
                )
    delta = mu[:, 1] - mu[:, 0]
    for e in range(n_sites):
        for c in (0, 1):
            for j in range(n_factors):
                t[e, c, j] = v[e, c, j] + delta[e, j] ** 2 / 4
                q[e, c, j] = (t[e, c, j] + STABILISER) / (t[e, c, j] + d[e, c, j] + STABILISER)
    norms = [np.sum(w[j] ** 2) for j in range(n_factors)]
    r = np.zeros(n_factors)
    for j in range(n_factors):
        beta = norms[j] / (sum(norms) + STABILISER)
        pooled = v[:, 0, j].mean() + v[:, 1, j].mean()
        r[j] = beta * delta[:, j].mean() ** 2 / (pooled + STABILISER)
    pi = r / r.sum()
    if without in ("RS", "QG"):
        q[:] = 1
    if without in ("TR", "QG"):
        pi[:] = 1 / n_factors
    pairs = [(e, f) for e in range(n_sites) for f in range(e + 1, n_sites)]
    weights, strength = np.zeros((len(pairs), 2, n_factors)), np.zeros((len(pairs), 2))
    for p, (e, f) in enumerate(pairs):
        for c in (0, 1):
            alpha = [pi[j] * math.sqrt(q[e, c, j] * q[f, c, j]) for j in range(n_factors)]
            strength[p, c] = 1 if without in ("RS", "SM", "QG") else sum(alpha)
            weights[p, c] = pi if without in ("SF", "QG") else [x / sum(alpha) for x in alpha]
    return {
        "mean": mu, "variance": v, "variation": d, "scale": t, "support": q, "relevance": pi,
        "pairs": pairs, "weights": weights, "strength": strength,
    }  # fmt: skip


def example(n_sites=4, n_factors=3, n_resamples=5, seed=0, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    site = torch.arange(n_sites).repeat_interleave(9)
    label = (torch.arange(len(site)) % 9 > 3).long()
    n = len(site)
    full = torch.randn(n, 1, n_factors, generator=generator) + label[:, None, None]
    change = 0.5 * torch.randn(n, n_resamples, n_factors, generator=generator)
    contributions = torch.cat([full, full + change], 1).to(dtype)
    order = torch.randperm(n, generator=generator)
    classifier = torch.randn(n_factors, 6, generator=generator).to(dtype)
    return contributions[order], site[order], label[order], classifier


@pytest.mark.parametrize("without", VARIANTS)
@pytest.mark.parametrize("dtype, tolerance", [(torch.float64, 1e-12), (torch.float32, 1e-5)])
def test_equals_the_slow_reading(without, dtype, tolerance):
    arguments = example(dtype=dtype)
    result = qualify(*arguments, without=without, stabiliser=STABILISER)
    expected = slow_qualification(
        *(
            part.double().numpy() if part.is_floating_point() else part.numpy()
            for part in arguments
        ),
        without,
    )
    for name, value in expected.items():
        np.testing.assert_allclose(getattr(result, name), value, rtol=tolerance, atol=tolerance)
    first, second = result.pairs.T
    assert torch.equal(result.weight_matrix[first, second], result.weights)
    assert torch.equal(result.weight_matrix, result.weight_matrix.transpose(0, 1))
    assert torch.equal(result.strength_matrix[first, second], result.strength)
    assert torch.equal(result.strength_matrix, result.strength_matrix.transpose(0, 1))
    assert (result.strength_matrix.diagonal() == 0).all()
    assert result.weights.dtype == result.strength.dtype == dtype


def test_scale_is_the_mean_squared_distance_to_the_midpoint():
    contributions, site, label, classifier = example()
    result = qualify(contributions, site, label, classifier)
    for e in range(4):
        midpoint = result.mean[e].mean(0)
        for c in (0, 1):
            members = contributions[(site == e) & (label == c), 0]
            torch.testing.assert_close(result.scale[e, c], (members - midpoint).square().mean(0))


def test_opposing_contrasts_cancel_before_squaring():
    contributions, site, label, classifier = example(n_sites=2)
    sign = torch.where(site == 0, 1.0, -1.0)[:, None]
    contributions = torch.zeros_like(contributions)
    contributions[..., 0] = label[:, None] * sign
    contributions[..., 1] = label[:, None]
    relevance = qualify(contributions, site, label, classifier).relevance
    assert relevance[0] == 0 and relevance[1] == pytest.approx(1)


@pytest.mark.parametrize("without", VARIANTS)
def test_no_relevance_is_no_strength_and_no_nan(without):
    contributions, site, label, classifier = example()
    result = qualify(torch.zeros_like(contributions), site, label, classifier, without=without)
    for name in ("relevance", "support", "weights", "strength", "weight_matrix"):
        assert torch.isfinite(getattr(result, name)).all()
    torch.testing.assert_close(result.weights.sum(-1), torch.ones_like(result.strength))
    if without in ("TR", "QG"):
        assert (result.strength > 0).all()
    else:
        assert (result.relevance == 0).all() and (result.strength == 0).all()


@pytest.mark.parametrize("without", ["RS", "QG"])
def test_variants_without_support_need_no_reestimates(without):
    contributions, site, label, classifier = example()
    with_them = qualify(contributions, site, label, classifier, without=without)
    result = qualify(contributions[:, :1], site, label, classifier, without=without)
    assert torch.equal(result.weights, with_them.weights)
    assert torch.equal(result.strength, with_them.strength)


def test_order_of_subjects_and_padding_do_not_matter():
    contributions, site, label, classifier = example()
    result = qualify(contributions, site, label, classifier)
    order = torch.randperm(len(site), generator=torch.Generator().manual_seed(3))
    shuffled = qualify(contributions[order], site[order], label[order], classifier)
    padded = qualify(
        torch.cat([contributions, 100 + contributions[:5]]),
        torch.cat([site, torch.full((5,), -1)]),
        torch.cat([label, label[:5]]),
        classifier,
        n_sites=4,
    )
    for name in ("relevance", "support", "weights", "strength"):
        torch.testing.assert_close(getattr(result, name), getattr(shuffled, name))
        torch.testing.assert_close(getattr(result, name), getattr(padded, name))


def test_folds_may_be_a_leading_axis():
    folds = [example(seed=seed) for seed in range(3)]
    together = qualify(*(torch.stack(parts) for parts in zip(*folds, strict=True)), n_sites=4)
    for number, fold in enumerate(folds):
        alone = qualify(*fold)
        for name in ("relevance", "support", "weights", "strength", "weight_matrix", "scale"):
            torch.testing.assert_close(getattr(together, name)[number], getattr(alone, name))


def test_unknown_variant():
    with pytest.raises(ValueError, match="not 'XY'"):
        qualify(*example(), without="XY")


FINITE = st.floats(-50, 50, allow_nan=False, width=32)


@st.composite
def one_site(draw):
    """Contributions of one site (N, K + 1, 1) with both classes, and a spread of changes."""
    n_resamples = draw(st.integers(1, 4))
    counts = [draw(st.integers(1, 5)) for _ in (0, 1)]
    full = draw(arrays(np.float64, (sum(counts), 1, 1), elements=FINITE))
    size = draw(st.sampled_from([1e-3, 0.1, 1.0]))
    change = size * draw(arrays(np.float64, (sum(counts), n_resamples, 1), elements=FINITE))
    label = torch.tensor([0] * counts[0] + [1] * counts[1])
    # A shift of one class makes separated examples common.
    full = full * draw(st.sampled_from([0.01, 1.0])) + draw(FINITE) * label.numpy()[:, None, None]
    return torch.from_numpy(np.concatenate([full, full + change], 1)), label


@settings(max_examples=300, deadline=None)
@given(one_site())
def test_proposition_1_contrast_stability(site_example):
    contributions, label = site_example
    # A second site is needed for pairs; it is a copy of the first.
    n = len(label)
    result = qualify(
        contributions.repeat(2, 1, 1), torch.arange(2).repeat_interleave(n), label.repeat(2),
        torch.ones(1, 1), stabiliser=STABILISER,
    )  # fmt: skip
    delta = float(result.site_contrast[0])
    reestimated = contributions[:, 1:].mean((1, 2))
    delta_re = float(reestimated[label == 1].mean() - reestimated[label == 0].mean())
    support, scale = result.support[0, :, 0], result.scale[0, :, 0] + STABILISER
    assert ((support > 0) & (support <= 1)).all()
    bound = float((scale * (1 / support - 1)).clamp_min(0).sqrt().sum())
    # 1 / q - 1 loses digits when q is close to one.
    rounding = 1e-9 + float((scale * 1e-15).sqrt().sum()) * 4
    assert abs(delta_re - delta) <= bound + rounding
    kappa = delta**2 / (4 * (result.variance[0, :, 0] + STABILISER))
    threshold = (1 + kappa) / (1 + 2 * kappa)
    assert ((threshold > 0.5 - 1e-12) & (threshold <= 1)).all()
    if (support > threshold + 1e-9).all():
        assert delta * delta_re > 0


@st.composite
def relevance_and_support(draw):
    n_factors = draw(st.integers(1, 6))
    raw = draw(arrays(np.float64, n_factors, elements=st.floats(0, 1)))
    raw[draw(st.integers(0, n_factors - 1))] += 0.1
    raw[raw < 1e-6] = 0
    support = draw(arrays(np.float64, n_factors, elements=st.floats(1e-4, 1)))
    others = draw(arrays(np.float64, (8, n_factors), elements=st.floats(0, 1)))
    return raw / raw.sum(), support, others


@settings(max_examples=300, deadline=None)
@given(relevance_and_support())
def test_proposition_2_variational_form(example):
    pi, q, others = example
    inside = pi > 0
    g = float((pi * q).sum())
    alpha = pi * q / g

    def objective(v):
        used = v > 0
        return float(
            np.sum(v[used] * np.log(v[used] / pi[used])) - np.sum(v[used] * np.log(q[used]))
        )

    assert objective(alpha) == pytest.approx(-math.log(g), abs=1e-9)
    for other in others:
        other = other * inside
        if other.sum() > 0:
            other = other / other.sum()
            gap = objective(other) - objective(alpha)
            assert gap >= -1e-9
            if np.abs(other - alpha).max() > 1e-3:
                assert gap > 0
    # Sensitivity of strength to support, by central differences in log q.
    for j in range(len(q)):
        step = np.zeros(len(q))
        step[j] = 1e-5
        slope = np.log((pi * q * np.exp(step)).sum()) - np.log((pi * q * np.exp(-step)).sum())
        assert slope / 2e-5 == pytest.approx(alpha[j], abs=1e-6)
    penalty = -float(np.sum(pi[inside] * np.log(q[inside])))
    assert -math.log(g) <= penalty + 1e-12
    assert objective(pi) == pytest.approx(penalty)
    if np.ptp(q[inside]) == 0:
        assert -math.log(g) == pytest.approx(penalty)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10_000))
def test_weights_and_strength_are_those_of_proposition_2(seed):
    result = qualify(*example(seed=seed))
    alpha = result.relevance * result.pair_support
    torch.testing.assert_close(result.strength, alpha.sum(-1))
    torch.testing.assert_close(result.weights, alpha / alpha.sum(-1, keepdim=True))
    assert ((result.strength > 0) & (result.strength <= 1)).all()
