"""Features that no fold has fitted: made once for everybody, and asked for by every fold."""

from collections.abc import Callable

from torch import Tensor

from brio_core.methods.base import Features


class SharedFeatures:
    """Tables of features by kind of scan, kept while they fit into ``budget`` bytes."""

    def __init__(self, budget: int) -> None:
        self.budget = budget
        self._tables: dict[object, Features | None] = {}

    def table(
        self, kind: object, subjects: Tensor, step: int, make: Callable[[Tensor], Features]
    ) -> Features | None:
        """What ``make`` finds for all subjects, ``step`` at a time, or None where it does not fit.

        It may find several rows for a subject, so many for each; they get an axis of their own.
        """
        if kind not in self._tables:
            self._tables[kind] = self._fill(subjects, step, make)
        return self._tables[kind]

    def _fill(
        self, subjects: Tensor, step: int, make: Callable[[Tensor], Features]
    ) -> Features | None:
        table: Features = {}
        for part in subjects.split(step):
            made = {name: value.unflatten(0, (len(part), -1)) for name, value in make(part).items()}
            if not table:
                size = sum(value[0].nbytes for value in made.values()) * len(subjects)
                if size > self.budget:
                    return None
                self.budget -= size
                table = {
                    name: value.new_empty(len(subjects), *value.shape[1:])
                    for name, value in made.items()
                }
            for name, value in made.items():
                table[name][part] = value
        return table
