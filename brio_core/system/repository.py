"""Where planning code and schemas are: beside the package in a clone, copied into it in a wheel.

So everything but the workflow itself works without a clone.
"""

import sys
from pathlib import Path

_PACKAGE = Path(__file__).resolve().parents[1]
_COPY = _PACKAGE / "repository"
IN_CLONE = not _COPY.is_dir()


def make_planning_importable() -> None:
    """Let ``import workflow.planning`` find that code."""
    place = str(_PACKAGE.parent if IN_CLONE else _COPY)
    if place not in sys.path:
        sys.path.insert(0, place)
