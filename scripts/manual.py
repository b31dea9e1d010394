"""The reference of all configuration keys, made from the schemas in workflow/schemas.

The documentation site has more: methods, tables and figures, and the Python interface.
"""

import argparse
import ast
import json
import re
from collections.abc import Iterator
from pathlib import Path

import yaml

from brio_core.system import cli

ROOT = Path(__file__).resolve().parents[1]
SCHEMAS = ("config", "dataset", "method", "experiment")
HEAD = """\
<!-- Made by `make pages` from workflow/schemas: change these, not this page. -->

# All keys of the configuration

The kind of a value and its default stand in brackets. [config/README.md](../config/README.md)
explains how to use the files. A number with an exponent needs a point: `1.0e-4`, not `1e-4`.
"""
# What other programs may import.
INTERFACE = (
    "estimators.py", "connectivity/*.py", "evaluation/scores.py", "evaluation/intervals.py",
    "evaluation/site_statistics.py",
)  # fmt: skip
KINDS = {
    "object": "mapping",
    "array": "list",
    "string": "text",
    "integer": "whole number",
    "number": "number",
    "boolean": "`true` or `false`",
    "null": "`null`",
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "configuration.md")
    arguments = parser.parse_args()

    from brio_core.system.files import write_text

    write_text(arguments.out, HEAD + "".join(map(_chapter, SCHEMAS)))


def _chapter(name: str) -> str:
    path = ROOT / "workflow" / "schemas" / f"{name}.schema.yaml"
    schema = yaml.safe_load(path.read_text(encoding="utf-8"))
    lines = "\n".join(_keys(schema))
    return f"\n## {schema['title']}\n\n{schema['description']}\n\n{lines}\n"


def _keys(rule: dict, depth: int = 0) -> Iterator[str]:
    """One line per key of a mapping, with those of the mappings inside below it."""
    indent = "  " * depth
    for key, value in rule.get("properties", {}).items():
        if "description" in value:
            facts = _kind(value) + _default(value, key in rule.get("required", ()))
            meaning = value["description"].replace("<", "&lt;")
            yield f"{indent}- `{key}` ({facts}): {meaning}"
            yield from _keys(value, depth + 1)
    # A list of mappings, or mappings by a name that is free.
    for part in ("items", "additionalProperties"):
        if isinstance(rule.get(part), dict):
            yield from _keys(rule[part], depth)
    for choice in rule.get("allOf", ()):
        ((key, wanted),) = choice["if"]["properties"].items()
        note = choice["then"].get("description", "")
        yield f"{indent}- with `{key}: {wanted['const']}`" + (f": {note}" if note else "")
        yield from _keys(choice["then"], depth + 1)


def _kind(rule: dict) -> str:
    *first, last = _kinds(rule)
    return f"{', '.join(first)} or {last}" if first else last


def _kinds(rule: dict) -> list[str]:
    """What a value may be."""
    if "anyOf" in rule:
        return [kind for choice in rule["anyOf"] for kind in _kinds(choice)]
    if "const" in rule or "enum" in rule:
        return [f"`{value}`" for value in rule.get("enum", [rule.get("const")])]
    if "enum" in rule.get("items", {}):
        return [f"list of {_kind(rule['items'])}"]
    kinds = rule["type"] if isinstance(rule["type"], list) else [rule["type"]]
    return [KINDS[kind] for kind in kinds]


def _default(rule: dict, required: bool) -> str:
    if required:
        return ", required"
    value = rule.get("default")
    if value in ({}, "") or "default" not in rule:
        return ""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return f", default `{text}`"


def reference() -> dict[str, str]:
    """Pages of the documentation site that nobody writes, by their names."""
    return {"methods": _methods(), "outputs": _outputs(), "python": _python()}


def _methods() -> str:
    rows = []
    for path in sorted((ROOT / "config" / "methods").glob("*.yaml")):
        method = yaml.safe_load(path.read_text(encoding="utf-8"))
        variants = ", ".join(f"`{name}`" for name in method.get("variants", {}))
        about = (method["label"], method["group"], method["citation"])
        rows.append((f"`{path.stem}`", *about, variants))
    table = _table(("Name", "Label", "Group", "Source", "Variants"), rows)
    return f"# Methods\n\n`config/methods` has the hyperparameters of each.\n\n{table}"


