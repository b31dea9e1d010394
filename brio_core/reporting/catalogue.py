"""Every table and figure that an experiment can ask for, and what it is given.

Each is a function in ``tables`` or ``figures``, such as ``sites_table``, below ``@output(...)``.
That is read here without importing the file, so that planning, the check of experiments and the
manual need neither pandas nor matplotlib. Its keywords are the fields of :class:`Output`.
"""

import ast
import importlib
from argparse import ArgumentParser
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from brio_core.reporting.table import Row, Table
from brio_core.system.cli import json_argument
from brio_core.system.files import ROOT

KINDS = ("tables", "figures")
# The method that the paper is about; others are compared with it unless said otherwise.
REFERENCE = "brio"
# What an output may be made of: the kind of file, and what it holds.
FILES = {
    "summaries": ("CSV", "summaries of experiments"),
    "sites": ("CSV", "scores per fold"),
    "runs": ("DIR", "run folders"),
    "diagnostics": ("DIR", "folders of diagnostics, one per run"),
    "block_lengths": ("JSON", "block lengths of the folds"),
    "inclusion": ("TSV", "inclusion.tsv of every cohort"),
    "participants": ("TSV", "participants.tsv of every cohort"),
    "regions": ("TSV", "regions.tsv of every cohort"),
    "profiles": ("TSV", "site profiles of the cohorts"),
    "config": ("YAML", "run_config.yaml"),
    "methods": ("YAML", "files of the methods"),
}
BEFORE_TRAINING = {"inclusion", "participants", "regions", "profiles", "block_lengths"}
"""Files that exist before anything is trained."""


# Sections of the overview page in its order; one that is not listed comes before "permuted".
SECTIONS = {
    "results": "Results",
    "comparison": "Are differences significant?",
    "permuted": "Check: permuted labels",
    "paper": "Comparison with the paper",
    "cohort": "Cohorts and who is in them",
    "method": "The method in one picture",
    "training": "Training",
    "diagnostics": "Diagnostics",
    "efficiency": "Cost",
    "settings": "Choices that the paper leaves open",
}


class Output(NamedTuple):
    """A table or figure. Title and caption are those of the experiment if empty."""

    kind: str
    name: str
    file: str
    shows: str = ""
    """What it shows, in one sentence."""
    files: tuple[str, ...] = ()
    """What it is made of, keys of :data:`FILES`."""
    page: str = "results"
    """Its section of the overview page."""
    title: str = ""
    caption: str = ""
    options: tuple[str, ...] = ()
    """Further keys that its entry in an experiment may have."""
    reads: tuple[str, ...] = ()
    """Patterns of files of the repository that it reads; a change of one makes it again."""
    shows_subjects: bool = False
    """Whether it marks single subjects; documents, which are for everybody, leave it out."""

    @property
    def category(self) -> str:
        """Its section as a category of Snakemake's report, which sorts these by their names."""
        place = list(SECTIONS).index(self.page if self.page in SECTIONS else "permuted")
        return f"{place + 1:02} {SECTIONS.get(self.page, self.page)}"

    @property
    def before_training(self) -> bool:
        """Whether it shows the data and waits for no training."""
        return bool(self.files) and BEFORE_TRAINING.issuperset(self.files)

    @property
    def code(self) -> tuple[str, ...]:
        """The files whose code makes it."""
        read = [path for pattern in self.reads for path in sorted(ROOT.glob(pattern))]
        program = f"scripts/{self.kind.removesuffix('s')}.py"
        return (program, self.file, *(str(path.relative_to(ROOT)) for path in read))


def output(**words: Any) -> Callable[[Callable], Callable]:
    """Say of a function what it makes: fields of :class:`Output`, as plain values.

    The function stays as it is; :func:`catalogue` reads the words from its file.
    """
    return lambda function: function


@lru_cache
def remarks(path: str | Path) -> dict[str, str]:
    """The comment behind each setting of ``presets.common``, where there is one."""
    text = Path(path).read_text(encoding="utf-8")
    node = yaml.compose(text)
    for name in ("presets", "common"):
        node = next((value for key, value in node.value if key.value == name), None)
        if node is None:
            return {}
    lines = text.splitlines()
    found = {}
    for key, value in node.value:
        rest = lines[value.end_mark.line][value.end_mark.column :]
        if rest.lstrip().startswith("#"):
            found[key.value] = rest.lstrip().lstrip("# ")
    return found


