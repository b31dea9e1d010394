"""Comments of method files that the page about settings shows.

Planning reads them too, so this module needs nothing but Python and YAML.
"""

from functools import cache
from pathlib import Path

import yaml


@cache
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
