"""The linear rows, all folds of an ABIDE-sized cell, and the tangent space by nilearn.

python benchmarks/linear.py                                       # a made-up cohort
python benchmarks/linear.py --cohort-dir results/cohorts/abide-cc200 \\
    --split results/splits/abide-cc200/loso.json \\
    --block-length results/blocklength/abide-cc200/loso.json      # a real one

nilearn fits one fold's tangent space on one thread, which suits it best. Its time for all folds
assumes that as many processes as there are threads share them perfectly.
"""

import argparse
import tempfile
import time
from pathlib import Path

ROWS = ("linear-confounds", "linear-correlation", "linear-reestimation", "linear-tangent")


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--cohort-dir", type=Path)
    parser.add_argument("--split", type=Path)
    parser.add_argument("--block-length", type=Path)
    parser.add_argument("--rois", type=int, default=200)
    parser.add_argument("--methods", nargs="*", default=ROWS)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--without-nilearn", action="store_true")
    return parser.parse_args()


ARGUMENTS = parse()

import numpy as np  # noqa: E402
import pandas as pd  # noqa: E402
import torch  # noqa: E402
from common import Size, common_settings, machine, make_cohort, table  # noqa: E402

from brio_core.cohorts.cohort import Cohort  # noqa: E402
from brio_core.cohorts.splits import make_split  # noqa: E402
from brio_core.methods import registry  # noqa: E402
from brio_core.system.devices import make_deterministic  # noqa: E402
from brio_core.system.files import read_json  # noqa: E402
from brio_core.training.checkpoints import Checkpoints  # noqa: E402
from brio_core.training.data import TrainingData, read_folds  # noqa: E402
from brio_core.training.problem import Problem, Trial  # noqa: E402
from brio_core.training.trainer import train  # noqa: E402


def made_up() -> tuple[Cohort, dict, dict]:
    cohort, label = make_cohort(Size(rois=ARGUMENTS.rois))
    people = pd.DataFrame(
        {"subject": cohort.subjects, "site": cohort.site, "label": label, "group": "n/a"}
    )
    split = make_split(people, cohort.name, "loso", 0)
    lengths = {
        "split_checksum": split["checksum"],
        "folds": [{"name": fold["name"], "estimate": 7.0} for fold in split["folds"]],
    }
    return cohort, split, lengths


def from_files() -> tuple[Cohort, dict, dict]:
    split, lengths = read_json(ARGUMENTS.split), read_json(ARGUMENTS.block_length)
    return Cohort.load(ARGUMENTS.cohort_dir), split, lengths


def ours(name: str, cohort: Cohort, split: dict, lengths: dict) -> tuple[float, float, float]:
    """Wall and processor seconds, and the mean validation AUC, of all folds."""
    method = registry.find(name)
    settings = method.Hyperparameters.of(common_settings(name), name)
    folds = read_folds(cohort, split, lengths)
    data = TrainingData(cohort, split, folds, torch.device("cpu"))
    problem = Problem(data, Trial(method, settings, name, 0))
    with tempfile.TemporaryDirectory() as folder:
        begun, used = time.perf_counter(), time.process_time()
        results = train(problem, Checkpoints(Path(folder), "benchmark", 60), None)
        elapsed, spent = time.perf_counter() - begun, time.process_time() - used
    return elapsed, spent, float(np.mean([result.validation_auc for result in results]))


def nilearn_fold(cohort: Cohort, fold: dict) -> float:
    """Processor seconds for nilearn's tangent vectors of all subjects of one fold."""
    from nilearn.connectome import ConnectivityMeasure
    from threadpoolctl import threadpool_limits

    def scans(rows):
        series = [cohort.series.scan(row).astype(np.float64) for row in rows]
        return [
            (scan - scan.mean(0)) / np.where(scan.std(0) > 0, scan.std(0), 1) for scan in series
        ]

    measure = ConnectivityMeasure(kind="tangent", vectorize=True, standardize=False)
    train_scans, other_scans = scans(fold["train"]), scans([*fold["validation"], *fold["test"]])
    with threadpool_limits(1):
        begun = time.process_time()
        measure.fit_transform(train_scans)
        measure.transform(other_scans)
        return time.process_time() - begun


def main() -> None:
    torch.set_num_threads(ARGUMENTS.threads)
    make_deterministic(torch.device("cpu"), "float32")
    cohort, split, lengths = from_files() if ARGUMENTS.cohort_dir else made_up()
    n_folds = len(split["folds"])
    print(
        f"{machine('cpu')}; {len(cohort.subjects)} subjects, {cohort.fc.shape[-1]} ROIs, "
        f"{n_folds} folds\n"
    )
    rows = []
    for name in ARGUMENTS.methods:
        elapsed, spent, auc = ours(name, cohort, split, lengths)
        rows.append((name, f"{elapsed:.1f}", f"{spent:.1f}", f"{100 * auc:.1f}"))
    if not ARGUMENTS.without_nilearn:
        try:
            one = nilearn_fold(cohort, split["folds"][0])
            shared = one * n_folds / ARGUMENTS.threads
            rows.append(
                (f"tangent vectors by nilearn ({one:.1f} s a fold)", f"{shared:.1f}",
                 f"{one * n_folds:.1f}", "")
            )  # fmt: skip
        except ImportError:
            rows.append(("tangent vectors by nilearn", "not installed", "", ""))
    header = ("what", "seconds, all folds", "processor seconds", "mean validation AUC")
    print(table(header, rows))


if __name__ == "__main__":
    main()
