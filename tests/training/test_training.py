"""The trainer: samplers, selection, groups, memory, interruption."""

import json
import math
import os
import signal
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from synthetic import make_cohort, make_problem, settings_of, train_all

from brio_core.cohorts.splits import make_split, split_checksum
from brio_core.cohorts.stores import write_fc, write_series
from brio_core.system.devices import choose_device
from brio_core.system.errors import BrioError
from brio_core.system.files import write_json
from brio_core.training import trainer as training
from brio_core.training.adam import Adam
from brio_core.training.batches import schedule, steps_per_epoch
from brio_core.training.gradient import GradientFit
from tests.forked import Forked
from tests.programs import run_program

ROOT = Path(__file__).parents[2]


def test_balanced_batches_hold_every_site_class_equally_and_in_order():
    settings = settings_of("brio")
    site, label = np.repeat([0, 1, 2], [9, 5, 4]), np.array([0, 1] * 9)
    steps = schedule(settings, site, label, 20, np.random.default_rng(0))
    for batch in steps:
        cells = [
            (s, c)
            for s in range(3)
            for c in (0, 1)
            for _ in range(settings.subjects_per_site_class)
        ]
        assert [(site[row], label[row]) for row in batch] == cells
    # Small cells repeat, nobody is dropped.
    assert set(steps.ravel()) == set(range(18))


def test_shuffled_batches_run_through_everybody_before_repeating():
    settings = settings_of("gcn", batch_size=4)
    steps = schedule(settings, np.zeros(10), np.zeros(10), 10, np.random.default_rng(0))
    flat = steps.ravel()
    for start in range(0, 40, 10):
        assert sorted(flat[start : start + 10]) == list(range(10))


def test_steps_per_epoch_is_one_number_for_all_folds():
    assert steps_per_epoch(settings_of("gcn", batch_size=64), [880, 990, 850], 17) == 16
    assert steps_per_epoch(settings_of("brio", subjects_per_site_class=4), [880, 990, 850], 17) == 8


def test_running_out_of_memory_halves_the_group(tmp_path, monkeypatch, capsys):
    real = training.Part.epochs

    def small_machine(part):
        if len(part.folds) > 2:
            raise torch.cuda.OutOfMemoryError
        return real(part)

    problem, _ = make_problem("gcn")
    expected = train_all(problem, tmp_path / "large")
    monkeypatch.setattr(training.Part, "epochs", small_machine)
    results = train_all(problem, tmp_path / "small")
    assert [result.name for result in results] == [fold.name for fold in problem.data.folds]
    assert "3 folds at a time instead of 6" in capsys.readouterr().err
    assert {one.together for one in expected} == {6} and {one.together for one in results} == {1, 2}
    for one, other in zip(expected, results):
        assert one.history[-1]["loss"] == pytest.approx(other.history[-1]["loss"], abs=1e-4)


