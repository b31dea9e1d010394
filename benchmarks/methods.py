"""Every method on one cohort: time, memory and AUC of all folds, from runs that are finished.

python benchmarks/methods.py results/runs/abide-cc200/loso --seed 0

The seconds are those of training: with set-up, validation, checkpoints and early stopping, without
reading files. 'trained' are the epochs of a fold, of those that it may have. The last row is what
the slowest start took beside training. What is printed is what scripts/estimate_hours.py reads.
Only runs that had the machine to themselves tell the time.
"""

import argparse
from pathlib import Path

import pandas as pd
from common import table

from brio_core.evaluation.scores import score_folds, usable
from brio_core.methods import registry
from brio_core.system.files import read_json

COLUMNS = ("method", "tries", "epochs", "trained", "seconds", "ms per epoch and fold", "peak GB")
SCORES = ("parameters", "AUC", "ACC", "validation AUC")


def row(method: str, meta: dict, test: pd.DataFrame) -> tuple:
    """One row of the table."""
    scores = usable(score_folds(test["fold"], test["label"], test["logit"]))
    shares = [(scores[name].mean(), scores[name].std()) for name in ("auc", "acc")]
    folds = pd.DataFrame(meta["folds"])
    return (
        method,
        max(len(meta["tries"]), 1),
        meta["hyperparameters"].get("epochs", ""),
        f"{folds['epochs'].mean():.0f}",
        f"{meta['training_seconds']:.1f}",
        f"{1e3 * folds['seconds_per_epoch'].mean():.3g}",
        f"{meta['peak_memory_bytes'] / 1e9:.1f}",
        f"{meta['parameters']:,}",
        *(f"{100 * mean:.1f} ± {100 * sd:.1f}" for mean, sd in shares),
        f"{100 * folds['validation_auc'].mean():.1f}",
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("runs", type=Path, help="folder of the runs of a cohort and protocol")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    folders = {name: arguments.runs / name / f"seed-{arguments.seed}" for name in registry.names()}
    folders = {name: path for name, path in folders.items() if (path / "meta.json").is_file()}
    if not folders:
        parser.error(f"{arguments.runs} has no finished run of seed {arguments.seed}")
    metas = {name: read_json(folder / "meta.json") for name, folder in folders.items()}
    rows = []
    for name, folder in folders.items():
        predictions = pd.read_csv(folder / "predictions.csv")
        test = predictions[predictions["split"] == "test"]
        rows.append(row(name, metas[name], test))
    start = max(meta["seconds"] - meta["training_seconds"] for meta in metas.values())
    seconds = sum(meta["training_seconds"] for meta in metas.values())
    rows.append(("start of a run", "", "", "", f"{start:.1f}"))
    meta = next(iter(metas.values()))
    versions = f"torch {meta['versions']['torch']}, Python {meta['versions']['python']}"
    size = f"{len(test):,} subjects, {test['fold'].nunique()} sites"
    about = f"{meta['cohort']}: {size}, {meta['protocol']}, seed {arguments.seed}"
    print(f"{meta['device']}, {versions}; {about}\n")
    print(table((*COLUMNS, *SCORES), rows))
    print(f"\nAll {len(metas)} methods trained for {seconds:.1f} s.")


if __name__ == "__main__":
    main()
