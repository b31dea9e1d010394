"""What all command-line programs share."""

import json
import sys
from collections.abc import Callable

from brio_core.errors import BrioError


def run(main: Callable[[], None]) -> None:
    """Call ``main``; a :class:`BrioError` becomes one line on stderr and exit code 1."""
    try:
        main()
    except BrioError as error:
        sys.exit(f"error: {error}")


def json_argument(text: str) -> dict:
    """An argparse type for resolved configuration handed over as JSON."""
    value = json.loads(text)
    if not isinstance(value, dict):
        raise ValueError("expected a JSON object")
    return value
