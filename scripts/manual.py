"""The reference of all configuration keys, made from the schemas in workflow/schemas."""

import argparse
import json
from collections.abc import Iterator
from pathlib import Path

from brio_core.system import cli

ROOT = Path(__file__).resolve().parents[1]
SCHEMAS = ("config", "dataset", "method", "experiment")
HEAD = """\
<!-- Made by `make pages` from workflow/schemas: change these, not this page. -->

# All keys of the configuration

The kind of a value and its default stand in brackets. [config/README.md](../config/README.md)
explains how to use the files. A number with an exponent needs a point: `1.0e-4`, not `1e-4`.
"""
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
    import yaml

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


if __name__ == "__main__":
    cli.run(main)
