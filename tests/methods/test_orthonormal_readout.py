"""Clusters on orthonormal centres."""

import torch

from brio_core.methods.brainnettf.orthonormal_readout import OrthonormalReadout

NODES = torch.randn(4, 9, 12, generator=torch.Generator().manual_seed(0))


def make(clusters=5):
    torch.manual_seed(1)
    return OrthonormalReadout(clusters, 12)


def test_centres_are_orthonormal_and_no_parameters():
    for clusters in (1, 5, 12):
        centres = make(clusters).centres
        torch.testing.assert_close(centres @ centres.T, torch.eye(clusters), rtol=0, atol=1e-5)
    assert list(make().parameters()) == [] and "centres" in make().state_dict()


def test_assignment_is_a_softmax_of_squared_products():
    readout = make()
    found = readout.assign(NODES)
    torch.testing.assert_close(found.sum(-1), torch.ones(4, 9))
    powers = torch.tensor([float(NODES[2, 3] @ centre) ** 2 for centre in readout.centres])
    torch.testing.assert_close(found[2, 3], powers.softmax(0))


def test_clusters_are_sums_of_nodes_by_assignment():
    readout = make()
    wanted = torch.einsum("buk,bud->bkd", readout.assign(NODES), NODES)
    torch.testing.assert_close(readout(NODES), wanted)
