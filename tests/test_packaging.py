"""What a user reads first is true: versions agree, commands and files that are named exist."""

import ast
import json
import os
import re
import subprocess
import threading
import tomllib
from functools import lru_cache
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
import yaml

import brio_core
from brio_core.cohorts.cohort import PARTICIPANT_COLUMNS
from brio_core.cohorts.inclusion import COLUMNS as INCLUSION_COLUMNS
from tests.programs import run_program

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
PAGES = ["README.md", "CONTRIBUTING.md", "config/README.md", "results/README.md"]
PAGES += sorted(str(path.relative_to(ROOT)) for path in (ROOT / "docs").glob("*.md"))
CONDA_NAMES = {"pytorch": "torch", "python-isal": "isal"}
# Files that runs or readers make.
MADE = (
    "results/",
    "site/",
    "data/",
    ".venv",
    ".snakemake/",
    "tables/",
    "figures/",
    "derivatives/",
    "DIR/",
)
EXAMPLES = ("/mlp.py", "/mlp.yaml", "/mine.yaml")
MAP = "docs/paper.md"


def read(page: str) -> str:
    return (ROOT / page).read_text(encoding="utf-8")


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def section(page: str, heading: str) -> str:
    return read(page).split(f"\n## {heading}\n")[1].split("\n## ")[0]


def yaml_blocks(page: str) -> list[dict]:
    return [yaml.safe_load(text) for text in re.findall(r"```yaml\n(.*?)```", read(page), re.S)]


def requirements() -> list[str]:
    extras = PROJECT["optional-dependencies"].values()
    return [*PROJECT["dependencies"], *(text for extra in extras for text in extra)]


@lru_cache
def constraints() -> dict[str, str]:
    lines = read("constraints.txt").splitlines()
    pins = [line.split("==") for line in lines if line and not line.startswith("#")]
    return {normal(name): version for name, version in pins}


