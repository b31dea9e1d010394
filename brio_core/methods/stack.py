"""The modules of several folds as one: parameters and buffers with a leading fold axis."""

import copy
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, stack_module_state, vmap

State = dict[str, Tensor]


class FoldStack:
    """``F`` methods of one class, called together under ``vmap``.

    A fold's arithmetic does not depend on its neighbours: every product is batched over folds.
    """

    def __init__(self, modules: Sequence[nn.Module]) -> None:
        parameters, buffers = stack_module_state(list(modules))
        self.parameters: State = {name: value.detach() for name, value in parameters.items()}
        self.buffers: State = dict(buffers)
        self._persistent = tuple(modules[0].state_dict())
        # The skeleton has no storage: it lends its code, the stacked state its numbers.
        self._training = copy.deepcopy(modules[0]).to("meta").train()
        self._evaluation = copy.deepcopy(self._training).eval()

    def __len__(self) -> int:
        return len(next(iter((self.parameters or self.buffers).values())))

    @property
    def device(self) -> torch.device:
        return next(iter((self.parameters or self.buffers).values())).device

    def state(self) -> State:
        """Parameters and buffers under one roof (names do not collide in a module)."""
        return {**self.parameters, **self.buffers}

    def persistent(self) -> State:
        """What a checkpoint holds: all but the buffers that ``prepare`` makes anew."""
        state = self.state()
        return {name: state[name] for name in self._persistent}

    def load(self, state: State) -> None:
        """Overwrite in place: captured CUDA graphs keep pointing at the same memory."""
        for name, value in self.persistent().items():
            value.copy_(state[name])

    def keep(self, folds: Tensor) -> None:
        """Drop all folds but these."""
        self.parameters = {name: value[folds] for name, value in self.parameters.items()}
        self.buffers = {name: value[folds] for name, value in self.buffers.items()}

    def single(self, verb: str, training: bool = False) -> Any:
        """One fold's function ``(parameters, buffers, *arguments)``, to be mapped over folds."""
        skeleton = self._training if training else self._evaluation

        def call(parameters: State, buffers: State, *arguments: Any) -> Any:
            return functional_call(skeleton, (parameters, buffers), (verb, *arguments))

        return call

    @torch.no_grad()
    def call(
        self,
        verb: str,
        *arguments: Any,
        shared: bool = False,
        folds: Tensor | slice | None = None,
    ) -> Any:
        """Call ``verb`` in evaluation mode for all folds, or for those in ``folds``.

        Arguments have a leading fold axis, unless they are ``shared`` by all folds.
        """
        parameters, buffers = self.parameters, self.buffers
        if folds is not None:
            parameters = {name: value[folds] for name, value in parameters.items()}
            buffers = {name: value[folds] for name, value in buffers.items()}
        in_dims = (0, 0, *([None if shared else 0] * len(arguments)))
        return vmap(self.single(verb), in_dims=in_dims)(parameters, buffers, *arguments)
