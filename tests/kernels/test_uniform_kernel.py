"""The fused generator of random numbers draws the numbers of its plain twin."""

import pytest
import torch
from torch.func import vmap

from brio_core.system.randomness import uniform


@pytest.mark.gpu
@pytest.mark.parametrize("shape", [(), (3,), (5, 700), (2, 3, 4099)])
def test_kernel_equals_its_twin_bit_for_bit(shape):
    if not torch.cuda.is_available():
        pytest.skip("needs a CUDA device")
    keys = torch.tensor([0, 7, 123456789012345, 2**62 + 11])
    drawn = [vmap(lambda key: uniform(key, shape, 3))(keys.to(on)) for on in ("cpu", "cuda")]
    assert torch.equal(drawn[0], drawn[1].cpu())
