"""DeCI: decomposition, independence of channels, and scans of unequal length."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.signal import lfilter
from synthetic import make_problem, settings_of

from brio_core import SiteClassifier
from brio_core.methods.deci import Deci
from brio_core.methods.interface import Batch
from brio_core.methods.training_scans import TrainView
from brio_core.system.randomness import fold_in
from brio_core.training.trainer import groups

ROIS, LENGTH = 7, 60


def make(length=LENGTH, width=None, **overrides):
    torch.manual_seed(0)
    module = Deci(settings_of("deci", **overrides), ROIS, 3)
    frames = torch.full((4,), length)
    bold = torch.zeros(4, length, ROIS)
    shared = {} if width is None else {"width": torch.tensor(width)}
    view = TrainView(torch.zeros(4), torch.zeros(4), 3, ROIS, bold=bold, frames=frames)
    module.prepare(replace(view, shared=shared))
    return module.double().eval()


def scans(*frames, seed=0):
    draw = torch.Generator().manual_seed(seed)
    bold = torch.zeros(len(frames), max(frames), ROIS).double()
    for row, count in zip(bold, frames):
        row[:count] = torch.randn(count, ROIS, generator=draw).double()
    return {"bold": bold, "frames": torch.tensor(frames)}


def batch_of(features, label):
    return Batch(features, torch.tensor(label), torch.zeros(len(label)), torch.tensor(3))


@pytest.mark.parametrize("criterion", ["cross_entropy", "squared"])
def test_loss_of_a_batch_is_the_mean_of_single_losses(criterion):
    module = make(criterion=criterion, dropout=0.0)
    features, label = scans(*[LENGTH] * 16), [0, 1] * 8
    whole, _ = module.loss(batch_of(features, label), "train")
    single = [
        module.loss(batch_of({k: v[i : i + 1] for k, v in features.items()}, [label[i]]), "train")
        for i in range(16)
    ]
    torch.testing.assert_close(whole, torch.stack([loss for loss, _ in single]).mean())


@pytest.mark.parametrize("key", [None, torch.tensor(5)])
def test_drifts_cycles_and_the_rest_add_up_to_the_embedding(key):
    module = make(dropout=0.2)
    features, start = scans(LENGTH, LENGTH), torch.zeros(2, dtype=torch.int64)
    parts, rest = module._decompose(features, start, key)
    blocks, module.blocks = module.blocks, torch.nn.ModuleList()
    _, embedded = module._decompose(features, start, key)
    assert len(parts) == 2 * len(blocks)
    torch.testing.assert_close(sum(parts) + rest, embedded, rtol=0, atol=1e-5)


def test_drift_of_a_constant_row_at_first():
    module = make()
    width = module.hyperparameters.hidden
    drift, _, _ = module.blocks[0](torch.full((ROIS, 1, width), 2.0).double(), None, 0)
    wanted = 2.0 * torch.arange(1, width + 1).double() / width
    torch.testing.assert_close(drift, wanted.expand(ROIS, 1, width))


def test_a_region_touches_its_own_row_alone():
    module, features = make(), scans(LENGTH, LENGTH)
    start = torch.zeros(2, dtype=torch.int64)
    before, _ = module._decompose(features, start, None)
    changed = {**features, "bold": features["bold"].clone()}
    changed["bold"][:, :, 4] = scans(LENGTH, LENGTH, seed=1)["bold"][:, :, 4]
    after, _ = module._decompose(changed, start, None)
    for one, other in zip(before, after):
        moved = (one != other).flatten(1).any(1)
        assert moved.tolist() == [roi == 4 for roi in range(ROIS)]


def test_units_of_a_series_do_not_matter():
    module, features = make(), scans(LENGTH, 300)
    changed = {**features, "bold": features["bold"].clone()}
    changed["bold"][:, :, 2] = 50 * changed["bold"][:, :, 2] + 700
    torch.testing.assert_close(
        module.logits(features), module.logits(changed), rtol=1e-4, atol=1e-4
    )


def test_scans_of_any_length_and_constant_regions_share_a_batch():
    module, features = make(length=176), scans(78, 176, 300)
    features["bold"][:, :, 0] = 0
    logits, represented = module.logits(features), module.represent(features)
    assert logits.shape == (3,)
    assert represented.shape == (
        3,
        2 * module.hyperparameters.hidden * module.hyperparameters.layers,
    )
    assert torch.isfinite(represented).all()
    assert torch.equal(logits, module.logits(features))


def test_evaluation_takes_the_middle_and_training_moves_about():
    module = make(dropout=0.0)
    long = scans(100)
    middle = {"bold": long["bold"][:, 20:80], "frames": torch.tensor([LENGTH])}
    torch.testing.assert_close(module.logits(long), module.logits(middle))
    keys = fold_in(torch.tensor(123456789), torch.arange(400))
    losses = {module.loss(batch_of(long, [1])._replace(key=key), "train")[0].item() for key in keys}
    assert len(losses) == 100 - LENGTH + 1


@pytest.mark.parametrize(("rule", "length"), [("median", 90), ("shortest", 60)])
def test_the_length_comes_from_training_scans(rule, length):
    settings = settings_of("deci", scan_length=rule)
    assert Deci.common_length(settings, np.array([60, 80, 101, 120])) == length


def test_room_for_longer_folds_changes_nothing():
    module, wide, features = make(dropout=0.2), make(width=75, dropout=0.2), scans(50, 60, 90)
    assert wide.embed.weight.shape[1] == 75
    found = []
    for one in (module, wide):
        loss, _ = one.loss(batch_of(features, [0, 1, 1]), "train")
        slopes = torch.autograd.grad(loss, list(one.parameters()))
        found.append([loss, one.logits(features), *slopes])
    for narrow, broad in zip(*found):
        beyond = narrow.shape[-1] if narrow.ndim == 2 else None
        torch.testing.assert_close(narrow, broad[..., :beyond] if beyond else broad)
        assert not beyond or not broad[..., beyond:].any()


def test_states_of_earlier_versions_tell_their_length_by_their_weights():
    module, features = make(), scans(LENGTH)
    state = {name: value for name, value in module.state_dict().items() if name != "length"}
    other = Deci(settings_of("deci"), ROIS, 3).double().eval()
    other.load_state_dict(state)
    torch.testing.assert_close(other.logits(features), module.logits(features))


def test_folds_of_different_lengths_train_together():
    problem, _ = make_problem("deci")
    lengths = {problem.module(fold).length.item() for fold in problem.data.folds}
    assert len(lengths) > 1 and len(list(groups(problem))) == 1


def test_it_learns_what_a_region_alone_tells_about_an_unseen_site():
    """Patients fluctuate more slowly. On ABIDE regions alone tell little, and it is at chance."""
    draw = np.random.default_rng(0)
    label, site = np.tile([0, 1], 60), np.repeat(np.arange(5), 24)
    series = [
        lfilter([1], [1, -0.2 - 0.6 * slow], draw.standard_normal((60 + 5 * at, ROIS)), axis=0)
        for slow, at in zip(label, site)
    ]
    known = site < 4
    model = SiteClassifier("deci", {"epochs": 60})
    model.fit([series[i] for i in np.flatnonzero(known)], label[known], site[known])
    new = np.flatnonzero(~known)
    assert model.score([series[i] for i in new], label[new]) > 0.8
