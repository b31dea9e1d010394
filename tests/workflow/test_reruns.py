"""A run repeats what a change concerns, and nothing else."""

import pytest

ALL_CELLS = {
    ("demo", protocol, variant, "0")
    for protocol in ("loso", "id")
    for variant in ("gcn", "brio", "linear-correlation")
}


def cells_of(jobs, rule="train"):
    return {tuple(values) for name, *values in jobs if name == rule}


def cells_with(variant):
    return {cell for cell in ALL_CELLS if cell[2] == variant}


def rules_of(jobs):
    return {job[0] for job in jobs}


AFTER_TRAINING = {"diagnose", "summarise", "table", "figure", "index", "all"}


def test_second_run_has_nothing_to_do(after_demo):
    """Comments and docstrings do not count as a change."""
    after_demo.append("brio_core/training.py", "\n\n# A remark.\n")
    after_demo.edit("brio_core/methods/gcn.py", '"""GCN: ', '"""Changed words. GCN: ')
    after_demo.append("config/methods/gcn.yaml", "# A remark.\n")
    done = after_demo.snakemake("--cores", "1")
    assert done.returncode == 0
    assert "Nothing to be done" in done.stdout


@pytest.mark.parametrize(
    ("file", "old", "new", "variant"),
    [
        ("config/methods/gcn.yaml", "dropout: 0.5", "dropout: 0.4", "gcn"),
        ("config/config.yaml", "warmup_epochs: 25", "warmup_epochs: 24", "brio"),
        ("brio_core/methods/gcn.py", 'name = "gcn"', 'name = "gcn"\n    changed = 1', "gcn"),
        ("brio_core/methods/brio/factors.py", "import torch\n", "import torch, math\n", "brio"),
    ],
    ids=["setting", "override", "module", "package"],
)
def test_one_method_changes(after_demo, file, old, new, variant):
    after_demo.edit(file, old, new)
    jobs = after_demo.plan()
    assert cells_of(jobs) == cells_with(variant)
    assert rules_of(jobs) == {"train"} | AFTER_TRAINING
    diagnosed = {values[2] for values in cells_of(jobs, "diagnose")}
    # The diagnostics of all methods use the qualification of BRIO.
    assert diagnosed == {variant}


def test_shared_training_code_changes(after_demo):
    after_demo.append("brio_core/training.py", "\nCHANGED = 1\n")
    jobs = after_demo.plan()
    assert cells_of(jobs) == ALL_CELLS
    assert rules_of(jobs) == {"train"} | AFTER_TRAINING


def test_code_of_everything_changes(after_demo):
    after_demo.append("brio_core/files.py", "\nCHANGED = 1\n")
    jobs = after_demo.plan()
    assert cells_of(jobs) == ALL_CELLS
    assert {"make_demo", "extract", "connect", "split", "blocklength"} <= rules_of(jobs)


def test_a_figure_retrains_nothing(after_demo):
    after_demo.append("brio_core/reporting/figures/cohort.py", "\nCHANGED = 1\n")
    jobs = after_demo.plan()
    assert jobs == {("figure", "cohorts"), ("index",), ("all",)}


def test_words_about_a_cohort_extract_nothing(after_demo):
    after_demo.edit("config/datasets/demo.yaml", "title: Demo cohort", "title: Our cohort")
    assert rules_of(after_demo.plan()) == {"table", "figure", "index", "all"}


def test_another_machine_retrains_nothing(after_demo):
    after_demo.edit("config/config.yaml", "device: cpu", "device: auto")
    assert rules_of(after_demo.plan()) == {"index", "all"}


def test_a_new_seed_trains_only_its_cells(after_demo):
    after_demo.edit("config/config.yaml", "seeds: [0]", "seeds: [0, 1]")
    trained = cells_of(after_demo.plan())
    assert {cell[3] for cell in trained} == {"1"}
    assert {cell[2] for cell in trained} == {"gcn", "brio"}, "linear rows have no seeds"
