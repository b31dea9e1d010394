"""What all command-line programs share."""

import json
import os
import signal
import sys
import traceback
from collections.abc import Callable
from typing import NoReturn

from brio_core.system import signals
from brio_core.system.errors import BrioError
from brio_core.system.files import remove_temporary


def run(main: Callable[[], None]) -> None:
    """Call ``main``; a :class:`BrioError` becomes one line on stderr and exit code 1.

    Ctrl-C and SIGTERM unwind like errors do, so that no temporary file stays behind.
    """
    # A name that a terminal cannot show is written out there, instead of ending the program.
    sys.stdout.reconfigure(errors="backslashreplace")
    signals.listen()
    try:
        try:
            main()
            signals.ignore()
        except Exception:
            signals.reraise()
            raise
    except BrioError as error:
        _leave(f"error: {error}", 1)
    except KeyboardInterrupt as interrupt:
        number = interrupt.args[0]
        _leave(f"stopped by {signal.Signals(number).name}", 128 + number)
    except Exception as error:
        traceback.print_exc()
        _leave(
            f"error: {type(error).__name__}, which this program did not expect; if a file of the "
            "results was edited or damaged, delete it and run again, else please report this log",
            1,
        )


def _leave(text: str, code: int) -> NoReturn:
    sys.stdout.flush()
    print(text, file=sys.stderr, flush=True)
    remove_temporary()
    # Without Python's clean-up: after a failed write HDF5's crashes.
    os._exit(code)


def json_argument(text: str) -> dict:
    """An argparse type for resolved configuration handed over as JSON."""
    value = json.loads(text)
    if not isinstance(value, dict):
        raise ValueError("expected a JSON object")
    return value
