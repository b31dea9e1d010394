"""Every method on one cohort: time, memory and AUC of all folds, one seed.

python benchmarks/methods.py --device cuda --epochs 100 \\
    --cohort-dir results/cohorts/abide-cc200 --split results/splits/abide-cc200/loso.json \\
    --block-length results/blocklength/abide-cc200/loso.json

The seconds are those of training, as the jobs measure them: with set-up, validation and
checkpoints, without reading files. Hyperparameters are the preset 'common', without early stopping;
with --search, methods that list settings to choose from train all of them. What is printed is what
scripts/estimate_hours.py reads.
"""

import argparse
import os
import tempfile
from math import prod
from pathlib import Path


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--cohort-dir", type=Path, required=True)
    parser.add_argument("--split", type=Path, required=True)
    parser.add_argument("--block-length", type=Path, required=True)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--methods", nargs="*", help="default: all")
    parser.add_argument("--epochs", type=int, default=100)
    parser.add_argument("--search", action="store_true", help="train every setting of a search")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=2)
    return parser.parse_args()


ARGUMENTS = parse()
os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")

import pandas as pd  # noqa: E402
import torch  # noqa: E402
import yaml  # noqa: E402
from common import METHODS, common_settings, machine, table  # noqa: E402

from brio_core.evaluation.scores import auc  # noqa: E402
from brio_core.methods import registry  # noqa: E402
from brio_core.system.files import read_json  # noqa: E402
from brio_core.training.data import RunFiles  # noqa: E402
from brio_core.training.run import Machine, Run, train_run  # noqa: E402


def settings_of(method: str) -> dict:
    """The common preset with the epochs asked for, all of which are trained."""
    settings = common_settings(method)
    if "epochs" in settings:
        first = min(settings["first_epoch"], ARGUMENTS.epochs)
        settings |= {"epochs": ARGUMENTS.epochs, "patience": 0, "first_epoch": first}
    return settings


def search_of(method: str) -> dict:
    """What the method lists under search, if it is asked for."""
    listed = yaml.safe_load((METHODS / f"{method}.yaml").read_text()).get("search", {})
    return listed if ARGUMENTS.search else {}


def measure(method: str) -> tuple:
    """One row of the table."""
    settings, search = settings_of(method), search_of(method)
    params = {"method": method, "label": method, "group": "", "hyperparameters": settings}
    params["search"] = search
    with tempfile.TemporaryDirectory() as folder:
        files = RunFiles(ARGUMENTS.cohort_dir, ARGUMENTS.split, ARGUMENTS.block_length)
        run = Run(files, method, params, ARGUMENTS.seed)
        train_run(run, Machine(ARGUMENTS.device), Path(folder))
        meta = read_json(Path(folder) / "meta.json")
        predictions = pd.read_csv(Path(folder) / "predictions.csv")
    test = predictions[predictions["split"] == "test"]
    folds = [fold for _, fold in test.groupby("fold")]
    aucs = pd.Series([auc(fold["label"].to_numpy(), fold["logit"].to_numpy()) for fold in folds])
    accuracy = pd.Series([((fold["logit"] > 0) == fold["label"]).mean() for fold in folds])
    validation = pd.Series([fold["validation_auc"] for fold in meta["folds"]])
    return (
        method,
        prod(map(len, search.values())),
        settings.get("epochs", ""),
        f"{meta['training_seconds']:.1f}",
        f"{meta['peak_memory_bytes'] / 1e9:.1f}",
        f"{meta['parameters']:,}",
        f"{100 * aucs.mean():.1f} ± {100 * aucs.std():.1f}",
        f"{100 * accuracy.mean():.1f} ± {100 * accuracy.std():.1f}",
        f"{100 * validation.mean():.1f}",
    )


def main() -> None:
    torch.set_num_threads(ARGUMENTS.threads)
    split = read_json(ARGUMENTS.split)
    size = f"{len(split['subjects']):,} subjects, {len(set(split['site']))} sites"
    about = f"{split['cohort']}: {size}, {split['protocol']}, seed {ARGUMENTS.seed}"
    print(f"{machine(ARGUMENTS.device)}; {about}\n", flush=True)
    rows = [measure(method) for method in ARGUMENTS.methods or registry.names()]
    header = (
        "method",
        "tries",
        "epochs",
        "seconds",
        "peak GB",
        "parameters",
        "AUC",
        "ACC",
        "validation AUC",
    )
    print(table(header, rows))


if __name__ == "__main__":
    main()
