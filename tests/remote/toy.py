"""A home with a toy cohort, a machine that works for it, and archives between them."""

import json
from pathlib import Path

from synthetic import make_cohort, settings_of

from brio_core.cohorts.splits import make_split
from brio_core.cohorts.stores import write_fc, write_series
from brio_core.remote import take as taking
from brio_core.remote.plan import do_jobs, pack, prepare, read_plan
from brio_core.system.files import write_json
from brio_core.system.versions import program_version

INPUTS = {
    "participants": "cohorts/toy/participants.tsv",
    "series": "cohorts/toy/series.h5",
    "fc": "cohorts/toy/fc.h5",
    "split": "splits/toy/loso.json",
    "block_length": "blocklength/toy/loso.json",
}
FILES = [
    "--cohort-dir", "results/cohorts/toy", "--split", "results/splits/toy/loso.json",
    "--block-length", "results/blocklength/toy/loso.json",
]  # fmt: skip
RUN = "runs/toy/loso/gcn/seed-0"
WIDE = "runs/toy/loso/gcn-wide/seed-0"
DIAGNOSTICS = "diagnostics/toy/loso/gcn/seed-0"


def train_job(variant, **overrides):
    """What the workflow writes for a run; the folder of results is called ``results``."""
    values = vars(settings_of("gcn", **{"learning_rate": 3e-3, **overrides}))
    params = {"method": "gcn", "label": "GCN", "group": "General GNNs", "hyperparameters": values}
    params["search"] = {}
    folder, code = f"runs/toy/loso/{variant}/seed-0", program_version("train", ["gcn"])
    arguments = [
        *FILES, "--variant", variant, "--params", json.dumps(params), "--seed", "0", "--code", code,
        "--out-dir", f"results/{folder}", "--device", "cpu", "--checkpoint-seconds", "0.1",
    ]  # fmt: skip
    expected = {"cohort": "toy", "protocol": "loso", "variant": variant, "seed": 0}
    expected = json.loads(json.dumps(expected | params | {"code": code}))
    return {
        "folder": folder, "program": "train", "arguments": arguments, "inputs": INPUTS,
        "expected": expected,
    }  # fmt: skip


def diagnose_job(run):
    """What the workflow writes for the diagnostics of a run."""
    folder = run["folder"].replace("runs", "diagnostics", 1)
    code = program_version("diagnose", ["gcn"])
    settings = {"reestimates": 2, "epsilon": 0.1, "retention_draws": 2, "scan_fractions": [0.5]}
    arguments = [
        *FILES, "--run", f"results/{run['folder']}", "--settings", json.dumps(settings),
        "--code", code, "--out-dir", f"results/{folder}",
    ]  # fmt: skip
    made = {"meta": "meta.json", "models": "models.pt", "predictions": "predictions.csv"}
    expected = run["expected"] | {"diagnostics": settings, "code": code}
    del expected["search"]
    return {
        "folder": folder, "program": "diagnose", "arguments": arguments, "expected": expected,
        "inputs": INPUTS | {key: f"{run['folder']}/{name}" for key, name in made.items()},
        "run": run["folder"],
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
    table.to_csv(results / INPUTS["participants"], sep="\t", index=False)
    split = make_split(table, "toy", "loso", 0)
    write_json(results / INPUTS["split"], split)
    lengths = [{"name": f["name"], "estimate": 4.0, "block_length": 4} for f in split["folds"]]
    content = {"split_checksum": split["checksum"], "folds": lengths}
    write_json(results / INPUTS["block_length"], content)
    write_jobs(results, jobs)
    return results


def write_jobs(results, jobs):
    content = {"results": "results", "config": {}, "jobs": jobs, "files": {}, "configfiles": []}
    write_json(results / "remote/jobs.json", content)


def plan_again():
    """The plan of the home that is the working directory."""
    return prepare(Path("results/remote/plan.json"))


def work(there, seconds=300.0, only=("*",)):
    """Failures of a call on the machine ``there``."""
    plan = read_plan(there / "plan.json")
    return do_jobs(plan, there, plan.choose(only), seconds)


def archive(there, models=False):
    """Everything that is finished on the machine, checked or not."""
    jobs = [job for job in read_plan(there / "plan.json").jobs if not job.done]
    jobs = [job for job in jobs if (there / "results" / job.folder).exists()]
    pack(jobs, there / "results", there / "out.zip", models)
    return there / "out.zip"


def take(path, **options):
    return taking.take([path], Path("results/remote/plan.json"), **options)


def taken(places):
    """What of the results is at home, with what was left behind on the way."""
    results = places / "home/results"
    found = [*results.glob("runs/**/*"), *results.glob("diagnostics/**/*"), *results.glob(".*")]
    return sorted(str(path.relative_to(results)) for path in found)
