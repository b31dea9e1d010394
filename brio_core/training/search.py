"""Hyperparameters that every fold's validation subjects choose for themselves."""

import itertools
from collections.abc import Callable
from dataclasses import replace
from statistics import fmean
from typing import Any

from brio_core.methods.interface import Method
from brio_core.training.checkpoints import Checkpoints
from brio_core.training.problem import Problem
from brio_core.training.results import FoldResult
from brio_core.training.selection import improves
from brio_core.training.trainer import train


def values_to_try(method: type[Method], params: dict[str, Any]) -> dict[str, list]:
    """The values that are searched, type-checked like any other hyperparameter."""
    where = f"method {params['method']!r}, search"

    def typed(key: str, value: Any) -> Any:
        values = {**params["hyperparameters"], key: value}
        return getattr(method.Hyperparameters.of(values, where), key)

    return {
        key: [typed(key, value) for value in values]
        for key, values in params.get("search", {}).items()
    }


def combinations(values: dict[str, list]) -> list[dict[str, Any]]:
    """Every choice of one value per hyperparameter; one empty choice if there is none."""
    return [dict(zip(values, choice)) for choice in itertools.product(*values.values())]


def search(
    problem: Problem,
    values: dict[str, list],
    checkpoints: Callable[[Problem], Checkpoints],
    group_size: int | None,
) -> tuple[list[FoldResult], list[dict[str, Any]]]:
    """Fit every fold with every choice of ``values``; each keeps what its validation likes best.

    Ties go to the lower log-loss, then to the earlier choice. Only validation subjects decide, fold
    by fold. With the results come all choices and the mean over folds of their best validation
    AUCs.
    """
    best: list[FoldResult] = []
    tries = []
    for chosen in combinations(values):
        here = problem.with_hyperparameters(chosen)
        results = train(here, checkpoints(here), group_size)
        results = [replace(result, chosen=chosen) for result in results]
        mean = fmean(result.validation_auc for result in results)
        tries.append({"chosen": chosen, "validation_auc": mean})
        best = [
            new if old is None or _preferred(new, old) else old
            for old, new in itertools.zip_longest(best, results)
        ]
    return best, tries


def _preferred(new: FoldResult, old: FoldResult) -> bool:
    pairs = [(one.validation_auc, one.validation_log_loss) for one in (new, old)]
    return improves(*pairs[0], *pairs[1])
