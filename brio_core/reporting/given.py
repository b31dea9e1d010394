"""What a table or figure is given: files, what the experiment says about it, what was planned."""

import importlib
from argparse import ArgumentParser
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

from brio_core.reporting.catalogue import FILES, Output, catalogue
from brio_core.reporting.table import Row, Table
from brio_core.system.cli import json_argument


@dataclass(frozen=True)
class Given:
    """What the module of ``output`` makes its table or figure of.

    ``entry`` is that of the experiment: title, caption and options. ``planned`` has the ``pairs``
    of cohort and protocol, and the ``variants`` that belong in a table, whether or not they were
    run. ``datasets`` says what cohorts are called.
    """

    output: Output
    files: dict[str, list[str]] = field(default_factory=dict)
    entry: dict = field(default_factory=dict)
    planned: dict = field(default_factory=dict)
    datasets: dict = field(default_factory=dict)

    @property
    def module(self) -> ModuleType:
        """The module of the table or figure."""
        return importlib.import_module(f"brio_core.reporting.{self.output.kind}.{self.output.name}")

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
