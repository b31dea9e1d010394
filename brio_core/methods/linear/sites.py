"""What a site adds to its scans is taken out of features before they are standardised and fitted.

Both views are fitted on the training subjects and know every site by its number in the cohort. A
site that did not train is met by all of its unlabelled scans, where a view does so.
"""

from typing import NamedTuple

import torch
from torch import Tensor, nn

from brio_core.methods.interface import Features
from brio_core.system.blocks import over_columns

# The number of a site that is not in the cohort, or that nobody has met.
ELSEWHERE = -1
NONE, EVERY_SITE = "none", "every-site"
# A variance below this, of features or relative to the pooled one, is rounding.
NO_VARIANCE = 1e-24
ITERATIONS, SETTLED = 1000, 1e-9
# Of age, sex and head motion: what ComBat keeps.
KEPT_COVARIATES = 2


class Moments(NamedTuple):
    """Of every site: subjects (S,), means of features (S, D) and covariates (S, C), and sums.

    The sums are over the products of their deviations from these means.
    """

    count: Tensor
    mean: Tensor
    covariates: Tensor
    square: Tensor
    cross: Tensor
    """(S, C, D)"""
    among: Tensor
    """(S, C, C)"""


def moments(table: Tensor, site: Tensor, covariates: Tensor) -> Moments:
    """Moments of a table (N, D), whose subjects have the sites ``site`` (N,), counted from 0."""
    member = torch.nn.functional.one_hot(site).double()
    share = (member / member.sum(0)).T
    known = share @ covariates
    about = covariates - known[site]
    pairs = (member.T[:, None] * about.T).flatten(0, 1)

    def block(columns: slice, values: Tensor) -> tuple[Tensor, ...]:
        mean = share @ values
        deviation = values - mean[site]
        cross = (pairs @ deviation).unflatten(0, known.shape)
        return mean, member.T @ deviation.square(), cross

    mean, square, cross = (torch.cat(parts, -1) for parts in zip(*over_columns(table, block)))
    among = (pairs @ about).unflatten(0, known.shape)
    return Moments(member.sum(0), mean, known, square, cross, among)


class Centring(nn.Module):
    """Features minus the mean of their site.

    A site that is not known has the mean over the means of the training sites subtracted, unless
    the view ``meets`` sites.
    """

    def __init__(self, n_features: int, meets: bool) -> None:
        super().__init__()
        self.meets = meets
        self.register_buffer("known", torch.full((1,), ELSEWHERE))
        self.register_buffer("shift", torch.zeros(1, n_features))

    def fit(self, table: Tensor, about: Features) -> None:
        """Fit the view on training subjects: features (N, D), and what is known about them."""
        known, site = about["site_number"].unique(return_inverse=True)
        self.start(moments(table, site, self.covariates(about, fit=True)))
        self.known = torch.cat([self.known, known])

    def meet(self, number: int, table: Tensor, about: Features) -> None:
        """Take up a site, by all of its scans and no label."""
        site = torch.zeros(len(table), dtype=torch.int64, device=table.device)
        found = self.of_sites(moments(table, site, self.covariates(about)))
        if number == ELSEWHERE:
            for name, value in found.items():
                getattr(self, name)[0] = value[0]
            return
        self.known = torch.cat([self.known, self.known.new_tensor([number])])
        self.append(found)

    def start(self, training: Moments) -> None:
        """Fit what all sites share, and take up the training sites."""
        self.shift[0] = training.mean.mean(0)
        self.append(self.of_sites(training))

    def of_sites(self, of: Moments) -> dict[str, Tensor]:
        """Rows (S, D) of the buffers that there is one of for every site."""
        return {"shift": of.mean}

    def append(self, rows: dict[str, Tensor]) -> None:
        for name, value in rows.items():
            setattr(self, name, torch.cat([getattr(self, name), value.to(self.shift.dtype)]))

    def covariates(self, about: Features, fit: bool = False) -> Tensor:
        """The covariates that the view uses, (N, C)."""
        return self.shift.new_zeros(len(about["site_number"]), 0, dtype=torch.float64)

    def places(self, number: Tensor) -> Tensor:
        """Rows of the buffers for numbers of sites (B,)."""
        # Of no true value the first is the largest: that of a site that is not known.
        return (number[:, None] == self.known).int().argmax(1)

    def forward(self, values: Tensor, about: Features, columns: slice = slice(None)) -> Tensor:
        """Features (B, D), or these ``columns`` of them, without what their sites add."""
        return values - self.shift[:, columns][self.places(about["site_number"])]


