"""Check a mapping against a JSON schema, and fill in the schema's defaults."""

from collections.abc import Iterable
from copy import deepcopy
from functools import lru_cache
from pathlib import Path

from brio_core.system.errors import nearest
from workflow.planning.files import ConfigurationError, read_yaml

SCHEMAS = Path(__file__).resolve().parents[1] / "schemas"
TYPES = {
    "object": "a mapping",
    "array": "a list",
    "string": "a text",
    "integer": "a whole number",
    "number": "a number (with exponent: 1.0e-4)",
    "boolean": "true or false",
    "null": "null",
}

# Names that version 0.2 changed, so that whoever uses an old one is told the new one.
# Keys of configuration files.
KEYS = {
    "cells": ("runs",),
    "settings": ("hyperparameters",),
    "foreign": ("external",),
    "split_seed": ("split_seeds",),
    "program": ("table", "figure"),
}

# Hyperparameters, in presets, variants and overrides.
HYPERPARAMETERS = {"subjects_per_cell": "subjects_per_site_class"}

ANSWERED = "taken out: it was answered, and studies/abide-cc200/README.md says how"
# Targets of the command line.
TARGETS = {
    **dict.fromkeys(("open-settings", "second-round", "confirmation", "linear-inputs"), ANSWERED),
    "handover": "renamed to 'remote'",
    "demo": "taken out: leave out the target, and --configfile too",
    "paper": "taken out: write --configfile config/paper.yaml instead",
}


@lru_cache
def schema(name: str) -> dict:
    """The schema of ``config``, ``dataset``, ``method`` or ``experiment`` files."""
    return read_yaml(SCHEMAS / f"{name}.schema.yaml")


def read_dataset(path: Path) -> dict:
    """A dataset file with all defaults, checked as the workflow would."""
    dataset = read_yaml(path)
    check(dataset, schema("dataset"), str(path))
    return filled(dataset, schema("dataset"))


def filled(value: dict, rules: dict) -> dict:
    """A copy of ``value`` with the defaults of its schema for all keys that are not there."""
    value = deepcopy(value)
    _fill(value, rules)
    return value


def _fill(value: object, rules: dict) -> None:
    if isinstance(value, list):
        for item in value:
            _fill(item, rules.get("items", {}))
    if not isinstance(value, dict):
        return
    for key, rule in rules.get("properties", {}).items():
        if key not in value and "default" in rule:
            value[key] = deepcopy(rule["default"])
        if key in value:
            _fill(value[key], rule)
    others = rules.get("additionalProperties")
    if isinstance(others, dict):
        for key in value.keys() - rules.get("properties", {}).keys():
            _fill(value[key], others)
    for branch in rules.get("allOf", ()):
        wanted = branch["if"]["properties"]
        if all(value.get(key) == rule["const"] for key, rule in wanted.items()):
            _fill(value, branch["then"])


def check(value: object, rules: dict, where: object) -> None:
    """Raise one sentence about the first thing in ``value`` that its schema forbids.

    ``where`` is the name of the file, or a function that finds it from a top-level key.
    """
    # Imported here because the jobs of a cluster, which trust the first check, do without it.
    from jsonschema import Draft202012Validator
    from jsonschema.validators import extend

    # JSON takes 4.0 for a whole number, but names of files and ranges do not.
    types = Draft202012Validator.TYPE_CHECKER.redefine("integer", lambda _, one: type(one) is int)
    errors = extend(Draft202012Validator, type_checker=types)(rules).iter_errors(value)
    errors = sorted(errors, key=_importance)
    if errors:
        error = errors[0]
        top = error.absolute_path[0] if error.absolute_path else _culprit(error)
        place = where(top) if callable(where) else where
        raise ConfigurationError(f"{place}: {_sentence(error)}")


def _importance(error) -> tuple:
    # A misspelt key explains a missing one, so it is reported first.
    return (error.validator != "additionalProperties", [str(key) for key in error.absolute_path])


def _culprit(error) -> str | None:
    if error.validator == "additionalProperties":
        return next(key for key in error.instance if key not in error.schema["properties"])
    return None


def _sentence(error) -> str:
    path = _dotted(error.absolute_path)
    prefix = f"{path}." if path else ""
    wanted, got = error.validator_value, error.instance
    if error.validator == "additionalProperties":
        key = _culprit(error)
        return f"unknown key {prefix + str(key)!r}{suggestion(key, error.schema['properties'])}"
    if error.validator == "required":
        missing = next(key for key in wanted if key not in got)
        return f"key {prefix + missing!r} is missing"
    if error.validator == "oneOf" and all("required" in choice for choice in wanted):
        keys = " or ".join(repr(prefix + key) for choice in wanted for key in choice["required"])
        return f"exactly one of {keys} is needed"
    if error.validator == "type":
        kinds = [wanted] if isinstance(wanted, str) else wanted
        return f"{path!r} must be {' or '.join(TYPES[kind] for kind in kinds)}, not {got!r}"
    if error.validator == "enum":
        return f"{path!r} must be one of {', '.join(map(str, wanted))}, not {got!r}"
    if error.validator in ("minItems", "minProperties"):
        return f"{path!r} is empty; it needs at least {wanted}"
    if error.validator == "uniqueItems":
        double = next(item for item in got if got.count(item) > 1)
        return f"{path!r} names {double!r} twice"
    if error.validator in ("minimum", "exclusiveMinimum"):
        more = "more than" if error.validator == "exclusiveMinimum" else "at least"
        return f"{path!r} must be {more} {wanted}, not {got!r}"
    if error.validator == "maximum":
        return f"{path!r} must be at most {wanted}, not {got!r}"
    if "description" in error.schema:
        text = error.schema["description"].strip().rstrip(".").split("\n")[0]
        return f"{path!r} cannot be {got!r}; it means: {text}"
    return f"{path!r}: {error.message}"


def _dotted(path: Iterable) -> str:
    text = ""
    for key in path:
        text += f"[{key}]" if isinstance(key, int) else f".{key}" if text else str(key)
    return text


def suggestion(word: object, known: Iterable[str]) -> str:
    """The new name of a renamed word, else the known word that is close, else all known words."""
    known = list(known)
    for new in KEYS.get(word, ()):
        if new in known:
            return f"; it was renamed to {new!r}"
    return nearest(word, known)
