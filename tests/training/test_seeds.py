"""Seeds that one process trains."""

import json
import threading

from synthetic import settings_of

from brio_core.cohorts.cohort import Cohort
from brio_core.system.errors import BrioError
from brio_core.system.files import read_json
from brio_core.training import run as running
from brio_core.training import trainer
from tests.programs import run_program
from tests.training.test_training import toy_run  # noqa: F401


def test_seeds_of_one_process_are_those_of_runs_alone_and_none_is_lost(toy_run, monkeypatch):  # noqa: F811
    folder, command = toy_run
    names = ("predictions.csv", "history.csv", "models.pt")

    def train(out, *seeds):
        places = [str(folder / out / str(seed)) for seed in seeds]
        params = {"method": "gcn", "label": "GCN", "group": "General GNNs"}
        params["hyperparameters"] = vars(settings_of("gcn", epochs=3))
        words = [json.dumps(params) if part.startswith("{") else part for part in command[1:]]
        return run_program("train", *words, "--seed", *seeds, "--out-dir", *places).stderr

    load, readers = Cohort.load, []

    def loaded(*where):
        readers.append(threading.current_thread())
        return load(*where)

    monkeypatch.setattr(Cohort, "load", loaded)

    def contents(out, seed):
        return [(folder / out / str(seed) / name).read_bytes() for name in names]

    for seed in (3, 0, 5):
        train("alone", seed)
    # Files are read beside the imports, not after them.
    assert len(readers) == 3 and threading.main_thread() not in readers
    # One that diverges fails after the others, which the next attempt takes as they are.
    usual, fit, trained, strange = running.judged, trainer.GradientFit, [], {0}

    def judged(problem, results):
        if problem.trial.seed in strange:
            raise BrioError("training diverged, and subject s1 is the first; look")
        return usual(problem, results)

    def watched(problem, *rest):
        trained.append(problem.trial.seed)
        return fit(problem, *rest)

    monkeypatch.setattr(running, "judged", judged)
    monkeypatch.setattr(trainer, "GradientFit", watched)
    error = train("together", 3, 0, 5)
    assert "error: variant 'brio', seed 0: training diverged, and subject s1" in error
    assert "seed 3:" not in error and "seed 5:" not in error
    assert not list((folder / "together").glob("*/*.csv")), "nothing is there before all is"
    assert trained == [3, 0, 5]
    strange.clear(), trained.clear()
    train("together", 3, 0, 5)
    assert trained == [0], "nothing but the seed that had failed was trained"
    for seed in (3, 0, 5):
        assert contents("together", seed) == contents("alone", seed)
        found = sorted(path.name for path in (folder / "together" / str(seed)).iterdir())
        assert found == sorted([*names, "meta.json"])
    metas = [read_json(folder / "together" / str(seed) / "meta.json") for seed in (3, 0, 5)]
    assert [meta["seed"] for meta in metas] == [3, 0, 5]
    assert {meta["seeds_together"] for meta in metas} == {3}
    assert len({meta["training_seconds"] for meta in metas}) == 1, "each has its share"
