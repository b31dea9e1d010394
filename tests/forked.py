"""Snakemake in processes that do not import it again: they are forked from one that has."""

import gc
import json
import os
import runpy
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path


def run_snakemake(words: list, cwd: Path, environment: dict) -> subprocess.CompletedProcess:
    """What ``python -m snakemake`` prints on both streams, and its exit code."""
    server = _server()
    with tempfile.NamedTemporaryFile() as said:
        request = [list(map(str, words)), str(cwd), environment, said.name]
        print(json.dumps(request), file=server.stdin, flush=True)
        code = int(server.stdout.readline())
        text = said.read().decode(errors="replace")
    return subprocess.CompletedProcess(words, code, text)


@cache
def _server() -> subprocess.Popen:
    """It ends with this process, which then closes its input."""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    return subprocess.Popen([sys.executable, __file__], text=True, **pipes)


def _serve() -> None:
    """Fork for every request; the child goes on with it, as if it had just been started."""
    import snakemake.cli  # noqa: F401
    import snakemake_executor_plugin_slurm  # noqa: F401

    # Children end before they could make much garbage.
    gc.disable()
    for line in sys.stdin:
        if not (child := os.fork()):
            return _become(*json.loads(line))
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)


def _become(words: list[str], cwd: str, environment: dict[str, str], out: str) -> None:
    sys.stdin = open(os.devnull)  # noqa: SIM115
    target = os.open(out, os.O_WRONLY)
    for source, number in ((sys.stdin.fileno(), 0), (target, 1), (target, 2)):
        os.dup2(source, number)
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(environment)
    sys.path[0] = cwd
    sys.argv = ["snakemake", *words]
    runpy.run_module("snakemake", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    _serve()
