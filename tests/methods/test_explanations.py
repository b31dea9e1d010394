"""Class differences of learnt graphs, their sparsity and their agreement between sites."""

import torch

from brio_core.methods.xg_gnn.explanations import class_difference, disagreement, sparsity


def graphs(sites=3, subjects=6, rois=5):
    return torch.randn(sites, subjects, rois, rois, generator=torch.Generator().manual_seed(0))


def test_difference_is_that_of_class_means_standardised_by_column():
    values, label = graphs().double(), torch.tensor([[0, 1, 0, 0, 1, 0]] * 3)
    found, usable = class_difference(values, label)
    assert usable.all()
    raw = (values[:, label[0] == 0].mean(1) - values[:, label[0] == 1].mean(1)).abs()
    wanted = ((raw - raw.mean(1, keepdim=True)) / (raw.std(1, keepdim=True) + 1e-6)).sigmoid()
    torch.testing.assert_close(found, wanted)


def test_a_site_of_one_class_is_not_usable_and_has_finite_gradients():
    values = graphs().requires_grad_()
    label = torch.tensor([[0] * 6, [1] * 6, [0, 1] * 3])
    found, usable = class_difference(values, label)
    assert usable.tolist() == [False, False, True]
    loss = (sparsity(found) * usable).sum() + (disagreement(found) * usable).sum()
    loss.backward()
    assert torch.isfinite(values.grad).all()
    constant = torch.ones(1, 6, 5, 5, requires_grad=True)
    sparsity(class_difference(constant, label[2:])[0]).sum().backward()
    assert torch.isfinite(constant.grad).all()


def test_binary_explanations_agree_with_themselves_and_not_with_disjoint_ones():
    one = torch.zeros(5, 5)
    one[:2] = 1
    pairs = disagreement(torch.stack([one, one, 1 - one]))
    torch.testing.assert_close(pairs, torch.tensor([[0, 0, 1], [0, 0, 1], [1, 1, 0]]).float())


def test_disagreement_is_symmetric_and_positive_for_soft_explanations():
    soft = graphs(sites=2)[:, 0].sigmoid()
    pairs = disagreement(torch.cat([soft, soft[:1]]))
    torch.testing.assert_close(pairs, pairs.T)
    assert 0 < pairs[0, 2] < 1


def test_sparsity_is_an_entropy_of_rows():
    level = torch.tensor([0.2, 0.5])
    found = sparsity(level[None, :, None].expand(1, 2, 7))
    torch.testing.assert_close(found, -(level * level.log()).sum()[None])
