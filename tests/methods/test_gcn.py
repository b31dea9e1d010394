"""The properties that a GCN on dense graphs must have."""

import torch
from synthetic import settings_of

from brio_core.connectivity.graphs import normalised_adjacency
from brio_core.methods.gcn import Gcn
from brio_core.methods.layers.convolutions import DenseGcn


def random_graph(n_rois=12, batch=3):
    generator = torch.Generator().manual_seed(0)
    fc = torch.randn(batch, n_rois, n_rois, generator=generator).double() * 0.4
    return (fc + fc.mT) * ~torch.eye(n_rois, dtype=torch.bool)


def test_permuting_rois_leaves_the_logit_unchanged():
    model = Gcn(settings_of("gcn"), 12, 4).double().eval()
    fc = random_graph()
    features = model.features({"fc": fc})
    order = torch.randperm(12, generator=torch.Generator().manual_seed(1))
    # Generic node features: rows move with the graph, columns stay.
    permuted = {
        "operator": features["operator"][:, order][:, :, order],
        "nodes": features["nodes"][:, order],
    }
    torch.testing.assert_close(model.logits(features), model.logits(permuted), atol=1e-5, rtol=0)


def test_operator_is_symmetric_with_largest_eigenvalue_one():
    operator = normalised_adjacency(random_graph().abs())
    torch.testing.assert_close(operator, operator.mT)
    largest = torch.linalg.eigvalsh(operator)[:, -1]
    torch.testing.assert_close(largest, torch.ones_like(largest))


def test_without_edges_only_the_self_loop_remains():
    layer = DenseGcn(12, 5).double()
    nodes = torch.randn(2, 12, 12, generator=torch.Generator().manual_seed(2)).double()
    operator = normalised_adjacency(torch.zeros(2, 12, 12).double())
    torch.testing.assert_close(layer(nodes, operator), nodes @ layer.weight.T + layer.bias)


def test_negative_weights_and_isolated_nodes_give_no_nan():
    for edge_weight in ("abs", "binary"):
        model = Gcn(settings_of("gcn", edge_weight=edge_weight), 12, 4).double().eval()
        negative = -random_graph().abs()
        isolated = random_graph()
        isolated[:, 0] = isolated[:, :, 0] = 0
        for fc in (negative, isolated):
            assert torch.isfinite(model.logits(model.features({"fc": fc}))).all()
