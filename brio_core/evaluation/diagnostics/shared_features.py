"""Features that no fold has fitted: made once for everybody, and asked for by every fold."""

from collections.abc import Callable

import torch
from torch import Tensor

from brio_core.methods.interface import Features
from brio_core.system.residence import tabulate


class SharedFeatures:
    """Tables of features by kind of scan, kept while they fit into ``budget`` bytes."""

    def __init__(self, budget: int) -> None:
        self.budget = budget
        self._tables: dict[object, Features | None] = {}

    def table(
        self,
        kind: object,
        make: Callable[[Tensor], Features],
        count: int,
        step: int,
        device: torch.device,
    ) -> Features | None:
        """As :func:`brio_core.system.residence.tabulate`, but every kind is made once."""
        if kind not in self._tables:
            table = tabulate(make, count, step, self.budget, device)
            self.budget -= sum(value.nbytes for value in (table or {}).values())
            self._tables[kind] = table
        return self._tables[kind]
