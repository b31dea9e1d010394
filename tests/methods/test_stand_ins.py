"""Stand-ins for subjects that a small site does not have count nowhere."""

import pytest
import torch
from synthetic import make_problem

from brio_core.methods.cepg import GUIDED
from brio_core.methods.interface import Batch
from brio_core.methods.irm import PENALISED

PHASES = {"coral": "", "irm": PENALISED, "cepg": GUIDED}


@pytest.mark.parametrize("method", PHASES)
def test_a_batch_with_stand_ins_is_the_batch_without(method):
    problem, _ = make_problem(method, folds=slice(0, 1), dropout=0.0)
    fold = problem.data.folds[0]
    rows = torch.as_tensor(fold.train[:24])
    generator = torch.Generator().manual_seed(0)
    fc = torch.as_tensor(problem.data.cohort.fc)[rows]
    strange = torch.randn(8, *fc.shape[1:], generator=generator)
    label = torch.arange(24) % 2
    site = torch.arange(24) % 3
    key = torch.zeros(2, dtype=torch.int64)

    def outcome(fc, label, site):
        module = problem.module(fold).train()
        batch = Batch(module.features({"fc": fc}), label, site, key)
        loss, logs = module.loss(batch, PHASES[method])
        loss.backward()
        gradients = {name: one.grad for name, one in module.named_parameters()}
        return {"loss": loss, **logs}, gradients, dict(module.named_buffers())

    found = outcome(
        torch.cat([fc, strange @ strange.mT]),
        torch.cat([label, torch.ones(8, dtype=label.dtype)]),
        torch.cat([site, torch.full((8,), -1)]),
    )
    for ours, expected in zip(found, outcome(fc, label, site)):
        torch.testing.assert_close(ours, expected, rtol=1e-4, atol=1e-6)
