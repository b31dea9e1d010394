"""Re-estimated FC: ours against a loop over nilearn's ConnectivityMeasure and arch's bootstrap.

All give Fisher-z correlations of circular block resamples of the same scans. A library that is
not installed is named and left out.
"""

import argparse
from functools import partial

import numpy as np


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--subjects", type=int, default=64)
    parser.add_argument("--rois", type=int, nargs="+", default=[116, 200])
    parser.add_argument("--frames", type=int, default=200)
    parser.add_argument("--resamples", type=int, default=8)
    parser.add_argument("--block-length", type=int, default=7)
    parser.add_argument("--threads", type=int, default=2)
    return parser.parse_args()


ARGUMENTS = parse()

import torch  # noqa: E402
from common import machine, seconds, table  # noqa: E402

from brio_core.connectivity.reestimation import (  # noqa: E402
    block_indices,
    block_multiplicities,
    reestimated_connectivity,
    resampling_keys,
)

FRAMES, RESAMPLES, BLOCK = ARGUMENTS.frames, ARGUMENTS.resamples, ARGUMENTS.block_length


def nilearn_loop(scans, indices):
    from nilearn.connectome import ConnectivityMeasure
    from sklearn.covariance import EmpiricalCovariance

    measure = ConnectivityMeasure(
        EmpiricalCovariance(store_precision=False), kind="correlation", standardize=False
    )
    for scan, draws in zip(scans, indices):
        correlation = measure.fit_transform([scan[draw] for draw in draws])
        np.arctanh(np.clip(correlation, -1 + 1e-7, 1 - 1e-7))


def arch_loop(scans, indices):
    from arch.bootstrap import CircularBlockBootstrap

    for scan in scans:
        for (draw,), _ in CircularBlockBootstrap(BLOCK, scan, seed=0).bootstrap(RESAMPLES):
            np.arctanh(np.clip(np.corrcoef(draw.T), -1 + 1e-7, 1 - 1e-7))


def main() -> None:
    torch.set_num_threads(ARGUMENTS.threads)
    device = ARGUMENTS.device
    print(f"{machine(device)}; {ARGUMENTS.subjects} scans of {FRAMES} frames, K = {RESAMPLES}\n")
    rows = []
    for rois in ARGUMENTS.rois:
        generator = np.random.default_rng(0)
        scans = generator.standard_normal((ARGUMENTS.subjects, FRAMES, rois)).astype(np.float32)
        scans = (scans - scans.mean(1, keepdims=True)) / scans.std(1, keepdims=True)
        keys = resampling_keys("bench", [str(i) for i in range(len(scans))], 0, BLOCK, 0, RESAMPLES)
        indices = block_indices(FRAMES, BLOCK, keys).numpy()
        bold, keys = torch.as_tensor(scans, device=device), keys.to(device)
        frames = torch.full((len(scans),), FRAMES, device=device)
        block = torch.full_like(frames, BLOCK)
        # A CPU likes what fits its cache, a GPU likes everything at once.
        step = len(scans) if device.startswith("cuda") else 4

        def ours(bold=bold, keys=keys, frames=frames, block=block, step=step):
            weight = block_multiplicities(frames, block, keys, FRAMES)
            return [
                reestimated_connectivity(bold[i : i + step], weight[i : i + step])
                for i in range(0, len(bold), step)
            ]

        expected = np.arctanh(np.clip(np.corrcoef(scans[0][indices[0, 0]].T), -1 + 1e-7, 1 - 1e-7))
        np.fill_diagonal(expected, 0)
        error = np.abs(ours()[0][0, 0].cpu().numpy() - expected).max()
        own = seconds(ours, device)
        per = 1e6 / (len(scans) * RESAMPLES)
        rows.append((rois, f"ours (largest error {error:.0e})", f"{own * per:.1f}", "1"))
        for name, loop in (("nilearn loop, CPU", nilearn_loop), ("arch loop, CPU", arch_loop)):
            try:
                other = seconds(partial(loop, scans, indices), "cpu", repeats=2)
            except ImportError:
                rows.append((rois, name, "not installed", ""))
                continue
            rows.append((rois, name, f"{other * per:.1f}", f"{other / own:.1f}"))
    print(table(("ROIs", "program", "µs per re-estimate", "times ours"), rows))


if __name__ == "__main__":
    main()
