"""One rule for all methods: the checkpoint with the best mean AUC over the validation groups."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor


class ValidationAuc:
    """Exact AUC of many folds at once, on the device.

    Under ``loso`` a group is a validation site and AUCs are averaged over the two; under ``id``
    there is one pooled group. Pairs are counted as integers, so equal AUCs compare equal and the
    earliest epoch wins a tie. A group of one class is left out; a fold without any usable group
    scores 0.5 throughout.
    """

    def __init__(
        self,
        groups: Sequence[Sequence[np.ndarray]],
        label: np.ndarray,
        device: torch.device | str,
    ) -> None:
        rows = [np.concatenate([np.asarray(group) for group in fold]) for fold in groups]
        width = max(len(fold) for fold in rows)
        count = max(len(fold) for fold in groups)
        self.rows = np.zeros((len(rows), width), np.int64)
        positive = np.zeros((len(rows), count, width), bool)
        negative = np.zeros((len(rows), count, width), bool)
        for index, fold in enumerate(groups):
            self.rows[index, : len(rows[index])] = rows[index]
            start = 0
            for number, group in enumerate(fold):
                part = slice(start, start + len(group))
                positive[index, number, part] = label[group] == 1
                negative[index, number, part] = label[group] == 0
                start += len(group)
        self.index = torch.as_tensor(self.rows, device=device)
        positive, negative = (torch.as_tensor(mask, device=device) for mask in (positive, negative))
        self._pairs = positive[..., :, None] & negative[..., None, :]
        self._totals = self._pairs.sum((-1, -2))

    def __call__(self, logits: Tensor) -> Tensor:
        """AUC of every fold from its validation logits (F, width), float64."""
        above = (logits[:, :, None] > logits[:, None, :]).to(torch.int8)
        equal = (logits[:, :, None] == logits[:, None, :]).to(torch.int8)
        halves = ((2 * above + equal)[:, None] * self._pairs).sum((-1, -2))
        usable = self._totals > 0
        auc = halves / (2 * self._totals.clamp(min=1)).to(torch.float64)
        mean = (auc * usable).sum(-1) / usable.sum(-1).clamp(min=1)
        return torch.where(usable.any(-1), mean, 0.5)
