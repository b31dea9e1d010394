"""Processes that do not import again what is slow: they are forked from one that has."""

import atexit
import gc
import importlib
import json
import math
import os
import pkgutil
import resource
import runpy
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
KILOBYTE = 1024
# Stands in for `python` where Snakemake starts programs: it hands them over, with its streams.
STAND_IN = """#!{python} -SE
import json, os, socket, sys

words = [word for word in sys.argv[1:] if word != "-u"]
if not words[:1] or not words[0].startswith({scripts!r}):
    os.execv({python!r}, [{python!r}, *sys.argv[1:]])
link = socket.socket(socket.AF_UNIX)
link.connect({address!r})
socket.send_fds(link, [b"."], [0, 1, 2])
link.sendall(json.dumps([words, os.getcwd(), dict(os.environ)]).encode() + b"\\n")
code = int(link.recv(16) or 1)
if code < 0:
    os.kill(os.getpid(), -code)
sys.exit(code)
"""


class Forked:
    """A process group of its own that goes on with a program, as :class:`subprocess.Popen` has it.

    ``words`` name a program of scripts/ or, after "snakemake", options of Snakemake. Both streams
    go to the end of ``log``. No file may have more than ``largest`` kilobytes. Shell commands
    ``before`` and ``after`` the program can mount what only programs see that are started so.
    """

    cpu_seconds = 0.0  # of all that have ended

    def __init__(self, words: list, cwd: Path, environment: dict, log: Path, **how) -> None:
        snakemake = words[0] == "snakemake"
        self._ended = Path(tempfile.mkdtemp(prefix="forked-")) / "code"
        self.returncode: int | None = None
        server = _server(snakemake, _may_mount() and not snakemake)
        request = [list(map(str, words)), str(cwd), environment, str(log), str(self._ended), how]
        print(json.dumps(request), file=server.stdin, flush=True)
        self.pid = int(server.stdout.readline())

    def poll(self) -> int | None:
        """The exit code, if it has ended; that of a process that was killed is negative."""
        if self.returncode is None and self._ended.exists():
            code, seconds = self._ended.read_text().split()
            self.returncode = int(code)
            Forked.cpu_seconds += float(seconds)
            self._ended.unlink()
            self._ended.parent.rmdir()
        return self.returncode

    def wait(self, timeout: float = math.inf) -> int:
        """The exit code once it has ended."""
        end = time.monotonic() + timeout
        while self.poll() is None:
            assert time.monotonic() < end, "it does not end"
            time.sleep(0.002)
        return self.returncode

    def send(self, number: int, everyone: bool = True) -> None:
        """A signal to the whole group, or to the program alone, if it has not ended."""
        with suppress(ProcessLookupError):
            (os.killpg if everyone else os.kill)(self.pid, number)


def run_snakemake(words: list, cwd: Path, environment: dict) -> subprocess.CompletedProcess:
    """What ``python -m snakemake`` prints on both streams, and its exit code."""
    with tempfile.NamedTemporaryFile() as said:
        code = Forked(["snakemake", *words], cwd, environment, said.name).wait()
        return subprocess.CompletedProcess(words, code, said.read().decode(errors="replace"))


@cache
def quick_python() -> str:
    """A folder for the front of ``PATH``: its ``python`` starts programs of scripts/ at once."""
    folder = Path(tempfile.mkdtemp(prefix="forked-"))
    atexit.register(shutil.rmtree, folder)
    address, command = str(folder / "socket"), folder / "bin" / "python"
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    server = subprocess.Popen([sys.executable, __file__, address], **pipes, env=_environment())
    quick_python.server = server  # it ends with this process, which then closes its input
    assert server.stdout.readline() == b"ready\n"
    command.parent.mkdir()
    words = {"python": sys.executable, "scripts": f"{ROOT}/scripts/", "address": address}
    command.write_text(STAND_IN.format(**words))
    command.chmod(0o755)
    return str(command.parent)


def _environment() -> dict[str, str]:
    return os.environ | {"PYTHONPATH": str(ROOT)}


@cache
def _may_mount() -> bool:
    return os.geteuid() == 0 and subprocess.run(["unshare", "--mount", "true"]).returncode == 0


