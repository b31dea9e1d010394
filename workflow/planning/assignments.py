"""Read what follows ``--config`` as the same lines of a configuration file would be read.

Snakemake's own reading leaves numbers inside lists and mappings as text, and takes a folder called
2024_01 for the number 202401.
"""

from collections.abc import Iterable

import yaml

from workflow.planning.files import ConfigurationError, Loader

TEXT = "tag:yaml.org,2002:str"


def read_assignments(assignments: Iterable[str], rules: dict) -> dict:
    """The mapping that arguments ``key=value`` stand for; ``rules`` say where text is wanted."""
    values: dict = {}
    for assignment in assignments:
        key, _, text = assignment.partition("=")
        # Like Snakemake, which sees through quotes that reach it.
        text = text.strip("'\"")
        try:
            value = _value(text, rules["properties"].get(key, {}))
        except ConfigurationError as error:
            raise ConfigurationError(f"--config: {key!r}: {error}") from None
        values = merged(values, {key: value})
    return values


def merged(old: object, new: object) -> object:
    """``new`` over ``old`` as Snakemake merges them: lists are replaced, mappings are merged."""
    if not (isinstance(old, dict) and isinstance(new, dict)):
        return new
    return old | {key: merged(old.get(key), value) for key, value in new.items()}


def _value(text: str, rules: dict) -> object:
    try:
        loader = Loader(text)
        node = loader.get_single_node()
        _keep_text(node, [rules])
        return None if node is None else loader.construct_document(node)
    except (yaml.YAMLError, ValueError, RecursionError):
        # No YAML, so it is text, which the schema refuses where it wants something else.
        return text


def _keep_text(node: yaml.Node | None, rules: list[dict]) -> None:
    """Mark keys, and scalars that one of ``rules`` wants to be text, whatever they look like."""
    rules = [*rules, *(choice for rule in rules for choice in rule.get("anyOf", ()))]
    if isinstance(node, yaml.ScalarNode):
        if any(rule.get("type") == "string" for rule in rules):
            node.tag = TEXT
    elif isinstance(node, yaml.SequenceNode):
        for item in node.value:
            _keep_text(item, [rule.get("items", {}) for rule in rules])
    elif isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            key.tag = TEXT
            _keep_text(value, [_rules_of(str(key.value), rule) for rule in rules])


def _rules_of(key: str, rules: dict) -> dict:
    known = rules.get("properties", {})
    return known[key] if key in known else rules.get("additionalProperties") or {}
