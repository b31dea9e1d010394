"""Every method on one cohort: time and memory of all folds, from runs that are finished.

python benchmarks/methods.py results/runs/abide-cc200/loso

Of each method the seed counts that was fastest per epoch, because others may have shared the
machine. The seconds are those of training: with set-up, validation, checkpoints and early stopping,
without reading files. 'trained' are the epochs of a fold, of those that it may have. The last row
is what a start takes beside training: the median over methods. If any run used a GPU, only those
count that did. scripts/estimate_hours.py reads what is printed.
"""

import argparse
import statistics
from datetime import datetime
from pathlib import Path

from common import table

from brio_core.methods import registry
from brio_core.system.files import read_json

COLUMNS = (
    "method", "seed", "tries", "epochs", "trained", "seconds", "ms per epoch and fold", "peak GB",
    "parameters",
)  # fmt: skip


def milliseconds(meta: dict) -> float:
    """Time per epoch and fold."""
    return 1e3 * statistics.fmean(fold["seconds_per_epoch"] for fold in meta["folds"])


def fastest(folder: Path) -> list[dict]:
    """The record of the fastest seed of every method."""
    found = []
    for method in registry.names():
        paths = sorted(folder.glob(f"{method}/seed-*/meta.json"))
        metas = [read_json(path) for path in paths]
        found += [min(metas, key=milliseconds)] if metas else []
    on_gpu = [meta for meta in found if not meta["device"].startswith("CPU")]
    return on_gpu or found


def row(meta: dict) -> tuple:
    """One row of the table."""
    return (
        meta["method"],
        meta["seed"],
        max(len(meta["tries"]), 1),
        meta["hyperparameters"].get("epochs", ""),
        f"{statistics.fmean(fold['epochs'] for fold in meta['folds']):.0f}",
        f"{meta['training_seconds']:.1f}",
        f"{milliseconds(meta):.3g}",
        f"{meta['peak_memory_bytes'] / 1e9:.1f}",
        f"{meta['parameters']:,}",
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("runs", type=Path, help="folder of the runs of a cohort and protocol")
    arguments = parser.parse_args()
    metas = fastest(arguments.runs)
    if not metas:
        parser.error(f"{arguments.runs} has no finished run")
    start = statistics.median(meta["seconds"] - meta["training_seconds"] for meta in metas)
    rows = [*map(row, metas), ("start of a run", "", "", "", "", f"{start:.1f}")]
    meta = metas[0]
    predictions = arguments.runs / meta["variant"] / f"seed-{meta['seed']}" / "predictions.csv"
    tested = [line for line in predictions.read_text().splitlines() if ",test," in line]
    versions = f"torch {meta['versions']['torch']}, Python {meta['versions']['python']}"
    size = f"{len(tested):,} subjects, {len(meta['folds'])} sites"
    print(f"{meta['device']}, {versions}; {meta['cohort']}: {size}, {meta['protocol']}\n")
    print(table(COLUMNS, rows))
    seconds = sum(meta["training_seconds"] for meta in metas)
    print(f"\nAll {len(metas)} methods trained for {seconds:.1f} s.")
    started, finished = (
        [datetime.fromisoformat(meta[name]) for meta in metas] for name in ("started", "finished")
    )
    passed = (max(finished) - min(started)).total_seconds()
    # Starts and ends are whole seconds.
    if passed + 1 < seconds:
        print(f"Some trained at once: {passed:.0f} s passed from the first start to the last end.")


if __name__ == "__main__":
    main()