def _outputs() -> str:
    from brio_core.reporting.catalogue import FILES, KINDS, catalogue

    text = "# Tables and figures\n\nAn experiment asks for them by name.\n"
    experiments = {
        path.stem: yaml.safe_load(path.read_text(encoding="utf-8"))["outputs"]
        for path in sorted((ROOT / "config" / "experiments").glob("*.yaml"))
    }
    for kind in KINDS:
        rows = []
        for name, output in catalogue(kind).items():
            asking = [
                f"`{target}`"
                for target, outputs in experiments.items()
                if any(name == one.get(kind[:-1], "results") for one in outputs.get(kind, ()))
            ]
            made_of = ", ".join(FILES[file][1] for file in output.files)
            rows.append((f"`{name}`", output.shows, made_of, ", ".join(asking)))
        text += f"\n## {kind.capitalize()}\n\n"
        text += _table(("Name", "What it shows", "Made of", "Targets"), rows)
    return text


def _table(head: tuple, rows: list[tuple]) -> str:
    lines = [head, ("---",) * len(head), *rows]
    cells = [[" ".join(cell.replace("|", r"\|").split()) for cell in line] for line in lines]
    return "".join(f"| {' | '.join(line)} |\n" for line in cells)


def _python() -> str:
    text = "# Python interface\n\nOther programs may import these. All else may change.\n"
    # `from brio_core import …` has these names of estimators.py, and no others.
    package = (ROOT / "brio_core" / "__init__.py").read_text(encoding="utf-8")
    exported = re.findall(r'"(\w+)"', re.search(r"__all__ = \[(.*?)\]|$", package, re.S)[1] or "")
    for pattern in INTERFACE:
        for path in sorted((ROOT / "brio_core").glob(pattern)):
            module = ast.parse(path.read_text(encoding="utf-8"))
            nodes = [
                node
                for node in module.body
                if path.name != "estimators.py" or getattr(node, "name", "") in exported
            ]
            found = "".join(_described(node, 3) for node in nodes)
            if found:
                name = ".".join(path.relative_to(ROOT).with_suffix("").parts)
                text += f"\n## {name}\n\n{_prose(module)}\n{found}"
    return text


def _described(node: ast.stmt, level: int) -> str:
    """A public function, or a class with its public methods, that has a docstring."""
    if not isinstance(node, ast.FunctionDef | ast.ClassDef) or node.name.startswith("_"):
        return ""
    if not ast.get_docstring(node):
        return ""
    inside = ""
    if isinstance(node, ast.FunctionDef):
        returns = f" -> {ast.unparse(node.returns)}" if node.returns else ""
        head = f"{node.name}({ast.unparse(node.args)}){returns}"
    else:
        inside = "".join(_described(one, level + 1) for one in node.body)
        made = [one for one in node.body if getattr(one, "name", "") == "__init__"]
        head = f"class {node.name}" + "".join(f"({ast.unparse(one.args)})" for one in made)
    signature = f"```python\n{head}\n```"
    return f"\n{'#' * level} {node.name}\n\n{signature}\n\n{_prose(node)}\n{inside}"


def _prose(node: ast.Module | ast.FunctionDef | ast.ClassDef) -> str:
    """A docstring as Markdown: a list for the parameters, bold titles of its parts."""
    text = ast.get_docstring(node) or ""
    text = re.sub(r":\w+:`~?([^`]+)`", r"`\1`", text.replace("``", "`").replace("<", "&lt;"))
    text = re.sub(r"^(\w[\w ]*)\n-{3,}\n", r"\n**\1**\n\n", text, flags=re.M)
    text = re.sub(r"^(\w[\w, *]*) : (.+)$", r"- `\1`: \2", text, flags=re.M)
    # What is indented belongs to the entry above it; four spaces would make it code.
    text = re.sub(r"^ {4,}", "  ", text, flags=re.M)
    return text.strip() + "\n"


if __name__ == "__main__":
    cli.run(main)
