"""Masks and errors that all subjects share: plain forms, and kernels against them."""

import pytest
import torch
from torch.func import grad_and_value, vmap

from brio_core.methods.brainood.subject_sums import masked, tanh_errors


def draw(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def test_a_mask_multiplies_every_subject():
    values, mask = draw(3, 5, 5), draw(5, 5, seed=1)
    assert torch.equal(masked(values, mask)[2], values[2] * mask)


def test_errors_are_summed_over_subjects():
    predicted, wanted = draw(3, 5, 5), draw(3, 5, 5, seed=1)
    errors = [(a.tanh() - b.tanh()).square() for a, b in zip(predicted, wanted)]
    torch.testing.assert_close(tanh_errors(predicted, wanted), sum(errors))


@pytest.mark.gpu
@pytest.mark.parametrize("n_rois", [7, 24, 200])
@pytest.mark.parametrize("function", [masked, tanh_errors])
def test_kernels_equal_their_twins(function, n_rois):
    if not torch.cuda.is_available():
        pytest.skip("needs a CUDA device")
    # Eleven subjects do not fill the last tile.
    data, above = draw(2, 11, n_rois, n_rois), draw(2, n_rois, n_rois, seed=2)
    lead = (2,) if function is masked else (2, 11)
    learnt = draw(*lead, n_rois, n_rois, seed=1)

    def loss(learnt, data, above):
        found = function(data, learnt) if function is masked else function(learnt, data)
        return (found * above).sum(), found

    results = []
    for device in ("cpu", "cuda"):
        inputs = [tensor.to(device) for tensor in (learnt, data, above)]
        slope, (_, found) = vmap(grad_and_value(loss, has_aux=True))(*inputs)
        results.append([slope.cpu(), found.cpu()])
    torch.testing.assert_close(results[1], results[0], rtol=1e-4, atol=1e-4)