@lru_cache
def files() -> list[Path]:
    """Files of the repository: those git knows or would add, else all but what runs make."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    try:
        listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
        found = [ROOT / name for name in listed.stdout.split("\0") if name]
    except (OSError, subprocess.CalledProcessError):
        found = [path for path in ROOT.rglob("*") if not _made(path)]
    return [path for path in found if path.is_file()]


def _made(path: Path) -> bool:
    first = path.relative_to(ROOT).parts[0]
    return first.startswith(".") or first in ("results", "data") or "__pycache__" in path.parts


TARGETS = set(re.findall(r"^([a-z][a-z-]*):", read("Makefile"), re.M))


class TestVersions:
    def test_one_version_of_the_software(self):
        citation = yaml.safe_load(read("CITATION.cff"))
        assert PROJECT["version"] == brio_core.__version__ == citation["version"]
        assert f"## [{brio_core.__version__}]" in read("CHANGELOG.md")
        assert PROJECT["license"] == citation["license"] == "BSD-3-Clause"

    def test_every_requirement_is_pinned_to_a_version_it_allows(self):
        from packaging.requirements import Requirement

        for text in requirements():
            requirement = Requirement(text)
            pinned = constraints().get(normal(requirement.name))
            assert pinned, f"{requirement.name} is not in constraints.txt"
            assert requirement.specifier.contains(pinned), f"{text}, but pinned to {pinned}"

    @pytest.mark.parametrize("path", sorted((ROOT / "envs").glob("*.yaml")), ids=lambda p: p.stem)
    def test_conda_environments_have_the_ranges_of_pip(self, path):
        environment = yaml.safe_load(path.read_text())
        assert environment["channels"] == ["conda-forge", "nodefaults"]
        ranges = {"python": {f"{PROJECT['requires-python']},<4"}}
        for text in requirements():
            name, ends = re.match(r"([\w.-]+)(.*)", text).groups()
            ranges.setdefault(normal(name), set()).add(ends)
        for text in environment["dependencies"]:
            name, ends = text.split()
            assert ranges[CONDA_NAMES.get(name, name)] == {ends}, f"{path.name}: {name}"


class TestSupplyChain:
    def test_every_version_has_hashes(self):
        """Those of torch differ from build to build; a named index has them."""
        lock = dict(
            re.findall(r"^([\w.-]+)==([\w.]+) \\\n    --hash=sha256:", read("envs/lock.txt"), re.M)
        )
        built = {name for name in constraints() if re.match("(torch|triton|cuda-|nvidia-)", name)}
        built -= {"torch-geometric"}
        wanted = {name: constraints()[name] for name in constraints().keys() - built}
        assert {normal(name): version for name, version in lock.items()} == wanted
        assert not re.search(r"https?:|index|^-", read("envs/lock.txt"), re.M)

    def test_make_asks_for_hashes_and_one_index(self):
        recipe = read("Makefile").split("$(READY): ")[1]
        assert "--require-hashes --no-deps -r envs/lock.txt" in recipe
        assert "--no-build-isolation -e ." in recipe and "extra-index-url" not in recipe
        backend = tomllib.loads(read("pyproject.toml"))["build-system"]["requires"]
        assert backend == [f"setuptools=={constraints()['setuptools']}"]

    def test_every_version_has_a_licence(self):
        rows = re.findall(
            r"^\| ([\w.-]+) \| (\d[\w.]*) \| (.+) \|$", read("docs/licences.md"), re.M
        )
        listed = {normal(name): version for name, version, _ in rows}
        pins = constraints().items()
        assert listed == {name: version for name, version in pins if name in listed}
        missing = {name for name, _ in pins} - listed.keys()
        assert all(re.match("triton|cuda-|nvidia-", name) for name in missing)

    @pytest.mark.parametrize("answer, code, words", [
        ({"results": [{}, {"vulns": [{"id": "PYSEC-1"}, {"id": "CVE-2"}]}]}, 1, "b 2: PYSEC-1"),
        ({"results": [{}, {}]}, 0, "0 of 2 versions"), ({"results": [{}]}, 1, "answered 1 of 2"),
        ([], 1, "could not be asked"), (None, 1, "could not be asked for vulnerabilities"),
    ])  # fmt: skip
    def test_audit(self, answer, code, words, tmp_path, monkeypatch):
        asked = []

        class Database(BaseHTTPRequestHandler):
            def do_POST(self):
                asked.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
                self.send_response(200)
                self.end_headers()
                self.wfile.write(json.dumps(answer).encode())

            def log_message(self, *words):
                pass

        (tmp_path / "pins.txt").write_text("# two\na==1.0\nb==2\n")
        with HTTPServer(("127.0.0.1", 0), Database) as server:
            threading.Thread(target=server.serve_forever, daemon=True).start()
            address = f"http://127.0.0.1:{server.server_port if answer is not None else 9}"
            monkeypatch.setenv("no_proxy", "127.0.0.1")
            done = run_program("audit", tmp_path / "pins.txt", "--database", address)
            server.shutdown()
        assert done.returncode == code and words in done.stdout + done.stderr
        assert "Traceback" not in done.stderr
        assert not asked or [one["version"] for one in asked[0]["queries"]] == ["1.0", "2"]


class TestCommands:
    @pytest.mark.parametrize("page", PAGES)
    def test_make_targets_exist(self, page):
        named = re.findall(r"(?:`|^)make ([a-z][a-z-]*)", read(page), re.M)
        assert set(named) <= TARGETS

    def test_ci_runs_targets_that_exist(self):
        assert os.access(ROOT / ".ci/run", os.X_OK)
        loop = re.search(r"for target in (.*); do", read(".ci/run"))[1]
        assert set(loop.split()) <= TARGETS

    def test_help_is_the_default_and_names_every_target(self):
        shown = subprocess.run(["make"], cwd=ROOT, capture_output=True, text=True, check=True)
        assert set(re.findall(r"^  ([a-z-]+) ", shown.stdout, re.M)) == TARGETS

    def test_targets_of_the_map_are_experiments(self):
        rows = re.findall(r"^\|.*?\| `([a-z-]+)` \|", read(MAP), re.M)
        assert len(rows) > 5
        for name in rows:
            assert (ROOT / f"config/experiments/{name}.yaml").is_file()

    def test_outputs_of_the_map_are_made(self):
        for kind, name in re.findall(r"`(tables|figures)/([a-z-]+)`", read(MAP)):
            made = [
                entry["name"]
                for path in (ROOT / "config/experiments").glob("*.yaml")
                for entry in yaml.safe_load(path.read_text())["outputs"].get(kind, [])
            ]
            assert name in made


class TestPages:
    @pytest.mark.parametrize("page", PAGES)
    def test_links_lead_somewhere(self, page):
        for link in re.findall(r"\]\(([^)]+)\)", read(page)):
            if link.startswith("https://"):
                continue
            path, _, anchor = link.partition("#")
            target = (ROOT / page).parent / path if path else ROOT / page
            assert target.exists(), link
            if anchor:
                headings = re.findall(r"^#+ (.*)$", target.read_text(), re.M)
                slugs = [re.sub(r"[^\w -]", "", h.lower()).replace(" ", "-") for h in headings]
                assert anchor in slugs, link

    @pytest.mark.parametrize("page", PAGES)
    def test_named_files_exist(self, page):
        """Paths in backquotes, from the root or from the page's own folder."""
        prose = re.sub(r"```.*?```", "", read(page), flags=re.S)
        for name in re.findall(r"`([\w.-]+/[\w./-]*)`", prose):
            places = (ROOT / name, (ROOT / page).parent / name)
            made = name.startswith(MADE) or name.endswith(EXAMPLES) or page == "results/README.md"
            assert made or any(place.exists() for place in places), name

    def test_every_column_of_a_cohort_is_explained(self):
        text = section("results/README.md", "Cohorts")
        for column in (*PARTICIPANT_COLUMNS, *INCLUSION_COLUMNS):
            assert f"`{column}`" in text

    def test_example_of_a_method_is_complete(self):
        """The settings of the example's YAML are those of its class and of the base class."""
        from dataclasses import fields

        page = read("docs/adding-a-method.md")
        scope: dict = {"__name__": "example"}
        exec(re.search(r"```python\n(.*?)```", page, re.S)[1], scope)
        (example,) = yaml_blocks("docs/adding-a-method.md")
        method = scope["Mlp"]
        assert method.name == example["method"]
        settings = method.Hyperparameters.of(example["presets"]["common"], "mlp")
        assert list(example["presets"]["common"]) == [field.name for field in fields(settings)]

    def test_example_of_a_table_works(self, tmp_path):
        from brio_core.reporting.catalogue import Given, Output
        from tests.reporting.standins import summarised, write_run

        page = read("docs/adding-a-table.md")
        scope: dict = {"__name__": "example"}
        source, figure = re.findall(r"```python\n(.*?)```", page, re.S)
        exec(source, scope)
        exec(figure, scope)
        (entry,) = yaml_blocks("docs/adding-a-table.md")[0]["outputs"]["tables"]
        make = scope[f"{entry['table']}_table"]
        # The catalogue reads what stands above the function, without importing its file.
        (described,) = ast.parse(source).body[-1].decorator_list
        words = {one.arg: ast.literal_eval(one.value) for one in described.keywords}
        output = Output("tables", entry["table"], "example", **words)
        runs = [write_run(tmp_path, variant) for variant in ("gcn", "brio")]
        _, sites = summarised(tmp_path, runs)
        rows, table = make(Given(output, {"sites": [str(sites)]}))
        assert len(rows) == len(table.rows) > 1
        assert list(rows["auc"]) == sorted(rows["auc"])
        assert table.title == "Hardest sites"
        drawing = scope[f"{entry['table']}_figure"](Given(output, {"sites": [str(sites)]}))
        assert drawing.alt == f"Bars of {len(rows)} sites." and drawing.figure.axes

    def test_nothing_of_the_workplace_is_left(self):
        words = ("/work" + "/", ".library" + "/", ".." + "/shared")
        for path in files():
            relative = path.relative_to(ROOT)
            if relative.parts[0] == ".ci" or path.suffix in (".png", ".pdf"):
                continue
            text = path.read_text(encoding="utf-8")
            for word in words:
                assert word not in text, f"{relative} has {word!r}"