def test_no_gpu_is_said_plainly(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert choose_device("auto", allow_cpu=True).type == "cpu"
    for wanted, allow in (("auto", False), ("cuda", True)):
        with pytest.raises(BrioError, match="no CUDA device"):
            choose_device(wanted, allow)


@pytest.fixture(scope="module")
def toy_run(tmp_path_factory):
    """Files of a toy cohort, and the command line that trains BRIO on it."""
    folder = tmp_path_factory.mktemp("run")
    cohort, table = make_cohort()
    people = table.assign(age="n/a", sex="n/a", mean_fd="n/a", tr="2.0", source="made up")
    (folder / "toy").mkdir()
    people.to_csv(folder / "toy" / "participants.tsv", sep="\t", index=False)
    scans = [cohort.series.scan(index) for index in range(len(cohort.subjects))]
    write_series(folder / "toy" / "series.h5", cohort.subjects, scans, cohort.series.rois, {})
    write_fc(folder / "toy" / "fc.h5", cohort.subjects, cohort.fc)
    split = make_split(table, "toy", "loso", 0)
    lengths = [{"name": fold["name"], "estimate": 4.0} for fold in split["folds"]]
    write_json(folder / "split.json", split)
    write_json(folder / "length.json", {"split_checksum": split["checksum"], "folds": lengths})
    settings = {**vars(settings_of("brio")), "epochs": 30}
    params = {"method": "brio", "label": "BRIO", "group": "Ours", "hyperparameters": settings}
    command = [
        ROOT / "scripts" / "train.py", "--cohort-dir", folder / "toy",
        "--split", folder / "split.json", "--block-length", folder / "length.json",
        "--variant", "brio", "--params", json.dumps(params), "--seed", "0", "--device", "cpu",
        "--checkpoint-seconds", "0",
    ]  # fmt: skip
    return folder, list(map(str, command))


def start(command, out):
    return Forked([*command, "--out-dir", out], ROOT, dict(os.environ), os.devnull)


def test_a_killed_run_goes_on_and_ends_with_the_same_bytes(toy_run):
    folder, command = toy_run
    assert start(command, folder / "undisturbed").wait() == 0
    kills = 0
    for attempt in range(20):
        process = start(command, folder / "disturbed")
        # Wait for the first checkpoint of this attempt, then kill a little later each time.
        before = latest_change(folder / "disturbed")
        while process.poll() is None and latest_change(folder / "disturbed") == before:
            time.sleep(0.01)
        time.sleep(0.05 * attempt)
        process.send(signal.SIGKILL)
        if process.wait() == 0:
            break
        kills += 1
        assert not (folder / "disturbed" / "meta.json").exists()
        spent = max(
            torch.load(path)["seconds"] for path in (folder / "disturbed/.unfinished").glob("*.pt")
        )
        if kills == 3:
            assert start(command, folder / "disturbed").wait() == 0
            break
    assert kills > 0
    meta = json.loads((folder / "disturbed" / "meta.json").read_text())
    assert meta["seconds"] > meta["training_seconds"] > spent > 0
    for name in ("predictions.csv", "history.csv"):
        one, other = (folder / run / name for run in ("undisturbed", "disturbed"))
        assert one.read_bytes() == other.read_bytes()
    assert sorted(path.name for path in (folder / "disturbed").iterdir()) == [
        "history.csv", "meta.json", "models.pt", "predictions.csv",
    ]  # fmt: skip


def latest_change(folder):
    changes = [path.stat().st_mtime_ns for path in folder.glob(".unfinished/*.pt")]
    return max(changes, default=0)


def test_meta_says_how_to_repeat_the_run(toy_run):
    folder, command = toy_run
    if not (folder / "undisturbed").exists():
        assert start(command, folder / "undisturbed").wait() == 0
    meta = json.loads((folder / "undisturbed" / "meta.json").read_text())
    told = (
        "cohort", "protocol", "variant", "seed", "hyperparameters", "split_checksum", "versions",
        "device", "threads", "group_size", "parameters", "peak_memory_bytes",
    )  # fmt: skip
    for key in told:
        assert meta[key] not in (None, ""), key
    assert [fold["name"] for fold in meta["folds"]] == [f"site{index}" for index in range(6)]


def meta_of(toy_run, method, label):
    """meta.json of a run like the toy's by another method, and what the program said."""
    folder, command = toy_run
    params = {"method": method, "label": label, "group": "Others"}
    params["hyperparameters"] = vars(settings_of(method))
    changed = [json.dumps(params) if part.startswith("{") else part for part in command]
    done = run_program("train", *changed[1:], "--out-dir", folder / method)
    assert done.returncode == 0, done.stderr
    return json.loads((folder / method / "meta.json").read_text()), done.stderr


def test_meta_counts_the_folds_that_trained_together(toy_run):
    """Linear models are fitted one fold after the other, so it is 1 there."""
    meta, _ = meta_of(toy_run, "linear-correlation", "Linear")
    assert meta["group_size"] == 1


def test_unknown_hemispheres_are_told_in_the_log_and_in_the_result(toy_run):
    meta, said = meta_of(toy_run, "fc-hgnn", "FC-HGNN")
    (note,) = meta["notes"]
    assert f"FC-HGNN: {note}" in said and "first half counts as left" in note


def test_a_diverged_training_fails_and_leaves_nothing(toy_run):
    folder, command = toy_run
    params = {"method": "gcn", "label": "GCN", "group": "General GNNs"}
    params["hyperparameters"] = vars(settings_of("gcn", learning_rate=1e30))
    changed = [json.dumps(params) if part.startswith("{") else part for part in command]
    done = run_program("train", *changed[1:], "--out-dir", folder / "diverged")
    assert done.returncode == 1
    assert "error: variant 'brio', seed 0: training diverged, and subject s" in done.stderr
    assert "in fold 'site0' has no finite prediction; lower the learning rate" in done.stderr
    assert not list((folder / "diverged").glob("**/*"))


def test_a_number_that_is_none_is_refused():
    with pytest.raises(BrioError, match="learning_rate is nan, but must be a finite number"):
        settings_of("gcn", learning_rate=math.nan)


def test_split_of_another_cohort_is_refused(toy_run):
    folder, command = toy_run
    split = json.loads((folder / "split.json").read_text())
    split["subjects"][0] = "somebody else"
    split["checksum"] = split_checksum(split)
    (folder / "other.json").write_text(json.dumps(split))
    changed = [
        str(folder / "other.json") if part.endswith("split.json") else part for part in command
    ]
    done = run_program("train", *changed[1:], "--out-dir", folder / "refused")
    assert done.returncode == 1
    assert done.stderr.startswith("error: ") and "lists other subjects" in done.stderr
    assert not (folder / "refused").exists()


def test_the_learning_rate_follows_half_a_cosine():
    problem, _ = make_problem(
        "gcn", schedule="cosine", learning_rate=1e-2, final_learning_rate=1e-3, epochs=4
    )
    run = GradientFit(problem, problem.data.folds[:1], 1 << 30)
    rates = []
    step = run._step

    def watched(phase):
        step(phase)
        rates.append(float(run.optimiser.rate))

    run._step = watched
    run.run(lambda _: None, "test")
    total = 4 * run.batches.per_epoch
    # BrainNetTF counts its steps from 1 to the last one.
    expected = 1e-3 + 0.5 * 9e-3 * (1 + np.cos(np.pi * np.arange(1, total + 1) / total))
    np.testing.assert_allclose(rates, expected, rtol=1e-5)


def test_steps_are_those_of_torch_s_own_classes():
    draw = torch.Generator().manual_seed(0)
    weights = {name: torch.randn(3, 4, generator=draw) for name in "ab"}
    for optimiser, its_class in (("adam", torch.optim.Adam), ("adamw", torch.optim.AdamW)):
        settings = settings_of("gcn", optimiser=optimiser, weight_decay=0.1)
        theirs = {name: value.clone().requires_grad_() for name, value in weights.items()}
        expected = its_class(theirs.values(), lr=settings.learning_rate, weight_decay=0.1)
        ours = Adam({name: value.clone() for name, value in weights.items()}, settings)
        for step in range(4):
            # One of them is frozen at first.
            names = "ab" if step else "a"
            gradients = {name: torch.randn(3, 4, generator=draw) for name in names}
            for name, value in theirs.items():
                value.grad = gradients.get(name)
            expected.step()
            ours.step(gradients)
            for name, value in theirs.items():
                assert torch.equal(ours.weights[name], value)


def test_bfloat16_trains_to_other_but_finite_numbers():
    states = []
    for precision in ("float32", "bfloat16"):
        problem, _ = make_problem("brio", precision=precision)
        run = GradientFit(problem, problem.data.folds[:1], 1 << 30)
        run.run(lambda _: None, "test")
        states.append(run.stack.parameters)
    for value in states[1].values():
        assert value.dtype == torch.float32 and torch.isfinite(value).all()
    assert not torch.equal(states[0]["head.weight"], states[1]["head.weight"])
