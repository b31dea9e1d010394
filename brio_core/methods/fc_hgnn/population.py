"""Stage 2 of FC-HGNN: who hears whom in a population of training subjects, and what follows."""

import torch
from torch import Tensor, nn
from torch.nn import functional

from brio_core.methods.interface import Features
from brio_core.methods.layers.norms import MaskedNorm
from brio_core.methods.train_view import TrainView
from brio_core.system.randomness import dropout

EDGE_RULES = ("nearest", "phenotype")
# The row of a place without a subject; a stranger's is -1.
NOBODY = -2
# An edge whose deviation is below this, far less than a float32 resolves, does not vary.
NEGLIGIBLE = 1e-10


class TransformerConvolution(nn.Module):
    """``W_skip x_i + sum_j softmax_j(q_i . k_j / sqrt(d)) v_j`` over the senders j that i hears.

    Shi et al., Masked Label Prediction, 2021, with one head. A receiver that hears nobody keeps
    its skip part. Only queries have a bias: a softmax cancels that of keys, and a BatchNorm behind
    the layer those of values and skips, which would learn rounding noise.
    """

    def __init__(self, before: int, after: int) -> None:
        super().__init__()
        self.query = nn.Linear(before, after)
        self.key = nn.Linear(before, after, bias=False)
        self.value = nn.Linear(before, after, bias=False)
        self.skip = nn.Linear(before, after, bias=False)

    def tell(self, hidden: Tensor) -> Tensor:
        """Keys and values (2, N, d) of senders."""
        return torch.stack([self.key(hidden), self.value(hidden)])

    def forward(self, hidden: Tensor, told: Tensor, heard: Tensor) -> Tensor:
        """Receivers (B, before) to (B, d); ``heard`` (B, N) says whom each of them hears."""
        keys, values = told.unbind()
        scores = self.query(hidden) @ keys.T * keys.shape[-1] ** -0.5
        # The lowest number and not -inf, which gives NaN to those who hear nobody.
        attention = scores.masked_fill(~heard, torch.finfo(scores.dtype).min).softmax(-1) * heard
        return self.skip(hidden) + attention @ values


class Population(nn.Module):
    """The training subjects of a fold, as those whom any subject may hear.

    Every subject has two kinds of senders: of its own sex, and of the other (pairs with an unknown
    sex count here). ``nearest``: the ``neighbours`` subjects with the highest cosine similarity of
    FC, standardised by training mean and deviation. ``phenotype``, as published: those whose score
    [same sex] + [same site] lies ``threshold`` deviations above the mean of all scores of the
    receiver; no prediction knows a site, so only training subjects share one. Nobody hears itself.
    """

    def __init__(self, rule: str, neighbours: int, threshold: float) -> None:
        super().__init__()
        self.rule, self.neighbours, self.threshold = rule, neighbours, threshold
        for name in ("row", "sex", "site", "scans", "mean", "scale"):
            self.register_buffer(name, torch.zeros(0), persistent=False)

    def fit(self, train: TrainView, width: int) -> None:
        """Keep the training subjects, with empty places up to ``width``."""

        def padded(values: Tensor, empty: float) -> Tensor:
            places = [0, 0] * (values.ndim - 1) + [0, width - len(values)]
            return functional.pad(values, places, value=empty)

        self.row = padded(train.row, NOBODY)
        self.sex = padded(_sex(train.covariates), -1)
        self.site = padded(train.site, -1)
        # In float64: neighbours must not depend on how products are rounded.
        edges = _upper_triangle(train.fc[:])
        self.mean, deviation = edges.mean(0), edges.std(0)
        varies = deviation > NEGLIGIBLE
        self.scale = varies / deviation.where(varies, 1)
        self.scans = padded(self._standardise(edges), 0.0)

    def _standardise(self, edges: Tensor) -> Tensor:
        return functional.normalize((edges - self.mean) * self.scale, dim=-1)

    def hear(self, inputs: Features) -> Features:
        """Senders ``heard`` (B, 2, W) of each subject, and its own ``place`` among them or -1."""
        own = inputs["row"][:, None] == self.row
        place = torch.where(own.any(-1), own.byte().argmax(-1), -1)
        others = (self.row != NOBODY) & ~own
        sex = _sex(inputs["covariates"])[:, None]
        same = (sex == self.sex) & (sex >= 0)
        kinds = torch.stack([others & same, others & ~same], -2)
        if self.rule == "nearest":
            heard = self._nearest(inputs["fc"], kinds)
        else:
            heard = kinds & self._alike(place, others, same)[:, None]
        return {"heard": heard, "place": place}

    def _nearest(self, fc: Tensor, kinds: Tensor) -> Tensor:
        similarity = self._standardise(_upper_triangle(fc)) @ self.scans.T
        similarity = similarity[:, None].masked_fill(~kinds, float("-inf"))
        count = min(self.neighbours, kinds.shape[-1])
        return kinds & (similarity >= similarity.topk(count).values[..., -1:])

    def _alike(self, place: Tensor, others: Tensor, same_sex: Tensor) -> Tensor:
        site = torch.where(place >= 0, self.site[place.clamp_min(0)], -1)[:, None]
        same_site = (site == self.site) & (site >= 0)
        # As published, a subject's score with itself is 0 and counts in mean and deviation.
        score = (same_sex.double() + same_site.double()) * others
        present = (self.row != NOBODY).double()
        count = present.sum()
        centred = score - (score.sum(-1) / count)[:, None]
        deviation = ((centred.square() * present).sum(-1) / count).sqrt()[:, None]
        return others & (centred > self.threshold * deviation)


