"""Work that is the same every time runs once as Python and then as one CUDA graph."""

from collections.abc import Callable
from functools import cache

import torch


@cache
def _side_stream() -> torch.cuda.Stream:
    return torch.cuda.Stream()


def _capturing_stream() -> torch.cuda.Stream:
    """Where work is captured: the current stream, or one for the default stream, which cannot be.

    Matrix products keep a workspace for every stream they meet, in graphs too. Graphs of one stream
    share it, so they must not run at the same time; those of few streams need little memory.
    """
    current = torch.cuda.current_stream()
    return _side_stream() if current == torch.cuda.default_stream() else current


class Replay:
    """Call work by name; on a GPU it is captured and replayed, which costs no Python at all.

    Work must read and write the same tensors every time, and must not look at their values.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._graphs: dict[str, torch.cuda.CUDAGraph] = {}
        self._warm: set[str] = set()
        self._pool = None

    def forget(self) -> None:
        """Drop what was captured, and its memory: the tensors will be others."""
        self._graphs.clear()
        self._pool = None

    def __call__(self, name: str, work: Callable[[], None]) -> None:
        if self._device.type != "cuda":
            work()
        elif name in self._graphs:
            self._graphs[name].replay()
        elif name not in self._warm:
            # The first time sets up kernels and workspaces, which a capture must not do.
            self._warm.add(name)
            stream = _capturing_stream()
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                work()
            torch.cuda.current_stream().wait_stream(stream)
        else:
            graph = torch.cuda.CUDAGraph()
            # One pool for all graphs: they never run at the same time. Tensors of other sizes may
            # need kernels that were not loaded yet.
            with torch.cuda.graph(graph, self._pool, _capturing_stream(), "relaxed"):
                work()
            self._pool = graph.pool()
            self._graphs[name] = graph
            graph.replay()
