"""Rules and their environments are complete; the version of a job's code covers what it imports."""

import ast
import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
import yaml

from brio_core.methods.registry import SHARED
from brio_core.reporting.catalogue import catalogue
from brio_core.system.versions import ROOT, code_version, examined, imported, method_files
from tests.forked import run_snakemake

ENVIRONMENTS = sorted((ROOT / "envs").glob("*.yaml"))
# The GPU builds of pytorch bring triton along.
PACKAGES = {
    "torch": "pytorch", "triton": "pytorch", "sklearn": "scikit-learn", "PIL": "pillow",
    "yaml": "pyyaml", "isal": "python-isal",
}  # fmt: skip


@pytest.fixture(scope="module")
def workflow_rules():
    """The rules as Snakemake reads them."""
    from snakemake.api import SnakemakeApi
    from snakemake.settings.types import (
        ConfigSettings,
        OutputSettings,
        ResourceSettings,
        StorageSettings,
        WorkflowSettings,
    )

    before, path = Path.cwd(), list(sys.path)
    os.chdir(ROOT)
    try:
        with SnakemakeApi(OutputSettings(quiet=None)) as api:
            # Reading the attribute parses the Snakefile.
            workflow = api.workflow(
                resource_settings=ResourceSettings(cores=1),
                config_settings=ConfigSettings(),
                storage_settings=StorageSettings(),
                workflow_settings=WorkflowSettings(),
                snakefile=ROOT / "workflow" / "Snakefile",
            )._workflow
            return list(workflow.rules)
    finally:
        os.chdir(before)
        sys.path[:] = path


def test_every_rule_is_complete(workflow_rules):
    working = [rule for rule in workflow_rules if rule.shellcmd]
    assert len(working) == 21
    for rule in working:
        assert rule.log, rule.name
        assert rule.benchmark, rule.name
        assert rule.conda_env, rule.name
        assert "_cores" in rule.resources, rule.name
        assert {"mem_mb", "runtime"} <= set(rule.resources), rule.name
        assert all(rule.output._get_names()), rule.name
        assert "code" in dict(rule.params.items()), rule.name
        assert "> {log:q} 2>&1" in rule.shellcmd, rule.name


def test_rules_run_commands_only(workflow_rules):
    for rule in workflow_rules:
        assert not (rule.is_run or rule.is_script or rule.is_notebook or rule.is_checkpoint)


def test_an_experiment_cannot_take_the_name_of_a_rule(project):
    experiment = project.folder / "config/experiments/train.yaml"
    experiment.write_text("title: T\nruns: [{}]\n")
    said = project.snakemake("-n").stdout
    place = "error: config/experiments/train.yaml"
    assert said.endswith(f"{place}: 'train' is the name of a rule; rename the file\n")


def test_planning_starts_fast():
    code = "import sys, workflow.planning.hooks, workflow.planning.loading; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, text=True, capture_output=True)
    assert done.returncode == 0, done.stderr
    assert not {"torch", "pandas", "numpy", "scipy"} & set(done.stdout.split())


def test_lint():
    said = run_snakemake(["--lint"], ROOT, dict(os.environ)).stdout
    found = set(re.findall(r"^    \* (.*)$", said, flags=re.M))
    # The path of the repository must not be a parameter, or moving it would retrain everything.
    assert found <= {"Shell command directly uses variable RUN from outside of the rule:"}


