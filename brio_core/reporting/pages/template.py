"""Templates of documents: Markdown with calls in double braces, which Jinja2 reads.

Planning reads them too, so this module needs nothing but Python and Jinja2.
"""

import traceback
from collections.abc import Callable, Collection
from functools import partial
from pathlib import Path
from typing import NamedTuple

from jinja2 import StrictUndefined, TemplateError, TemplateSyntaxError, meta, nodes
from jinja2.sandbox import SandboxedEnvironment

from brio_core.system.errors import BrioError, nearest

# What a template may call, with which names, and how many of them at least and at most.
FORMS = {
    "table": ("TABLE", 1, 1),
    "figure": ("FIGURE", 1, 1),
    "value": ("TABLE, [ROW,] COLUMN", 2, 3),
    "interval": ("TABLE, [ROW,] COLUMN", 2, 3),
    "highest": ("TABLE, COLUMN", 2, 2),
    "count": ("TABLE", 1, 1),
    "rows": ("TABLE, COLUMN, … [, sorted_by=COLUMN]", 2, 99),
}
CHOOSE_NO_ROWS = ("table", "figure")


class Call(NamedTuple):
    """A call in a template; ``where`` chooses rows by the values of columns."""

    kind: str
    names: tuple[str, ...]
    where: dict[str, str]

    def error(self, problem: str) -> BrioError:
        """The sentence for the user about a problem of this call."""
        where = [f"{key}={value!r}" for key, value in self.where.items()]
        text = ", ".join([*map(repr, self.names), *where])
        return BrioError(f"{self.kind}({text}) {problem}")


class Template(NamedTuple):
    """A template and the names that it may use; ``shown`` is what messages call it.

    ``waiting`` are tables and figures of runs that were not made: what is asked of them is not run.
    """

    path: Path
    shown: str
    tables: Collection[str]
    figures: Collection[str]
    waiting: Collection[str] = ()

    def needs(self) -> dict[str, list[str]]:
        """Names of the tables and figures that the template uses, and of those not made.

        ``printed`` are the tables that are shown as a whole.
        """
        found: dict[str, dict] = {"tables": {}, "printed": {}, "figures": {}, "waiting": {}}

        def note(call: Call) -> str:
            kind = "figures" if call.kind == "figure" else "tables"
            made = call.names[0] in getattr(self, kind)
            found[kind if made else "waiting"][call.names[0]] = None
            if made and call.kind == "table":
                found["printed"][call.names[0]] = None
            return ""

        self.fill(note)
        return {kind: list(names) for kind, names in found.items()}

    def fill(self, make: Callable[[Call], str]) -> str:
        """The text, with what ``make`` gives in place of every call."""
        try:
            text = self.path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            problem = f"cannot be read: {error}; give a template in UTF-8"
            raise BrioError(f"{self.shown} {problem}") from None
        environment = SandboxedEnvironment(
            undefined=StrictUndefined, trim_blocks=True, keep_trailing_newline=True
        )
        functions = {kind: partial(self._called, make, kind) for kind in FORMS}
        try:
            tree = environment.parse(text)
            self._check(tree, {*functions, *environment.globals})
            return environment.from_string(tree).render(functions)
        except TemplateSyntaxError as error:
            problem = f"Jinja2 cannot read it ({error.message}); see config/README.md"
            raise self._error(error.lineno, problem) from None
        except (BrioError, TemplateError, TypeError, ValueError, ArithmeticError) as error:
            frames = traceback.extract_tb(error.__traceback__)
            lines = [frame.lineno for frame in frames if frame.filename == "<template>"]
            raise (self._error(lines[-1], str(error)) if lines else error) from None

    def _called(
        self, make: Callable[[Call], str], kind: str, /, *names: str, **where: object
    ) -> str:
        call = Call(kind, tuple(map(str, names)), {key: str(one) for key, one in where.items()})
        form, least, most = FORMS[kind]
        if not least <= len(names) <= most or (where and kind in CHOOSE_NO_ROWS):
            raise call.error(f"must be {kind}({form})")
        name = call.names[0]
        what, made = ("figure", self.figures) if kind == "figure" else ("table", self.tables)
        if name not in made and name not in self.waiting:
            problem = f"names the {what} {name!r}, which this configuration does not make"
            raise call.error(problem + nearest(name, made))
        return make(call)

    def _check(self, tree: nodes.Template, known: set[str]) -> None:
        """Find what Jinja2 finds too late, or takes for text."""
        unknown = meta.find_undeclared_variables(tree) - known
        for node in tree.find_all(nodes.Name):
            if node.name in unknown:
                problem = f"{node.name!r} is unknown{nearest(node.name, FORMS)}"
                raise self._error(node.lineno, problem)
        for node in tree.find_all(nodes.TemplateData):
            before, brace, _ = node.data.partition("}}")
            if brace:
                line = node.lineno + before.count("\n")
                raise self._error(line, "a pair of braces has no partner; close it")

    def _error(self, line: int, problem: str) -> BrioError:
        return BrioError(f"{self.shown}, line {line}: {problem}")
