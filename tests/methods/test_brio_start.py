"""BRIO before its first step: how its scales part factors and subjects."""

import torch
from synthetic import make_problem, settings_of

from brio_core.methods.brio.factors import Assignment, FactorMap


def test_scales_of_the_first_embeddings_and_queries():
    """The same draws, stretched; nothing else of the first model changes."""
    usual, wide = (
        make_problem("brio", roi_scale=scale, query_scale=scale, bias_scale=scale)[0]
        for scale in (0.5, 2.0)
    )
    one, other = (problem.module(problem.data.folds[0]).state_dict() for problem in (usual, wide))
    biases = {"factor_map.widen.bias", "factor_map.narrow.bias"}
    stretched = {"encoder.roi_embedding", "assignment.queries", *biases}
    assert stretched <= one.keys()
    for name, value in one.items():
        torch.testing.assert_close(other[name], 4 * value if name in stretched else value)


def test_wider_queries_or_embeddings_part_the_factors_at_the_start():
    def shared(query_scale, roi_scale):
        """Mean cosine between factors as weights over regions."""
        torch.manual_seed(0)
        embedding = roi_scale * torch.randn(200, 16)
        sizes = {"factors": 4, "roi_dim": 16, "assignment_dim": 32, "query_scale": query_scale}
        rows = Assignment(settings_of("brio", **sizes))(embedding).detach()
        rows = rows / rows.norm(dim=1, keepdim=True)
        return ((rows @ rows.T).sum() - 4).item() / 12

    scales = ((0.3, 0.25), (0.3, 1.0), (0.3, 2.0), (1.0, 1.0), (3.0, 1.0))
    found = [shared(*pair) for pair in scales]
    assert found == sorted(found, reverse=True)
    assert found[0] > 0.7 and found[-1] < 0.2


def test_smaller_biases_part_the_factors_of_subjects_at_the_start():
    hidden = torch.randn(30, 50, 64, generator=torch.Generator().manual_seed(1))

    def alike(bias_scale):
        """Mean cosine between the factors of two subjects."""
        torch.manual_seed(0)
        factors = FactorMap(64, 16, bias_scale)(hidden, torch.full((4, 50), 1 / 200))[:, 0]
        return ((factors @ factors.T).sum() - 30).item() / (30 * 29)

    found = [alike(scale) for scale in (0.0, 0.1, 0.3, 1.0)]
    assert found == sorted(found)
    assert found[0] < 0.5 < 0.8 < found[-1]