def third_party(scripts: list[Path]) -> set[str]:
    """What some programs import, directly or not, that is neither ours nor Python's."""
    names = set()
    for path in imported(list(scripts)):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                names.update(alias.name.split(".")[0] for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and node.level == 0:
                names.add(node.module.split(".")[0])
    # Programs may import those beside them.
    ours = {"brio_core", *(path.stem for path in (ROOT / "scripts").glob("*.py"))}
    return {name for name in names if name not in {*sys.stdlib_module_names, *ours}}


@pytest.mark.parametrize("path", ENVIRONMENTS, ids=lambda path: path.stem)
def test_environments_hold_what_is_imported(path, workflow_rules):
    scripts = []
    for rule in workflow_rules:
        if rule.shellcmd and Path(str(rule.conda_env)).name == path.name:
            script = re.search(r"\{RUN\}/(\w+)\.py", rule.shellcmd)
            scripts += [ROOT / "scripts" / f"{script[1]}.py"] if script else []
            scripts += {
                "table": [ROOT / output.file for output in catalogue("tables").values()],
                "figure": [ROOT / output.file for output in catalogue("figures").values()],
                "train": list((ROOT / "brio_core/methods").glob("**/*.py")),
                "extract": list((ROOT / "brio_core/cohorts/readers").glob("*.py")),
            }.get(rule.name, [])
    assert scripts
    imported = {PACKAGES.get(name, name) for name in third_party(scripts)}
    assert imported <= {
        line.split()[0] for line in yaml.safe_load(path.read_text())["dependencies"]
    }


@pytest.mark.skipif(
    find_spec("snakemake_executor_plugin_slurm") is None, reason="needs the SLURM plugin"
)
def test_the_cluster_profile_can_be_loaded(project):
    project.edit("profiles/slurm/profile.yaml", "# slurm_account: my_account", "slurm_account: lab")
    done = project.snakemake("-n", "-q", "--workflow-profile", "profiles/slurm")
    assert done.returncode == 0, done.stdout


def test_the_catalog_file():
    catalog = yaml.safe_load((ROOT / ".snakemake-workflow-catalog.yml").read_text())
    assert catalog["usage"]["software-stack-deployment"]["conda"] is True
    assert catalog["usage"]["report"] is True


@pytest.fixture
def repository(tmp_path):
    """A script, a package with two modules, and a module that nobody imports."""
    files = {
        "scripts/run.py": "from pack.used import value\nprint(value)\n",
        "pack/__init__.py": "",
        "pack/used.py": "def value():\n    from . import deep\n    return deep.x\n",
        "pack/deep.py": "import json\nx = 1\n",
        "pack/other.py": "y = 1\n",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)

    def version():
        for cached in (code_version, examined):
            cached.cache_clear()
        return code_version("scripts/run.py", root=tmp_path)

    return tmp_path, version


@pytest.mark.parametrize(
    "file", ["scripts/run.py", "pack/__init__.py", "pack/used.py", "pack/deep.py"]
)
def test_what_is_imported_counts(repository, file):
    folder, version = repository
    before = version()
    with open(folder / file, "a") as stream:
        stream.write("CHANGED = 1\n")
    assert version() != before


@pytest.mark.parametrize(
    "text",
    [
        "# a remark\nfrom pack.used import value\n\n\nprint( value )\n",
        '"""Words."""\nfrom pack.used import value\nprint(value)\n',
    ],
    ids=["comment and layout", "docstring"],
)
def test_what_does_not_run_does_not_count(repository, text):
    folder, version = repository
    before = version()
    (folder / "scripts/run.py").write_text(text)
    assert version() == before


def test_what_is_not_imported_does_not_count(repository):
    folder, version = repository
    before = version()
    (folder / "pack/other.py").write_text("y = 2\n")
    assert version() == before


def test_other_files_count_by_their_bytes(repository):
    folder, _ = repository
    (folder / "page.html.j2").write_text("<p>")
    first = code_version("page.html.j2", root=folder)
    (folder / "other.html.j2").write_text("<p>")
    assert first != code_version("other.html.j2", root=folder)


def test_a_method_is_a_module_or_a_package():
    assert method_files("gcn") == ("brio_core/methods/gcn.py",)
    assert "brio_core/methods/linear/method.py" in method_files("linear-correlation")
    assert "brio_core/methods/brio/factors.py" in method_files("brio")
    assert method_files("no-such-method") == ()


def test_training_imports_no_method():
    """Else a change of one method would retrain all."""
    found = imported([ROOT / "scripts/train.py"])
    methods = {path.name for path in found if path.parent.name == "methods"}
    shared = {f"{name}.py" for name in SHARED if name not in ("layers", "linear")}
    assert methods == {"__init__.py", *shared}