@cache
def _server(snakemake: bool, apart: bool) -> subprocess.Popen:
    """It ends with this process, which then closes its input; ``apart`` has mounts of its own."""
    command = [sys.executable, __file__, *(["snakemake"] if snakemake else [])]
    return subprocess.Popen(
        [*(["unshare", "--mount"] if apart else []), *command], text=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=_environment(),
    )  # fmt: skip


def _serve() -> None:
    """Fork for every request; the child goes on with it, as if it had just been started."""
    if sys.argv[1:] == ["snakemake"]:
        import snakemake.cli  # noqa: F401
        import snakemake_executor_plugin_slurm  # noqa: F401
    else:
        import brio_core

        # Every figure imports them.
        for name in ("pdf", "svg"):
            importlib.import_module(f"matplotlib.backends.backend_{name}")
        for module in pkgutil.walk_packages(brio_core.__path__, "brio_core."):
            if ".kernels." not in module.name and "__main__" not in module.name:
                importlib.import_module(module.name)
    # Children end before they could make much garbage.
    gc.disable()
    # Nobody waits for those who wait.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    if sys.argv[1:] not in ([], ["snakemake"]):
        return _listen(sys.argv[1])
    for line in sys.stdin:
        if not os.fork():
            return _answer(*json.loads(line))


def _listen(address: str) -> None:
    """Fork for whoever comes, until the input is closed."""
    door = socket.socket(socket.AF_UNIX)
    door.bind(address)
    door.listen(64)
    print("ready", flush=True)
    while sys.stdin not in select.select([door, sys.stdin], [], [])[0]:
        link = door.accept()[0]
        if not os.fork():
            return _stand_for(link)
        link.close()


def _stand_for(link: socket.socket) -> None:
    """Start the program of a stand-in, tell it the exit code, and end the program with it."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    streams = socket.recv_fds(link, 1, 3)[1]
    words, cwd, environment = json.loads(link.makefile().readline())
    os.chdir(cwd)
    if not (child := os.fork()):
        return _become(words, cwd, environment, streams)
    while not (found := os.waitpid(child, os.WNOHANG))[0]:
        if select.select([link], [], [], 0.01)[0]:
            os.kill(child, signal.SIGKILL)
            link = socket.socket()
    with suppress(OSError):
        link.sendall(str(os.waitstatus_to_exitcode(found[1])).encode())
    os._exit(0)


def _answer(words, cwd, environment, log, ended, how) -> None:
    """Start the program, tell its number, and leave its exit code and CPU time when it ends."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.chdir(cwd)
    target = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    said = {"stdout": target, "stderr": target, "stdin": subprocess.DEVNULL, "shell": True}
    if command := how.get("before"):
        subprocess.run(command, **said, check=False)
    if not (child := os.fork()):
        os.setpgid(0, 0)
        if largest := how.get("largest"):
            resource.setrlimit(resource.RLIMIT_FSIZE, (largest * KILOBYTE, largest * KILOBYTE))
        nothing = os.open(os.devnull, os.O_RDONLY)
        return _become(words, cwd, environment, (nothing, target, target))
    # Both do it, so that it is done for whoever comes first.
    os.setpgid(child, child)
    os.write(1, f"{child}\n".encode())
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if command := how.get("after"):
        subprocess.run(command, **said, check=False)
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    Path(f"{ended}.new").write_text(f"{code} {used.ru_utime + used.ru_stime}")
    os.rename(f"{ended}.new", ended)
    os._exit(0)


def _become(words: list, cwd: str, environment: dict, streams: tuple[int, ...]) -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number, source in enumerate(streams):
        os.dup2(source, number)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv, code = words, 0
    try:
        if words[0] == "snakemake":
            sys.path[0] = cwd
            runpy.run_module("snakemake", run_name="__main__", alter_sys=True)
        else:
            sys.path[0] = str(Path(words[0]).parent)
            runpy.run_path(words[0], run_name="__main__")
    except SystemExit as end:
        code = end.code or 0
        if isinstance(code, str):
            print(code, file=sys.stderr)
            code = 1
    atexit._run_exitfuncs()
    sys.stdout.flush()
    # Without Python's clean-up, which would touch and so copy all that was imported.
    os._exit(code)


if __name__ == "__main__":
    _serve()
