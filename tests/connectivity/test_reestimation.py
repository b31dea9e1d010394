"""Block bootstrap and re-estimated FC against loops over frames."""

import pytest
import torch
from synthetic import autoregressive

from brio_core.connectivity.fisher_z import fisher_z_connectivity, standardise
from brio_core.connectivity.reestimation import (
    block_indices,
    block_multiplicities,
    block_starts,
    circular_block_indices,
    reestimated_connectivity,
    refresh_keys,
    subject_keys,
)
from brio_core.system.randomness import torch_generator


def resampling_keys(cohort, subjects, seed, block_length, refresh, n_resamples):
    return refresh_keys(subject_keys(cohort, subjects, seed), block_length, refresh, n_resamples)


def test_circular_blocks():
    indices = circular_block_indices(50, 7, 200, torch_generator("test"))
    assert indices.shape == (200, 50)
    assert indices.min() == 0 and indices.max() == 49
    steps = (indices[:, 1:] - indices[:, :-1]) % 50
    inside_block = torch.arange(1, 50) % 7 != 0
    assert (steps[:, inside_block] == 1).all()
    starts = indices[:, ::7].flatten()
    # Every frame is as likely as any other to start a block, and blocks wrap around.
    assert torch.bincount(starts, minlength=50).float().std() < 3 * (len(starts) / 50) ** 0.5
    assert (indices[:, 1:] < indices[:, :-1])[:, inside_block].any()
    again = circular_block_indices(50, 7, 200, torch_generator("test"))
    assert torch.equal(indices, again)
    assert not torch.equal(indices, circular_block_indices(50, 7, 200, torch_generator("other")))
    assert len({tuple(row) for row in indices.tolist()}) == 200


def test_a_block_start_never_reaches_the_end():
    keys = torch.arange(200_000)
    for n_frames in (1, 2, 3, 64, 117, 316):
        starts = block_starts(keys, n_frames, 2)
        assert starts.min() == 0 and starts.max() == n_frames - 1


def test_multiplicities_count_the_indices():
    frames = torch.tensor([30, 41, 57, 78, 4, 6])
    lengths = torch.tensor([2, 5, 30, 7, 2, 3])
    keys = resampling_keys("cohort", list("abcdef"), 3, 7, 2, 5)
    counts = block_multiplicities(frames, lengths, keys, 80)
    assert counts.shape == (6, 5, 80)
    for one in range(6):
        for k in range(5):
            indices = block_indices(int(frames[one]), int(lengths[one]), keys[one, k])
            expected = [indices.tolist().count(frame) for frame in range(80)]
            assert counts[one, k].tolist() == expected
    assert torch.equal(counts.sum(-1), frames[:, None].expand(6, 5))


@pytest.mark.parametrize("dtype, tolerance", [(torch.float64, 1e-10), (torch.float32, 1e-4)])
def test_reestimates_equal_connectivity_of_the_resampled_series(dtype, tolerance):
    frames = torch.tensor([40, 55, 61])
    lengths = torch.tensor([6, 3, 10])
    keys = resampling_keys("cohort", ["a", "b", "c"], 0, 6, 0, 4)
    scans = [torch.from_numpy(autoregressive(int(n), 9, 0.6, seed=int(n))) for n in frames]
    scans[1][:, 5] = 2.0
    bold = torch.zeros(3, 61, 9, dtype=dtype)
    for one, scan in enumerate(scans):
        bold[one, : len(scan)] = standardise(scan)
    counts = block_multiplicities(frames, lengths, keys, 61)
    connectivity = reestimated_connectivity(bold, counts)
    assert connectivity.shape == (3, 4, 9, 9) and connectivity.dtype == dtype
    for one, scan in enumerate(scans):
        for k in range(4):
            indices = block_indices(len(scan), int(lengths[one]), keys[one, k])
            expected = fisher_z_connectivity(scan[indices]).to(dtype)
            torch.testing.assert_close(connectivity[one, k], expected, atol=tolerance, rtol=0)
    assert (connectivity[1, :, 5] == 0).all()


def test_drawing_every_frame_once_gives_the_full_scan():
    scan = torch.from_numpy(autoregressive(50, 6, 0.5))
    connectivity = reestimated_connectivity(standardise(scan)[None], torch.ones(1, 1, 50))
    torch.testing.assert_close(connectivity[0, 0], fisher_z_connectivity(scan))


def test_reestimates_of_a_roi_that_is_constant_in_the_resample_are_zero():
    scan = torch.randn(40, 3, generator=torch_generator(0))
    scan[:, 1] = 0
    scan[7, 1] = 1
    counts = torch.ones(1, 1, 40)
    counts[..., 7], counts[..., 8] = 0, 2
    connectivity = reestimated_connectivity(standardise(scan)[None], counts)[0, 0]
    assert (connectivity[1] == 0).all() and connectivity[0, 2] != 0


def test_permuting_rois_permutes_reestimates():
    bold = standardise(torch.from_numpy(autoregressive(50, 6, 0.5)))[None]
    keys = resampling_keys("cohort", ["a"], 0, 5, 0, 3)
    counts = block_multiplicities(torch.tensor([50]), torch.tensor([5]), keys, 50)
    order = torch.tensor([3, 1, 5, 0, 2, 4])
    expected = reestimated_connectivity(bold, counts)[..., order, :][..., order]
    torch.testing.assert_close(reestimated_connectivity(bold[..., order], counts), expected)


def test_keys_depend_on_what_they_should():
    keys = resampling_keys("cohort", ["a", "b"], 0, 7, 1, 8)
    assert keys.shape == (2, 8) and len(set(keys.flatten().tolist())) == 16
    assert torch.equal(keys, refresh_keys(subject_keys("cohort", ["a", "b"], 0), 7, 1, 8))
    # A subject's keys do not depend on who is asked for beside it, nor on K.
    assert torch.equal(keys[1:], resampling_keys("cohort", ["b"], 0, 7, 1, 8))
    assert torch.equal(keys[:, :3], resampling_keys("cohort", ["a", "b"], 0, 7, 1, 3))
    others = [("other", 0, 7, 1), ("cohort", 1, 7, 1), ("cohort", 0, 8, 1), ("cohort", 0, 7, 2)]
    for cohort, seed, length, refresh in others:
        other = resampling_keys(cohort, ["a", "b"], seed, length, refresh, 8)
        assert not (keys == other).any()


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_a_gpu_draws_the_same_frames():
    frames, lengths = torch.tensor([40, 78, 316]), torch.tensor([7, 7, 8])
    keys = resampling_keys("cohort", ["a", "b", "c"], 0, 7, 0, 8)
    on_cpu = block_multiplicities(frames, lengths, keys, 316)
    on_gpu = block_multiplicities(frames.cuda(), lengths.cuda(), keys.cuda(), 316)
    assert torch.equal(on_cpu, on_gpu.cpu())
    bold = torch.randn(3, 316, 20, generator=torch_generator(0))
    bold = bold * (torch.arange(316)[:, None] < frames[:, None, None])
    torch.testing.assert_close(
        reestimated_connectivity(bold.cuda(), on_gpu).cpu(),
        reestimated_connectivity(bold, on_cpu),
        atol=1e-5,
        rtol=1e-4,
    )
