"""Exact fits along a path of penalties, for methods that need no gradient steps."""

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from brio_core.methods.interface import Features, PathMethod
from brio_core.system.residence import gather
from brio_core.system.threads import one_thread, spread
from brio_core.training.checkpoints import Checkpoints
from brio_core.training.data import Fold
from brio_core.training.problem import Problem
from brio_core.training.results import FoldResult
from brio_core.training.selection import (
    ValidationAuc,
    calibration,
    group_aucs,
    improves,
    mean_auc,
)

SUBJECTS_AT_ONCE = 256


def fit_paths(problem: Problem, checkpoints: Checkpoints) -> list[FoldResult]:
    """Fit all folds, several at once where there are threads; go on from what is stored."""

    def fit(fold: Fold) -> FoldResult:
        done = checkpoints.load([fold.name], problem.data.device)
        if done is not None:
            return FoldResult(**done["result"])
        result = fit_path(problem, fold)
        checkpoints.save([fold.name], {"result": vars(result)}, always=True)
        return result

    # What folds share comes first, so that no two threads compute it.
    _ = problem.shared_features
    if problem.trial.trains_on_sources:
        problem = problem.on_sources()
    with one_thread():  # for many small operations
        _ = problem.shared_statistics
    method, folds = problem.trial.method, problem.data.folds
    if any(method.uses_all_threads(len(fold.train)) for fold in folds):
        return [fit(fold) for fold in folds]
    return spread(fit, folds, problem.data.device)


@torch.no_grad()
def fit_path(problem: Problem, fold: Fold) -> FoldResult:
    """Fit one fold at every point of its path and keep the one that validation prefers."""
    module = problem.module(fold)
    if module.meets_sites:
        _meet_other_sites(module, problem, fold)
    if problem.trial.trains_on_sources:
        return _choose_by_sources(module, problem, fold)
    data = problem.data
    validation = ValidationAuc([fold.validation_groups], data.label, data.device)
    features = _features(problem, module, validation.index[0])
    if not module.representation_is_shared:
        features = list(features)
    history, best, represented = [], None, None
    with one_thread():
        stop = problem.trial.stop
        for point in range(module.path_length) if stop is None else [stop - 1]:
            module.fit(point)
            if represented is None or not module.representation_is_shared:
                represented = torch.cat([module.represent(part) for part in features])
            logits = module.classify(represented)[None]
            groups, loss = validation.groups(logits), float(validation.log_loss(logits)[0])
            auc = float(validation.mean(groups)[0])
            named = dict(zip(validation.columns, groups[0].tolist()))
            history.append({"validation_auc": auc, **named, "validation_log_loss": loss})
            if best is None or improves(auc, loss, *best.validated):
                state = {name: value.clone() for name, value in module.state_dict().items()}
                best = FoldResult(
                    fold.name, state, point + 1, auc, loss, module.path_length, history
                )
    return best


def _choose_by_sources(module: PathMethod, problem: Problem, fold: Fold) -> FoldResult:
    """The point whose predictions of left-out groups have the best AUC, calibrated on them.

    Among equals it is the one with the lowest log-loss after calibration.
    """
    label = torch.as_tensor(problem.data.label[fold.train], device=problem.data.device)
    groups = [np.flatnonzero(np.isin(fold.train, group)) for group in fold.validation_groups]
    history, calibrations = [], []
    for predicted in module.inner_predictions:
        slope, intercept = calibration(predicted, label)
        logits = slope * predicted.double() + intercept
        loss = float(functional.binary_cross_entropy_with_logits(logits, label.double()))
        aucs = group_aucs(predicted, label, groups)
        named = {f"validation_auc_{number}": auc for number, auc in enumerate(aucs, start=1)}
        history.append({"validation_auc": mean_auc(aucs), **named, "validation_log_loss": loss})
        calibrations.append((slope, intercept))
    scores = [(one["validation_auc"], -one["validation_log_loss"]) for one in history]
    point = scores.index(max(scores))
    predicted, (slope, intercept) = module.inner_predictions[point], calibrations[point]
    module.fit(point)
    module.rescale(slope, intercept)
    state = {name: value.clone() for name, value in module.state_dict().items()}
    return FoldResult(
        fold.name,
        state,
        point + 1,
        history[point]["validation_auc"],
        history[point]["validation_log_loss"],
        module.path_length,
        history,
        source_logits=slope * predicted + intercept,
    )


def _meet_other_sites(module: PathMethod, problem: Problem, fold: Fold) -> None:
    """Show the module all scans of every site that does not train."""
    site = problem.data.table("site_number").cpu().numpy()
    for number in np.setdiff1d(site, site[fold.train]):
        rows = torch.as_tensor(np.flatnonzero(site == number), device=problem.data.device)
        module.meet(int(number), _features(problem, module, rows))


def _features(problem: Problem, module: PathMethod, subjects: Tensor) -> Iterator[Features]:
    """Features of some subjects, a bounded number of scans at a time."""
    shared = problem.shared_features
    for rows in subjects.split(SUBJECTS_AT_ONCE):
        tables = problem.inputs if shared is None else shared
        chosen = gather(tables, rows)
        yield module.features(chosen) if shared is None else chosen
