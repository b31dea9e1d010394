"""What the tests of the hand-over share; training happens once."""

import shutil
import sys
from pathlib import Path

import pytest
from handed_over import diagnose_job, make_home, train_job

from brio_core.remote import take as taking
from brio_core.remote.plan import prepare
from brio_core.remote.work import Worker

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def programs():
    """Programs find what lies beside them."""
    sys.path.insert(0, str(ROOT / "scripts"))
    try:
        import diagnose
        import train

        yield {"train": train, "diagnose": diagnose}
    finally:
        sys.path.remove(str(ROOT / "scripts"))


@pytest.fixture(scope="session")
def worked(programs, tmp_path_factory):
    """A home where nothing is trained, and a machine that has done everything."""
    folder = tmp_path_factory.mktemp("handover")
    cells = [train_job("gcn"), train_job("gcn-wide", hidden=9)]
    results = make_home(folder / "home", [*cells, diagnose_job(cells[0])])
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder / "home")
        plan = prepare(Path("results/handover/jobs.json"), programs, Path("results/handover"))
    there = folder / "there"
    shutil.copytree(results / "handover", there)
    worker = Worker(plan, there / "results", programs)
    worker.check()
    worker.run(300, lambda job: [])
    assert not worker.waiting and not worker.failed
    return folder


@pytest.fixture
def places(worked, tmp_path, monkeypatch):
    """Copies of both, and a Snakemake that believes everything."""
    shutil.copytree(worked, tmp_path / "places")
    touched = []
    monkeypatch.setattr(taking, "_record", lambda plan, jobs, *_: touched.extend(jobs))
    monkeypatch.chdir(tmp_path / "places" / "home")
    return tmp_path / "places"
