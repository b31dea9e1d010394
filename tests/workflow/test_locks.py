"""Two runs in one folder of results, and surroundings that get in the way of a run."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from brio_core.cohorts.tables import read_table
from brio_core.system.errors import BrioError
from workflow.planning.files import ConfigurationError, read_yaml
from workflow.planning.locks import lock

ROOT = Path(__file__).resolve().parents[2]


def other_process(folder, end: str) -> None:
    code = (
        f"import os; from workflow.planning.locks import lock; assert not lock('{folder}'); {end}"
    )
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False)


def test_a_folder_of_results_has_one_run(tmp_path):
    assert lock(str(tmp_path)) == ""
    said = lock(str(tmp_path))
    assert f"{tmp_path} is in use by process {os.getpid()} on {socket.gethostname()}; wait" in said


def test_the_lock_goes_with_its_process(tmp_path):
    other_process(tmp_path, "")
    assert not (tmp_path / ".lock").exists()
    other_process(tmp_path, "os._exit(1)")
    assert json.loads((tmp_path / ".lock").read_text())["pid"], "it was killed"
    assert lock(str(tmp_path)) == "", "and its lock is taken over"


def test_the_lock_of_another_machine_is_left_alone(tmp_path):
    text = json.dumps({"host": "elsewhere", "pid": 7})
    (tmp_path / ".lock").write_text(text)
    said = lock(str(tmp_path))
    assert "process 7 on elsewhere" in said and f"delete {tmp_path}/.lock" in said
    assert (tmp_path / ".lock").read_text() == text


def test_a_second_run_stops_with_a_sentence(project):
    assert lock(str(project.folder / "results")) == ""
    done = project.snakemake("--cores", "1", "results/cohorts/demo/candidates.tsv")
    assert done.returncode == 1
    assert f"error: results is in use by process {os.getpid()} on" in done.stdout
    assert "Traceback" not in done.stdout
    assert not list((project.folder / "results").glob("[!.]*")), "nothing is left behind"
    assert not list((project.folder / ".snakemake/locks").glob("*"))


def test_a_module_called_workflow_and_warnings_as_errors(project, tmp_path):
    (tmp_path / "workflow.py").write_text("raise RuntimeError\n")
    target = "results/cohorts/demo/candidates.tsv"
    surroundings = {"PYTHONPATH": str(tmp_path), "PYTHONWARNINGS": "error"}
    # The stand-in of programs does not tell.
    old, new = '"{RUN}/make_demo.py', '"test -z ${{PYTHONWARNINGS:-}} && {RUN}/make_demo.py'
    project.edit("workflow/rules/extract.smk", old, new)
    done = project.snakemake("--cores", "1", target, **surroundings)
    assert done.returncode == 0, done.stdout
    assert "Traceback" not in done.stdout


def test_a_folder_that_cannot_be_written(project):
    words = ("--snakefile", str(project.folder / "Snakefile"), "-n", "-q")
    done = project.snakemake(*words, cwd=Path("/proc"))
    assert "error: /proc could not be written: " in done.stdout and "with '-d'" in done.stdout
    assert "Traceback" not in done.stdout


@pytest.mark.parametrize("name", ["a{b}", "a<b>"])
def test_braces_in_the_folder_of_results(project, name):
    done = project.snakemake("-n", "--config", f"results={name}")
    assert f"error: --config: 'results' is '{name}', but Snakemake reads" in done.stdout
    assert not (project.folder / name).exists()


@pytest.mark.parametrize("text", ["a: &a {b: *a}", "a: " + "[" * 3000 + "]" * 3000, "a: &a [*a]"])
def test_yaml_that_is_deep_or_refers_to_itself(tmp_path, text):
    (tmp_path / "deep.yaml").write_text(text)
    with pytest.raises(ConfigurationError, match=r"deep.yaml is nested deeper than 20 levels"):
        read_yaml(tmp_path / "deep.yaml")


def test_a_table_that_cannot_be_read(tmp_path):
    (tmp_path / "participants.tsv").mkdir()
    with pytest.raises(BrioError, match=r"participants.tsv cannot be read: Is a directory; make"):
        read_table(tmp_path / "participants.tsv")
