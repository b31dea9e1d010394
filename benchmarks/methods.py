"""Every method on one cohort: time, memory and AUC of all folds, one seed.

python benchmarks/methods.py --device cuda --epochs 100 \\
    --cohort-dir results/cohorts/abide-cc200 --split results/splits/abide-cc200/loso.json \\
    --block-length results/blocklength/abide-cc200/loso.json

The seconds are those of training, as the jobs measure them: with set-up, validation and
checkpoints, without reading files. Hyperparameters are the preset 'common', without early stopping;
with --search, methods that list values to choose from train all of them. What is printed is what
scripts/estimate_hours.py reads. With --group-size 1 folds train alone, and the time of an epoch and
the memory are those of one fold, which is what the paper reports.
"""

import tempfile
from math import prod
from pathlib import Path

import pandas as pd
import torch
import yaml
from common import METHODS, argument_parser, common_settings, machine, table

from brio_core.evaluation.scores import score_folds, usable
from brio_core.methods import registry
from brio_core.system.files import read_json
from brio_core.training.data import RunFiles
from brio_core.training.run import Machine, Run, train_run

PARSER = argument_parser(__doc__)
PARSER.add_argument("--cohort-dir", type=Path, required=True)
PARSER.add_argument("--split", type=Path, required=True)
PARSER.add_argument("--block-length", type=Path, required=True)
PARSER.add_argument("--methods", nargs="*", help="default: all")
PARSER.add_argument("--epochs", type=int, default=100)
PARSER.add_argument("--search", action="store_true", help="train every choice of a search")
PARSER.add_argument("--seed", type=int, default=0)
PARSER.add_argument("--group-size", type=int, help="folds that train together; default: all")
ARGUMENTS = PARSER.parse_args()
COLUMNS = ("method", "tries", "epochs", "seconds", "s per epoch and fold", "peak GB", "parameters")
SCORES = ("AUC", "ACC", "validation AUC")


def measure(method: str) -> tuple:
    """One row of the table."""
    hyperparameters, search = common_settings(method), {}
    # All epochs that were asked for are trained.
    if "epochs" in hyperparameters:
        first = min(hyperparameters["first_epoch"], ARGUMENTS.epochs)
        hyperparameters |= {"epochs": ARGUMENTS.epochs, "patience": 0, "first_epoch": first}
    if ARGUMENTS.search:
        search = yaml.safe_load((METHODS / f"{method}.yaml").read_text()).get("search", {})
    params = {"method": method, "label": method, "group": "", "search": search}
    params["hyperparameters"] = hyperparameters
    with tempfile.TemporaryDirectory() as folder:
        files = RunFiles(ARGUMENTS.cohort_dir, ARGUMENTS.split, ARGUMENTS.block_length)
        run = Run(files, method, params, ARGUMENTS.seed)
        train_run(run, Machine(ARGUMENTS.device, group_size=ARGUMENTS.group_size), Path(folder))
        meta = read_json(Path(folder) / "meta.json")
        predictions = pd.read_csv(Path(folder) / "predictions.csv")
    test = predictions[predictions["split"] == "test"]
    scores = usable(score_folds(test["fold"], test["label"], test["logit"]))
    shares = [(scores[name].mean(), scores[name].std()) for name in ("auc", "acc")]
    validation = pd.Series([fold["validation_auc"] for fold in meta["folds"]])
    return (
        method,
        prod(map(len, search.values())),
        hyperparameters.get("epochs", ""),
        f"{meta['training_seconds']:.1f}",
        f"{pd.Series([fold['seconds_per_epoch'] for fold in meta['folds']]).mean():.3g}",
        f"{meta['peak_memory_bytes'] / 1e9:.1f}",
        f"{meta['parameters']:,}",
        *(f"{100 * mean:.1f} ± {100 * sd:.1f}" for mean, sd in shares),
        f"{100 * validation.mean():.1f}",
    )


def main() -> None:
    torch.set_num_threads(ARGUMENTS.threads)
    split = read_json(ARGUMENTS.split)
    size = f"{len(split['subjects']):,} subjects, {len(set(split['site']))} sites"
    about = f"{split['cohort']}: {size}, {split['protocol']}, seed {ARGUMENTS.seed}"
    print(f"{machine(ARGUMENTS.device)}; {about}\n", flush=True)
    rows = [measure(method) for method in ARGUMENTS.methods or registry.names()]
    print(table((*COLUMNS, *SCORES), rows))


if __name__ == "__main__":
    main()
