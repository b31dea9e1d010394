"""BRIO, Algorithm 1: supervised warm-up, periodic qualification, guided alignment."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from brio_core import kernels
from brio_core.connectivity.graphs import node_descriptor, propagation_support, signed_graph
from brio_core.methods.brio.factors import Assignment, FactorMap, SignedEncoder
from brio_core.methods.brio.qualification import alignment_loss, qualify
from brio_core.methods.hyperparameters import GradientHyperparameters, check_choice
from brio_core.methods.interface import (
    TRAIN,
    WARM_UP,
    Batch,
    Features,
    GradientMethod,
    binary_cross_entropy,
)
from brio_core.methods.layers.transport import marginal_error
from brio_core.methods.stack import FoldStack
from brio_core.methods.training_scans import TrainingScans, TrainView
from brio_core.system.errors import BrioError
from brio_core.system.rows import Rows

# How many graphs of one fold are encoded at a time while qualifications are refreshed.
GRAPHS_AT_ONCE = 512


@dataclass(frozen=True)
class BrioHyperparameters(GradientHyperparameters):
    """Names as in the paper; ``without`` removes one part: RS, TR, SM, SF or QG."""

    density: float
    roi_dim: int
    hidden: int
    layers: int
    factors: int
    total_factor_dim: int
    assignment_dim: int
    temperature: float
    assignment_iterations: int
    query_scale: float
    bias_scale: float
    roi_scale: float
    reestimates: int
    refresh_interval: int
    warmup_epochs: int
    epsilon: float
    sinkhorn_iterations: int
    lambda_env: float
    stabiliser: float
    block_length_scale: float
    without: str

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice("without", self.without, ("none", "RS", "TR", "SM", "SF", "QG"))
        if self.sampler != "balanced":
            raise BrioError("brio aligns sites within a batch: its sampler must be 'balanced'")
        if self.total_factor_dim % self.factors:
            raise BrioError(
                f"total_factor_dim ({self.total_factor_dim}) must be a multiple of factors "
                f"({self.factors})"
            )
        if self.first_epoch <= self.warmup_epochs:
            raise BrioError(
                f"first_epoch ({self.first_epoch}) must come after warmup_epochs "
                f"({self.warmup_epochs})"
            )


class Brio(GradientMethod):
    """The factor model, its cached qualifications, and the qualified objective."""

    name = "brio"
    Hyperparameters = BrioHyperparameters
    features_are_shared = False

    def __init__(self, hyperparameters: BrioHyperparameters, n_rois: int, n_sites: int) -> None:
        super().__init__(hyperparameters, n_rois, n_sites)
        s = hyperparameters
        self.factor_dim = s.total_factor_dim // s.factors
        self.encoder = SignedEncoder(n_rois, s.roi_dim, s.hidden, s.layers, s.roi_scale)
        self.assignment = Assignment(s)
        self.factor_map = FactorMap(s.hidden, self.factor_dim, s.bias_scale)
        self.head = nn.Linear(s.total_factor_dim, 1)
        self.register_buffer("support", torch.zeros(n_rois, n_rois, dtype=torch.bool))
        # The anchored assignment; zero until warm-up ends.
        self.register_buffer("anchored", torch.zeros(s.factors, n_rois))
        self.register_buffer("weight_matrix", torch.zeros(n_sites, n_sites, 2, s.factors))
        self.register_buffer("strength_matrix", torch.zeros(n_sites, n_sites, 2))
        self.register_buffer("relevance", torch.zeros(s.factors))
        self.register_buffer("reestimation_support", torch.zeros(n_sites, 2, s.factors))

    @property
    def classifier(self) -> Tensor:
        """Classifier blocks w_j, (J, d_t)."""
        return self.head.weight.view(self.hyperparameters.factors, self.factor_dim)

    def prepare(self, train: TrainView) -> None:
        fc = Rows(lambda rows: self.connectivity(train.fc[rows]), train.fc.shape)
        self.support.copy_(propagation_support(fc, train.site, self.hyperparameters.density))

    def make_features(self, inputs: Features) -> Features:
        """Normalised signed channels, interleaved (B, P, 2P), and node descriptors (B, P, 3)."""
        fc = inputs["fc"]
        if self._fused(fc):
            from brio_core.kernels.signed import SignedGraphs

            graph, descriptor = SignedGraphs.apply(fc, self.support)
        else:
            graph = signed_graph(fc, self.support).movedim(-3, -1).flatten(-2)
            descriptor = node_descriptor(fc, self.support)
        return {"graph": graph, "descriptor": descriptor}

    def _fused(self, fc: Tensor) -> bool:
        """Whether a kernel may round products as TF32 does; its tiles have 16 to 64 features."""
        asked = self.hyperparameters
        rounded = asked.precision != "float32" and asked.hidden in (16, 32, 64)
        return rounded and kernels.usable(fc, "signed")

    def assign(self) -> Tensor:
        """The assignment that queries and ROI identities give now."""
        return self.assignment(self.encoder.roi_embedding)

    def current_assignment(self) -> Tensor:
        """The anchored assignment, or before anchoring the one that is being learnt."""
        anchored = (self.anchored > 0).any()
        return torch.where(anchored, self.anchored, self.assign())

    def factors(self, features: Features, assignment: Tensor) -> Tensor:
        """Unit factors r (B, J, d_t)."""
        hidden = self.encoder(features["graph"], features["descriptor"])
        return self.factor_map(hidden, assignment)

    def represent(self, features: Features) -> Tensor:
        """Concatenated factors s (B, J d_t), Eq. (factorized_representation)."""
        factors = self.factors(features, self.current_assignment())
        return factors.flatten(-2) / self.hyperparameters.factors**0.5

    def contributions(self, features: Features) -> Tensor:
        """Factor contributions a (B, J) before the 1/sqrt(J) scaling."""
        return (self.factors(features, self.anchored) * self.classifier).sum(-1)

    def contributions_of_fc(self, fc: Tensor) -> Tensor:
        """Contributions of FC matrices that are not kept, such as re-estimates."""
        return self.contributions(self.features({"fc": fc}))

    def loss(self, batch: Batch, phase: str) -> tuple[Tensor, dict[str, Tensor]]:
        s = self.hyperparameters
        assignment = self.assign() if phase == WARM_UP else self.anchored
        factors = self.factors(batch.features, assignment)
        logits = self.head(factors.flatten(-2) / s.factors**0.5).squeeze(-1)
        # Equally filled (site, class) cells: the plain mean is Eq. (classification_loss).
        classification = binary_cross_entropy(logits, batch.label)
        alignment = torch.zeros_like(classification)
        if phase == TRAIN and s.lambda_env > 0:
            cells = (self.n_sites, 2, s.subjects_per_site_class, s.factors, self.factor_dim)
            alignment = alignment_loss(
                factors.view(cells),
                self.weight_matrix,
                self.strength_matrix,
                s.epsilon,
                s.sinkhorn_iterations,
            )
        logs = {
            "classification": classification,
            "alignment": alignment,
            "assignment_error": marginal_error(assignment),
        }
        return classification + s.lambda_env * alignment, logs

    @classmethod
    def frozen(cls, phase: str) -> tuple[str, ...]:
        return ("assignment.",) if phase == TRAIN else ()

    @classmethod
    def before_step(
        cls,
        stack: FoldStack,
        scans: TrainingScans,
        hyperparameters: BrioHyperparameters,
        step: int,
        steps_per_epoch: int,
    ) -> None:
        """Anchor the assignment when warm-up ends; refresh qualifications every M steps."""
        step -= hyperparameters.warmup_epochs * steps_per_epoch
        if step == 0:
            stack.buffers["anchored"].copy_(stack.call("assign"))
        if (
            step >= 0
            and step % hyperparameters.refresh_interval == 0
            and hyperparameters.lambda_env > 0
        ):
            scans.refresh.fill_(step // hyperparameters.refresh_interval)
            scans.replay("refresh", lambda: cls.refresh(stack, scans, hyperparameters))

    @classmethod
    def refresh(
        cls, stack: FoldStack, scans: TrainingScans, hyperparameters: BrioHyperparameters
    ) -> None:
        """Qualify all training subjects of every fold under one snapshot of the model."""
        fold = torch.arange(len(stack), device=stack.device)[:, None]
        contributions = cls.source_contributions(stack, scans, hyperparameters)
        qualification = qualify(
            contributions[fold, scans.rows],
            scans.site,
            scans.label,
            stack.parameters["head.weight"].view(len(stack), hyperparameters.factors, -1),
            n_sites=stack.buffers["strength_matrix"].shape[1],
            without=hyperparameters.without,
            stabiliser=hyperparameters.stabiliser,
        )
        stack.buffers["weight_matrix"].copy_(qualification.weight_matrix)
        stack.buffers["strength_matrix"].copy_(qualification.strength_matrix)
        stack.buffers["relevance"].copy_(qualification.relevance)
        stack.buffers["reestimation_support"].copy_(qualification.support)

    @classmethod
    def source_contributions(
        cls, stack: FoldStack, scans: TrainingScans, hyperparameters: BrioHyperparameters
    ) -> Tensor:
        """Contributions (F, N, K + 1, J); rows of subjects that a fold does not train on stay 0."""
        # Without RS or QG support is not used, so one full-scan column is enough.
        uses_support = hyperparameters.without not in ("RS", "QG")
        n_resamples = hyperparameters.reestimates if uses_support else 0
        shape = (len(stack), scans.n_subjects, n_resamples + 1, hyperparameters.factors)
        contributions = torch.zeros(shape, device=stack.device)
        fold = torch.arange(len(stack), device=stack.device)[:, None]
        for rows, features in scans.full_scans(GRAPHS_AT_ONCE):
            # Padding repeats a row; it is written with the same numbers.
            contributions[fold, rows, 0] = stack.call("contributions", features)
        if n_resamples == 0:
            return contributions
        chunks = scans.reestimates(
            n_resamples, scans.refresh, hyperparameters.block_length_scale, GRAPHS_AT_ONCE
        )
        for rows, folds, fc in chunks:
            fc = fc.flatten(0, 1)
            values = stack.call("contributions_of_fc", fc, shared=True, folds=folds)
            values = values.view(len(folds), len(rows), n_resamples, -1)
            contributions[folds[:, None], rows, 1:] = values
        return contributions
