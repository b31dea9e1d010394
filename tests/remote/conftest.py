"""What the tests of the remote machine share; training happens once."""

import shutil

import pytest
import toy

from brio_core.remote import take as taking


@pytest.fixture(scope="session")
def worked(tmp_path_factory):
    """A home where nothing is trained, and a machine that has done everything."""
    folder = tmp_path_factory.mktemp("remote")
    runs = [toy.train_job("gcn"), toy.train_job("gcn-wide", hidden=9)]
    results = toy.make_home(folder / "home", [*runs, toy.diagnose_job(runs[0])])
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder / "home")
        toy.plan_again()
    shutil.copytree(results / "remote", folder / "there")
    assert toy.work(folder / "there") == []
    return folder


@pytest.fixture
def places(worked, tmp_path, monkeypatch):
    """Copies of both, and a Snakemake that believes everything."""
    shutil.copytree(worked, tmp_path / "places", symlinks=True)
    monkeypatch.setattr(taking, "_record", lambda plan, jobs, staging: None)
    monkeypatch.chdir(tmp_path / "places" / "home")
    return tmp_path / "places"
