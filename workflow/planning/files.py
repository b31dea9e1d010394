"""Read the YAML files of the configuration."""

from collections.abc import Iterable, Sequence
from pathlib import Path

import yaml

from brio_core.system.errors import BrioError

ROOT = Path(__file__).resolve().parents[2]


# Of mappings and lists inside each other.
DEEPEST = 20
_TOO_DEEP = f"is nested deeper than {DEEPEST} levels, or refers to itself; write it plainly"


class ConfigurationError(BrioError):
    """A mistake in the configuration: one sentence with the file, the key and the remedy."""


class Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):
    """The safe loader, which by itself would let the last of two equal keys win silently."""

    def construct_mapping(self, node, deep=False):
        keys = [self.construct_object(key) for key, _ in node.value]
        for key in keys:
            if keys.count(key) > 1:
                raise ConfigurationError(f"key {key!r} stands there twice; keep one")
        return super().construct_mapping(node, deep)


def read_yaml(path: Path) -> dict:
    """The mapping in a YAML file, or a sentence that says what is wrong with it."""
    try:
        with open(path, encoding="utf-8") as stream:
            value = yaml.load(stream, Loader)
    except ConfigurationError as error:
        raise ConfigurationError(f"{shown(path)}: {error}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(
            f"{shown(path)} cannot be read ({error}); correct its path, or the file"
        ) from None
    except RecursionError:
        raise ConfigurationError(f"{shown(path)} {_TOO_DEEP}") from None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f" (line {mark.line + 1})" if mark else ""
        problem = getattr(error, "problem", None) or "cannot be parsed"
        raise ConfigurationError(f"{shown(path)} is not valid YAML{line}: {problem}") from None
    if _is_deep(value):
        raise ConfigurationError(f"{shown(path)} {_TOO_DEEP}")
    if not isinstance(value, dict):
        raise ConfigurationError(f"{shown(path)} must hold lines of the form 'key: value'")
    return value


def _is_deep(value: object) -> bool:
    """Whether a value holds others, or itself, at more levels than any file of ours needs."""
    level = [value] if isinstance(value, dict | list) else []
    for _ in range(DEEPEST):
        parts = [one.values() if isinstance(one, dict) else one for one in level]
        # An anchor that is named often is looked at once.
        level = list({id(one): one for part in parts for one in part}.values())
        level = [one for one in level if isinstance(one, dict | list)]
    return bool(level)


def shown(path: Path) -> str:
    """A path as the user would write it: from the working directory or the repository."""
    path = Path(path).absolute()
    for folder in (Path.cwd(), ROOT):
        if path.is_relative_to(folder):
            return str(path.relative_to(folder))
    return str(path)


def folders(configfiles: Sequence[Path] = ()) -> tuple[Path, ...]:
    """Where files are looked for: beside the configuration (a study), the results, the repository.

    Of several configuration files the last comes first, as it does for keys.
    """
    usual = (Path.cwd() / "config", ROOT / "config")
    beside = [Path(file).absolute().parent for file in reversed(configfiles)]
    return tuple(dict.fromkeys([*(folder for folder in beside if folder not in usual), *usual]))


def find(kind: str, name: str, places: Iterable[Path]) -> Path | None:
    """The file of a dataset, method, experiment or document; ``kind`` is the name of its folder."""
    paths = (folder / kind / f"{name}{ending(kind)}" for folder in places)
    return next((path for path in paths if path.is_file()), None)


def names(kind: str, places: Iterable[Path]) -> list[str]:
    """All datasets, methods, experiments or documents that have a file."""
    files = [path for folder in places for path in (folder / kind).glob(f"*{ending(kind)}")]
    return sorted({path.stem for path in files})


def ending(kind: str) -> str:
    """How the names of a kind of files end; documents are prose."""
    return ".md" if kind == "documents" else ".yaml"