@lru_cache
def catalogue(kind: str) -> dict[str, Output]:
    """All ``tables`` or ``figures``, by the name of their function without its last word."""
    found = {}
    for path in sorted((Path(__file__).parent / kind).glob("*.py")):
        for node in ast.parse(path.read_bytes(), str(path)).body:
            for call in getattr(node, "decorator_list", ()):
                if isinstance(call, ast.Call) and getattr(call.func, "id", "") == "output":
                    words = {one.arg: ast.literal_eval(one.value) for one in call.keywords}
                    words = {k: tuple(v) if isinstance(v, list) else v for k, v in words.items()}
                    name = node.name.removesuffix(f"_{kind[:-1]}")
                    if name in found:
                        raise ValueError(f"{path} and {found[name].file} both make {name!r}")
                    file, shows = str(path.relative_to(ROOT)), ast.get_docstring(node) or ""
                    found[name] = Output(kind, name, file, shows.split("\n\n")[0], **words)
    return dict(sorted(found.items()))


@dataclass(frozen=True)
class Given:
    """What the function of ``output`` makes its table or figure of.

    ``entry`` is that of the experiment: title, caption and options. ``planned`` has the ``pairs``
    of cohort and protocol, and the ``variants`` that belong in a table, whether or not they were
    run. ``datasets`` says what cohorts are called.
    """

    output: Output
    files: dict[str, list[str]] = field(default_factory=dict)
    entry: dict = field(default_factory=dict)
    planned: dict = field(default_factory=dict)
    datasets: dict = field(default_factory=dict)

    def make(self) -> Any:
        """Rows and table, or the drawing of a figure."""
        module = self.output.file.removesuffix(".py").replace("/", ".")
        name = f"{self.output.name}_{self.output.kind[:-1]}"
        return getattr(importlib.import_module(module), name)(self)

    @property
    def title(self) -> str:
        """The heading, by the experiment or by the catalogue."""
        return self.entry.get("title") or self.output.title or self.output.name

    def caption(self, *more: str) -> str:
        """The caption, with sentences about this very output."""
        words = (self.entry.get("caption") or self.output.caption, *more)
        return " ".join(one for one in words if one)

    def table(
        self,
        columns: tuple[str, ...],
        rows: tuple[Row, ...],
        *notes: str,
        more_caption: str = "",
        **options: Any,
    ) -> Table:
        """A table with its heading; ``options`` are further fields of :class:`Table`."""
        return Table(
            title=self.title,
            caption=self.caption(more_caption),
            columns=tuple(columns),
            rows=tuple(rows),
            notes=notes,
            section=self.output.page,
            **options,
        )


def read_arguments(kind: str, description: str) -> tuple[Given, str]:
    """What the command line of ``scripts/table.py`` or ``figure.py`` gives, and where to write."""
    parser = ArgumentParser(description=description)
    names = parser.add_subparsers(dest="name", required=True, metavar="NAME")
    for name, output in catalogue(kind).items():
        own = names.add_parser(name, help=output.title or f"a table of {output.name}")
        for key in output.files:
            metavar, text = FILES[key]
            option = f"--{key.replace('_', '-')}"
            own.add_argument(option, nargs="*", required=True, metavar=metavar, help=text)
        for option, text in (
            ("--entry", "JSON: title, caption and options of the experiment's entry"),
            ("--planned", "JSON: pairs of cohort and protocol, and variants, that belong there"),
            ("--datasets", "JSON: what is said about cohorts, by name"),
        ):
            own.add_argument(option, type=json_argument, default={}, help=text)
        own.add_argument("--out-prefix", required=True, help="path without ending")
    arguments = parser.parse_args()
    output = catalogue(kind)[arguments.name]
    files = {key: getattr(arguments, key) for key in output.files}
    words = (arguments.entry, arguments.planned, arguments.datasets)
    return Given(output, files, *words), arguments.out_prefix
