"""The line graph against the incidence matrix."""

import torch

from brio_core.methods.core.line_graph import line_graph


def test_line_adjacency_follows_from_the_incidence_matrix():
    first, second = torch.triu_indices(7, 7, 1)
    chosen = torch.randperm(21, generator=torch.Generator().manual_seed(0))[:12]
    first, second = first[chosen], second[chosen]
    roi = torch.arange(7)[:, None]
    incidence = ((roi == first) | (roi == second)).int()
    wanted = (incidence.T @ incidence - 2 * torch.eye(12, dtype=torch.int32)) != 0
    found = line_graph(first, second)
    assert torch.equal(found, wanted)
    assert torch.equal(found, found.T) and not found.diagonal().any()
