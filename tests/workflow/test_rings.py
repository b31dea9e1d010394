"""Several rings of validation sites: more runs of the main experiment, and nothing else."""

from tests.workflow.test_configuration import configuration
from workflow.planning.outputs import shown_by
from workflow.planning.remote import prepared_files
from workflow.planning.runs import experiment_runs


def test_rings_add_runs_of_the_main_experiment_and_change_no_other():
    words = {"methods": ["gcn", "brio", "linear-correlation"], "seeds": [3, 4], "variants": "all"}
    usual, several = (configuration(**words, **more) for more in ({}, {"split_seeds": [5, 0, 8]}))
    for name in usual.experiments:
        runs, more = experiment_runs(usual, name), experiment_runs(several, name)
        # Without further rings, paths are what they always were.
        for run in runs:
            folder = f"{run.cohort}/{run.protocol}/{run.variant}/seed-{run.seed}"
            assert run.folder == folder and not run.ring
        assert [run for run in more if not run.ring] == list(runs)
        added = [run for run in more if run.ring]
        unseen = [run for run in runs if run.protocol == "loso"] if name == "main" else []
        assert added == [run._replace(ring=ring) for run in unseen for ring in (1, 2)]
        for kind in ("tables", "figures"):
            items = [shown_by(plan, kind, (name,)) for plan in (usual, several)]
            for one, other in zip(*items, strict=True):
                assert (one.name, one.planned) == (other.name, other.planned)
                old, new = one.made_of, other.made_of
                assert {key for key in old if old[key] != new[key]} <= {"runs"}
                assert all(set(old[key]) <= set(new[key]) for key in old)


def test_another_machine_gets_the_folds_of_every_ring():
    resolved = configuration(methods=["gcn"], experiments=["main"], split_seeds=[0, 1])
    prepared = prepared_files(resolved)
    ends = ["loso.json", "loso-ring-1.json", "id.json"]
    assert [path for path in prepared if "blocklength" in path] == [
        f"results/blocklength/demo/{end}" for end in ends
    ]
    runs = experiment_runs(resolved, "main")
    assert runs[1].folder == "demo/loso/gcn/seed-0-ring-1"
    assert runs[1].identity["ring"] == 1 and "ring" not in runs[0].identity
