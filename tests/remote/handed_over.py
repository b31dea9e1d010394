"""A home with a toy cohort, a machine that works for it, and archives between them."""

import json
from pathlib import Path

from synthetic import make_cohort, settings_of

from brio_core.cohorts.splits import make_split
from brio_core.cohorts.stores import write_fc, write_series
from brio_core.remote import take as taking
from brio_core.remote.archive import write_parts
from brio_core.remote.pack import pack_new
from brio_core.system.files import write_json
from brio_core.system.versions import program_version


def train_job(variant, seed=0, **overrides):
    """What the workflow writes for a cell; the folder of results is called ``results``."""
    values = {"learning_rate": 3e-3, **overrides}
    settings = vars(settings_of("gcn", **values))
    params = {"method": "gcn", "label": "GCN", "group": "General GNNs", "hyperparameters": settings}
    folder = f"runs/toy/loso/{variant}/seed-{seed}"
    code = program_version("train", ["gcn"])
    inputs = [f"cohorts/toy/{name}" for name in ("participants.tsv", "series.h5", "fc.h5")]
    inputs += ["splits/toy/loso.json", "blocklength/toy/loso.json"]
    files = ("predictions.csv", "history.csv", "meta.json", "models.pt")
    words = [
        "--cohort-dir", "results/cohorts/toy", "--split", f"results/{inputs[3]}",
        "--block-length", f"results/{inputs[4]}", "--variant", variant,
        "--params", json.dumps(params), "--seed", str(seed), "--code", code,
        "--out-dir", f"results/{folder}", "--device", "cpu",
    ]  # fmt: skip
    return {
        "folder": folder, "program": "train", "words": words, "code": code, "methods": ["gcn"],
        "gpu": True, "inputs": inputs, "outputs": [f"{folder}/{name}" for name in files],
    }  # fmt: skip


def diagnose_job(cell):
    """What the workflow writes for the diagnostics of a cell."""
    folder = cell["folder"].replace("runs", "diagnostics", 1)
    code = program_version("diagnose", ["gcn"])
    settings = {"reestimates": 2, "epsilon": 0.1, "retention_draws": 2, "scan_fractions": [0.5]}
    words = [
        *cell["words"][:6], "--run", f"results/{cell['folder']}",
        "--settings", json.dumps(settings), "--code", code, "--out-dir", f"results/{folder}",
    ]  # fmt: skip
    run = [f"{cell['folder']}/{name}" for name in ("meta.json", "models.pt", "predictions.csv")]
    return {
        "folder": folder, "program": "diagnose", "words": words, "code": code, "methods": ["gcn"],
        "gpu": True, "inputs": [*cell["inputs"], *run], "outputs": [folder],
    }  # fmt: skip


def make_home(folder: Path, jobs) -> Path:
    """A folder with a prepared cohort, as it is before training; returns its results."""
    results = folder / "results"
    cohort, table = make_cohort(n_sites=5, per_class=3)
    write_series(
        results / "cohorts/toy/series.h5", cohort.subjects,
        [cohort.series.scan(i) for i in range(len(cohort.subjects))], cohort.series.rois, {},
    )  # fmt: skip
    write_fc(results / "cohorts/toy/fc.h5", cohort.subjects, cohort.fc)
    for column in ("age", "sex", "mean_fd", "tr", "source"):
        table[column] = "n/a"
    path = results / "cohorts/toy/participants.tsv"
    table.to_csv(path, sep="\t", index=False)
    split = make_split(table, "toy", "loso", 0)
    write_json(results / "splits/toy/loso.json", split)
    lengths = [{"name": f["name"], "estimate": 4.0, "block_length": 4} for f in split["folds"]]
    content = {"split_checksum": split["checksum"], "folds": lengths}
    write_json(results / "blocklength/toy/loso.json", content)
    content = {"results": "results", "config": {}, "jobs": jobs}
    write_json(results / "handover/jobs.json", content)
    return results


def archive(places, programs, part_megabytes=float("inf"), **options):
    plan, out = places / "there/plan.json", places / "there/out.tar"
    return pack_new(plan, places / "there/results", programs, out, part_megabytes, **options)


def take(paths, programs, **options):
    taking.take(paths, Path("results/handover/plan.json"), programs, **options)


def runs_at(places):
    return sorted(str(path) for path in (places / "home/results").glob("runs/**/*.csv"))


def pack_as_it_is(places, more=()):
    """An archive of whatever lies there, by somebody who does not check."""
    root = places / "there/results"
    folders = [root / f"runs/toy/loso/{name}/seed-0" for name in ("gcn-wide", "gcn")]
    groups = {
        str(folder): [path for path in folder.iterdir() if path.name != "models.pt"]
        for folder in [*folders, *more]
    }
    return write_parts(groups, root, places / "there/raw.tar", float("inf"))