class Combat(Centring):
    """ComBat: location and scale of every feature and site, by empirical Bayes.

    A feature is ``alpha + x beta + sigma (gamma_s + delta_s e)`` with covariates x, site s and
    noise e; gamma and delta^2 have a normal and an inverse gamma prior, whose parameters are those
    of all features of the site (Johnson et al., Biostatistics 2007; Fortin et al., NeuroImage
    2018). alpha, beta and sigma are of the training subjects. An unknown covariate stands at the
    training mean. A site of one subject has a location and keeps its scale.
    """

    def __init__(self, n_features: int) -> None:
        super().__init__(n_features, meets=True)
        self.register_buffer("gain", torch.ones(1, n_features))
        self.register_buffer("level", torch.zeros(n_features))
        self.register_buffer("sigma", torch.zeros(n_features))
        self.register_buffer("slopes", torch.zeros(KEPT_COVARIATES, n_features))
        self.register_buffer("centre", torch.zeros(KEPT_COVARIATES))
        self.register_buffer("unit", torch.zeros(KEPT_COVARIATES))

    def covariates(self, about: Features, fit: bool = False) -> Tensor:
        values = about["covariates"][:, :KEPT_COVARIATES].double()
        if fit:
            for index, column in enumerate(values.unbind(1)):
                known = column[column.isfinite()]
                spread = known.std(correction=0) if len(known) else known.new_zeros(())
                # A covariate that does not vary, or that nobody has, counts for nothing.
                if spread > 0:
                    self.centre[index], self.unit[index] = known.mean(), 1 / spread
        return ((values - self.centre) * self.unit).where(values.isfinite(), 0)

    def start(self, training: Moments) -> None:
        slopes = torch.linalg.pinv(training.among.sum(0), hermitian=True) @ training.cross.sum(0)
        self.slopes.copy_(slopes)
        share = training.count / training.count.sum()
        self.level.copy_(share @ (training.mean - training.covariates @ slopes))
        variance = self._residual_squares(training).sum(0) / training.count.sum()
        self.sigma.copy_(variance.sqrt().where(variance > NO_VARIANCE, 0))
        self.append(self.of_sites(training))

    def _residual_squares(self, of: Moments) -> Tensor:
        """Sums (S, D) of squares of what covariates and a site's mean do not explain."""
        slopes = self.slopes.double()
        explained = (slopes * (2 * of.cross - of.among @ slopes)).sum(1)
        return (of.square - explained).clamp(min=0)

    def of_sites(self, of: Moments) -> dict[str, Tensor]:
        varies = self.sigma > 0
        sigma = self.sigma[varies].double()
        base = self.level.double() + of.covariates @ self.slopes.double()
        location = (of.mean - base)[:, varies] / sigma
        count = of.count[:, None]
        alone = torch.ones_like(location)
        scale = self._residual_squares(of)[:, varies] / (count - 1).clamp(min=1) / sigma.square()
        location, scale = empirical_bayes(location, scale.where(count > 1, alone), count)
        shift, gain = torch.zeros_like(of.mean), torch.ones_like(of.mean)
        shift[:, varies] = sigma * location
        gain[:, varies] = scale.rsqrt().where(scale > NO_VARIANCE, 1)
        return {"shift": shift, "gain": gain}

    def forward(self, values: Tensor, about: Features, columns: slice = slice(None)) -> Tensor:
        at = self.places(about["site_number"])
        shift, gain = self.shift[:, columns][at], self.gain[:, columns][at]
        known = self.covariates(about).to(values.dtype)
        base = self.level[columns] + known @ self.slopes[:, columns].to(values.dtype)
        return base + (values - base - shift) * gain


def empirical_bayes(location: Tensor, scale: Tensor, count: Tensor) -> tuple[Tensor, Tensor]:
    """Posterior means of standardised locations and squared scales (S, D) of sites.

    Parameters
    ----------
    location, scale : (S, D)
        Means and variances, the latter with one degree of freedom less than subjects.
    count : (S, 1) subjects
    """
    correction = min(1, location.shape[1] - 1)
    middle, width = location.mean(1, keepdim=True), location.var(1, correction=correction)[:, None]
    usual, among = scale.mean(1, keepdim=True), scale.var(1, correction=correction)[:, None]
    # Where all features of a site have one variance, the prior has no width.
    sure = among <= NO_VARIANCE * usual.square()
    among = among.where(~sure, 1)
    shape, rate = 2 + usual.square() / among, usual + usual**3 / among
    squares, found, spread = (count - 1) * scale, location, scale
    for _ in range(ITERATIONS):
        last = found, spread
        found = (width * count * location + spread * middle) / (width * count + spread)
        rest = squares + count * (location - found).square()
        spread = ((rest / 2 + rate) / (count / 2 + shape - 1)).where(~sure, usual)
        change = max(float((one - other).abs().max()) for one, other in zip((found, spread), last))
        if change < SETTLED:
            break
    return found, spread
