"""Call the programs of scripts/ without starting a process: imports are paid for once."""

import io
import runpy
import subprocess
import sys
import traceback
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from unittest import mock

import torch

from brio_core.system import cli
from brio_core.system.errors import BrioError

SCRIPTS = Path(__file__).resolve().parents[1] / "scripts"
BRIO = SCRIPTS.parent / "brio_core" / "__main__.py"


def _call(main) -> None:
    """Stands in for :func:`brio_core.system.cli.run`, which would end this process."""
    try:
        main()
    except BrioError as error:
        print(f"error: {error}", file=sys.stderr)
        raise SystemExit(1) from None
    except Exception:
        traceback.print_exc()
        raise SystemExit(1) from None


def run_program(name: str, *arguments: object) -> subprocess.CompletedProcess:
    """What ``python scripts/<name>.py`` or ``brio`` prints, and its exit code."""
    path = BRIO if name == "brio" else SCRIPTS / f"{name}.py"
    command = [str(path), *map(str, arguments)]
    out, err, code = io.StringIO(), io.StringIO(), 0
    threads, exact = torch.get_num_threads(), torch.get_deterministic_debug_mode()
    try:
        with (
            mock.patch.object(cli, "run", _call),
            mock.patch.object(sys, "argv", command),
            mock.patch.object(sys, "path", [str(SCRIPTS), *sys.path]),
            redirect_stdout(out),
            redirect_stderr(err),
        ):
            runpy.run_path(command[0], run_name="__main__")
    except SystemExit as end:
        code = end.code or 0
        if isinstance(code, str):
            err.write(code)
            code = 1
    finally:
        torch.set_num_threads(threads)
        torch.set_deterministic_debug_mode(exact)
    return subprocess.CompletedProcess(command, code, out.getvalue(), err.getvalue())