def _sex(covariates: Tensor) -> Tensor:
    """1 for male, 0 for female, -1 for unknown, (B,)."""
    sex = covariates[:, 1]
    return torch.where(sex.isnan(), -1, (sex > 0.5).long())


def _upper_triangle(fc: Tensor) -> Tensor:
    row, column = torch.triu_indices(*fc.shape[-2:], 1, device=fc.device)
    return fc[..., row, column].double()


class PopulationNetwork(nn.Module):
    """Layers of attention to both kinds of senders, whose outputs are all concatenated."""

    def __init__(self, before: int, units: int, layers: int, rate: float) -> None:
        super().__init__()
        self.rate = rate
        widths = [before] + [units] * (layers - 1)
        self.kinds = nn.ModuleList(
            nn.ModuleList(TransformerConvolution(width, units) for _ in range(2))
            for width in widths
        )
        # The published start: mostly subjects of the same sex.
        self.mixture = nn.Parameter(torch.tensor([[0.8, 0.2]]).repeat(layers, 1))
        self.norms = nn.ModuleList(MaskedNorm(units) for _ in widths)

    def forward(
        self,
        hidden: Tensor,
        heard: Tensor,
        present: Tensor | None = None,
        memory: Tensor | None = None,
        key: Tensor | None = None,
        stream: int = 0,
    ) -> tuple[Tensor, Tensor]:
        """Representations (B, layers * units), and what was told, (layers, 2, 2, N, units).

        Senders are those who told ``memory``, or without it the receivers themselves. ``heard`` is
        (2, B, N). With a key, dropout uses ``layers`` streams from ``stream`` on.
        """
        outputs, told = [], []
        shares = self.mixture / self.mixture.sum(-1, keepdim=True)
        for layer, (kinds, norm) in enumerate(zip(self.kinds, self.norms)):
            if key is not None:
                hidden = dropout(hidden, self.rate, key, stream + layer)
            if memory is None:
                told.append(torch.stack([kind.tell(hidden) for kind in kinds]))
            else:
                told.append(memory[layer])
            same, other = (kind(hidden, *words) for kind, *words in zip(kinds, told[-1], heard))
            mixed = shares[layer, 0] * same + shares[layer, 1] * other
            hidden = functional.leaky_relu(norm(mixed, present))
            outputs.append(hidden)
        return torch.cat(outputs, -1), torch.stack(told)
