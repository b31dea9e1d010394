"""Diagnostics of one fold of a trained run."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from brio_core.connectivity.block_length import round_half_up
from brio_core.connectivity.tangent import CHUNK
from brio_core.evaluation.diagnostics.factors import (
    contrast_stability,
    factor_retention,
    factor_scores,
    roi_profile,
    variational_form,
)
from brio_core.evaluation.diagnostics.mismatch_axes import predictive_variation, site_discrepancy
from brio_core.evaluation.diagnostics.scans import (
    GRAPHS_AT_ONCE,
    POSITIONS,
    Reestimates,
    SharedFeatures,
    shortened,
)
from brio_core.evaluation.scores import auc
from brio_core.methods.brio.method import Brio
from brio_core.methods.brio.qualification import qualify
from brio_core.methods.interface import Features, Method, PathMethod
from brio_core.system.devices import float32_products
from brio_core.system.residence import gather, rows_of
from brio_core.system.seeds import derive_seed
from brio_core.system.threads import spread
from brio_core.training.data import Fold, TrainingData
from brio_core.training.problem import Problem

Records = list[dict[str, Any]]


@dataclass(frozen=True)
class TrainedFold:
    """A trained fold and what it may be asked about."""

    module: Method
    problem: Problem
    fold: Fold
    reestimates: Reestimates
    shared: SharedFeatures | None = None
    """For a method whose features are the same in all folds."""
    threshold: float = 0.0
    """The logit above which class 1 is said."""

    @property
    def data(self) -> TrainingData:
        """The cohort that the fold belongs to."""
        return self.problem.data

    @property
    def train(self) -> tuple[Tensor, Tensor]:
        """Sites, counted from 0, and labels of the training subjects."""
        values = self.data.site_numbers(self.fold), self.data.label[self.fold.train]
        return tuple(torch.as_tensor(one, device=self.data.device) for one in values)

    def test_auc(self, logits: Tensor) -> float:
        """AUC of logits of the test subjects."""
        return auc(self.data.label[self.fold.test], logits.double().cpu().numpy())

    @torch.no_grad()
    def full_scans(self, rows: np.ndarray, *verbs: str) -> tuple[Tensor, ...]:
        """What the model's ``verbs`` answer to full scans, each (N, ...)."""
        return self._answers(verbs, self._features("full scans", rows, 1, self._inputs))

    @torch.no_grad()
    def responses(self, *verbs: str, rows: np.ndarray | None = None) -> tuple[Tensor, ...]:
        """Answers (N, K + 1, ...) to full scans and their re-estimates, of training subjects or of
        those in ``rows``."""
        rows = self.fold.train if rows is None else rows
        full = self.full_scans(rows, *verbs)
        count, length = self.reestimates.count, round_half_up(self.fold.block_length)
        inputs = partial(self._reestimated_inputs, length)
        again = self._answers(verbs, self._features(length, rows, count, inputs))
        return tuple(
            torch.cat([first[:, None], others.unflatten(0, (-1, count))], 1).double()
            for first, others in zip(full, again)
        )

    def held_out_variation(self, logits: Tensor) -> float | None:
        """Predictive variation of test subjects, of sites that have both classes.

        ``logits`` (N, K + 1) are those of full scans and re-estimates.
        """
        site, label = (one[self.fold.test] for one in (self.data.cohort.site, self.data.label))
        both = [one for one in np.unique(site) if len(np.unique(label[site == one])) == 2]
        chosen = np.isin(site, both)
        if not chosen.any():
            return None
        numbers = np.unique(site[chosen], return_inverse=True)[1]
        words = (torch.as_tensor(one, device=logits.device) for one in (numbers, label[chosen]))
        kept = torch.as_tensor(chosen, device=logits.device)
        return float(predictive_variation(logits[kept], *words))

    def held_out_subjects(self, logits: Tensor) -> Records:
        """How often the decision about a test subject holds, and how far its logit moves."""
        full, again = logits[:, 0].cpu().numpy(), logits[:, 1:].cpu().numpy()
        said = full > self.threshold
        agreement = ((again > self.threshold) == said[:, None]).mean(1)
        columns = (self.data.label[self.fold.test], full, agreement, again.std(1))
        return [
            {"subject": self.data.cohort.subjects[row], "label": int(label),
             "margin": float(logit - self.threshold), "agreement": float(share),
             "deviation": float(deviation)}
            for row, label, logit, share, deviation in zip(self.fold.test, *columns)
        ]  # fmt: skip

    def _inputs(self, rows: Tensor) -> dict[str, Tensor]:
        return gather(self.problem.inputs, rows)

    def _reestimated_inputs(self, length: int, rows: Tensor) -> dict[str, Tensor]:
        """A method that uses series gets resampled ones; what is not a scan stays as it is."""
        count, tables = self.reestimates.count, self.problem.inputs
        made = {name: rows_of(value, rows).repeat_interleave(count, 0)
                for name, value in tables.items() if name not in ("fc", "bold")}  # fmt: skip
        if "fc" in tables:
            made["fc"] = self.reestimates.fc(rows, length).flatten(0, 1)
        if "bold" in tables:
            made["bold"] = self.reestimates.bold(rows, length).flatten(0, 1)
        return made

    def _features(
        self,
        kind: object,
        rows: np.ndarray,
        count: int,
        inputs: Callable[[Tensor], dict[str, Tensor]],
    ) -> Iterator[Features]:
        """Features of ``count`` graphs of every subject in ``rows``, a bounded number at a time."""
        device, step = self.data.device, max(1, GRAPHS_AT_ONCE // count)

        def by_subject(part: Tensor) -> Features:
            made = self.module.features(inputs(part))
            return {name: value.unflatten(0, (-1, count)) for name, value in made.items()}

        table = None
        if self.shared is not None:
            everybody = len(self.data.cohort.subjects)
            with self._as_trained():
                table = self.shared.table(kind, by_subject, everybody, step, device)
        for part in torch.as_tensor(rows, device=device).split(step):
            if table is None:
                yield self._made(inputs(part))
            else:
                yield {name: value[part].flatten(0, 1) for name, value in table.items()}

    def _made(self, inputs: dict[str, Tensor]) -> Features:
        with self._as_trained():
            return self.module.features(inputs)

    def _answers(self, verbs: tuple[str, ...], features: Iterator[Features]) -> tuple[Tensor, ...]:
        parts = []
        for made in features:
            with self._as_trained():
                parts += self._answered(verbs, made)
        return tuple(torch.cat(answers) for answers in zip(*parts))

    def _answered(self, verbs: tuple[str, ...], made: Features) -> list[list[Tensor]]:
        @torch.no_grad()  # which every thread has to be told
        def answer(some: Features) -> list[Tensor]:
            return [getattr(self.module, verb)(some) for verb in verbs]

        if not isinstance(self.module, PathMethod):
            return [answer(made)]
        # Matrix logarithms and the like use one thread each, so several threads take a few graphs.
        count = len(next(iter(made.values())))
        starts = range(0, count, CHUNK)
        some = [{name: value[at : at + CHUNK] for name, value in made.items()} for at in starts]
        return spread(answer, some, self.data.device)

    def _as_trained(self) -> AbstractContextManager[None]:
        """The model multiplies as it did in training; what is measured of it is exact."""
        precision = getattr(self.module.hyperparameters, "precision", "float32")
        return float32_products(exact=precision == "float32")

    def can_shorten(self, fraction: float) -> bool:
        """Whether a part of every test scan is still long enough for the method."""
        frames = self.data.cohort.series.frames[self.fold.test]
        return round_half_up(fraction * float(frames.min())) >= self.module.min_frames

    @torch.no_grad()
    def shortened_logits(self, fraction: float, position: str) -> Tensor:
        """Logits of the test subjects when only a window of their scans is used."""
        scans = self.reestimates.scans
        inputs = (
            shortened(
                self._inputs(rows), rows_of(scans.bold, rows), scans.frames[rows], fraction,
                position,
            )
            for rows in torch.as_tensor(self.fold.test, device=self.data.device).split(256)
        )  # fmt: skip
        return self._answers(("logits",), map(self._made, inputs))[0]


def diagnose_fold(trained: TrainedFold, options: dict) -> dict[str, Records]:
    """Records of every diagnostic that applies to the method, by table."""
    # Qualification means something only where nothing was taken out of it.
    module = trained.module
    qualified = isinstance(module, Brio) and module.hyperparameters.without == "none"
    site, label = trained.train
    representation = trained.full_scans(trained.fold.train, "represent")[0]
    answers = trained.responses("logits", *(["contributions"] if qualified else []))
    (held_out,) = trained.responses("logits", rows=trained.fold.test)
    tables: dict[str, Records] = {
        "folds": [
            {
                "site_discrepancy": float(
                    site_discrepancy(representation, site, label, options["epsilon"])
                ),
                "predictive_variation": float(predictive_variation(answers[0], site, label)),
                "held_out_variation": trained.held_out_variation(held_out),
            }
        ],
        "held-out": trained.held_out_subjects(held_out),
        "scan-length": [
            {
                "fraction": float(fraction),
                "position": position,
                "test_auc": trained.test_auc(trained.shortened_logits(fraction, position)),
            }
            for fraction in options["scan_fractions"]
            if trained.can_shorten(fraction)
            for position in POSITIONS
        ],
    }
    if qualified:
        tables |= _factor_records(trained, answers[1], options["retention_draws"])
    return tables


@torch.no_grad()
def _factor_records(trained: TrainedFold, contributions: Tensor, draws: int) -> dict[str, Records]:
    """Retention, ROI profile and propositions of a model with qualified factors."""
    module: Brio = trained.module
    # A few numbers per factor: reading them one by one from a GPU would take longer.
    contributions, site, label = (one.cpu() for one in (contributions, *trained.train))
    stabiliser = module.hyperparameters.stabiliser
    weights = module.classifier.double().cpu()
    found = qualify(contributions, site, label, weights, stabiliser=stabiliser)
    representation = trained.full_scans(trained.fold.test, "represent")[0]
    seed = derive_seed(*trained.problem.seed_key(trained.fold, "factor retention"))
    retained = factor_retention(representation, module.head, factor_scores(found), draws, seed)
    stable = contrast_stability(contributions, site, label, found, stabiliser)
    penalties = variational_form(found)
    names = np.unique(trained.data.cohort.site[trained.fold.train])
    profile = roi_profile(found, module.anchored.cpu())
    return {
        "retention": [
            {"ranking": ranking, "draw": draw, "kept": kept,
             "factors": module.hyperparameters.factors, "test_auc": trained.test_auc(logits)}
            for ranking, draw, kept, logits in retained
        ],
        "profiles": [{"roi": roi, "score": float(score)} for roi, score in enumerate(profile)],
        "contrasts": [
            {"site": names[e], "factor": j,
             **{key: float(value[e, j]) for key, value in stable.items()}}
            for e in range(len(names)) for j in range(contributions.shape[-1])
        ],
        "penalties": [
            {"site": names[first], "other_site": names[second], "class": side,
             **{key: float(value[pair, side]) for key, value in penalties.items()}}
            for pair, (first, second) in enumerate(found.pairs.tolist()) for side in (0, 1)
            # Where no factor separates the classes, nothing is aligned.
            if float(found.task_score.sum()) > 0
        ],
    }  # fmt: skip
