"""What a method may see while it fits: the training subjects of one fold and nothing else.

A view has no way to another subject's scan or label. The hooks between steps get
:class:`brio_core.methods.training_scans.TrainingScans`, which lists training subjects only; a test
of every method checks that nothing fitted depends on other scans.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

from torch import Tensor

from brio_core.cohorts.stores import Rois
from brio_core.system.residence import Table, rows_of
from brio_core.system.rows import Rows


def training_rows(table: Table, rows: Tensor) -> Rows:
    """The training subjects' rows of a table, copied when they are asked for: ``rows[:32]``."""
    return Rows(lambda chosen: rows_of(table, rows[chosen]), (len(rows), *table.shape[1:]))


@dataclass(frozen=True)
class TrainView:
    """What a method may see of one fold while it fits: the training subjects and nothing else.

    ``site`` counts the training sites of the fold from 0, in alphabetical order. Of the inputs only
    those that the method needs are there; ``bold`` is zero beyond ``frames``. A path method whose
    features do not depend on the fold gets its ``features`` in place of the inputs, computed once
    for all folds, unless they are larger than memory. ``shared`` is what :meth:`Method.share` found
    out for the fold. ``inner_folds`` numbers parts of the subjects that are to be left out in turn.
    """

    site: Tensor
    label: Tensor
    n_sites: int
    n_rois: int
    fc: Tensor | Rows | None = None
    bold: Tensor | Rows | None = None
    frames: Tensor | None = None
    covariates: Tensor | None = None
    row: Tensor | None = None
    site_number: Tensor | None = None
    rois: Rois | None = None
    features: dict[str, Tensor | Rows] | None = None
    shared: dict[str, Tensor] = field(default_factory=dict)
    inner_folds: Tensor | None = None

    def chunks(self, size: int) -> Iterator[dict[str, Tensor]]:
        """Shared features or else inputs of the training subjects, in order, ``size`` at a time."""
        names = ("fc", "bold", "frames", "covariates", "row", "site_number")
        inputs = {name: getattr(self, name) for name in names}
        tables = self.features or {name: one for name, one in inputs.items() if one is not None}
        for start in range(0, len(self.label), size):
            yield {name: table[start : start + size] for name, table in tables.items()}
