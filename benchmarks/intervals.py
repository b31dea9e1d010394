"""Coverage of intervals for the mean AUC over sites, for a difference and for a new site.

python benchmarks/intervals.py > docs/benchmarks/intervals.md

Sites have true AUCs that differ, subjects are drawn anew, and every seed adds noise of its own. A
95 % interval should hold the truth in 95 of 100 draws.
"""

import math

import numpy as np
import pandas as pd
from common import argument_parser, table
from scipy.special import ndtri
from scipy.stats import norm

from brio_core.evaluation.intervals import (
    averaging_share,
    delong,
    interval_over_sites,
    middle_share,
    prediction_interval,
)
from brio_core.evaluation.site_statistics import sampling_variances

DRAWS, BOOTSTRAP, SEEDS = 2000, 400, 3
# Subjects per class at the sites of ABIDE, roughly; fewer sites take them in turn.
SIZES = (15, 12, 19, 14, 13, 24, 82, 12, 17, 27, 14, 19, 22, 26, 13, 48, 15, 40, 28, 20)
# Standard deviations of a site's distance between the classes, and of what a seed adds to scores.
BETWEEN, SEED_NOISE = 0.25, 0.5
# Mean distances between the classes of two methods; an AUC of 0.71 and 0.69.
DISTANCES = (0.8, 0.7)


def true_auc(distance: np.ndarray) -> np.ndarray:
    """The AUC of scores with unit noise, and the noise of a seed, this far apart."""
    return norm.cdf(distance / math.sqrt(2 * (1 + SEED_NOISE**2)))


def draw(generator: np.random.Generator, sizes: list[int]) -> tuple[np.ndarray, np.ndarray]:
    """AUC of two methods at every site, averaged over seeds; sampling variances of the first."""
    aucs, parts = np.empty((2, len(sizes))), []
    for site, size in enumerate(sizes):
        label = np.repeat([0, 1], size)
        shift, person = generator.normal(0, BETWEEN), generator.normal(size=2 * size)
        for method, distance in enumerate(DISTANCES):
            noise = generator.normal(0, SEED_NOISE, (SEEDS, 2 * size))
            scores = person + (distance + shift) * label + noise
            aucs[method, site] = delong(label, scores)[0]
            parts += [(label, scores)] if method == 0 else []
    labels, scores = (np.concatenate(part, -1) for part in zip(*parts))
    share = averaging_share(labels, scores, np.repeat(np.arange(len(sizes)), 2 * np.array(sizes)))
    positives = np.array(sizes)
    used = pd.DataFrame({"auc": aucs[0], "n": 2 * positives, "positives": positives})
    return aucs, sampling_variances(used, share)


def bootstrap(values: np.ndarray, generator: np.random.Generator) -> tuple[float, float]:
    """Percentiles of means over sites that are drawn with replacement."""
    chosen = generator.integers(0, len(values), (BOOTSTRAP, len(values)))
    return middle_share(values[chosen].mean(1))


def coverage(n_sites: int) -> list[str]:
    """One line of the table."""
    generator = np.random.default_rng(n_sites)
    sizes = [SIZES[site % len(SIZES)] for site in range(n_sites)]
    nodes = ndtri((np.arange(2000) + 0.5) / 2000) * BETWEEN
    mean = [true_auc(distance + nodes).mean() for distance in DISTANCES]
    held = np.zeros(5)
    for _ in range(DRAWS):
        aucs, variances = draw(generator, sizes)
        other = true_auc(DISTANCES[0] + generator.normal(0, BETWEEN))
        ends = (
            (mean[0], *interval_over_sites(aucs[0])[1:]),
            (mean[0] - mean[1], *interval_over_sites(aucs[0] - aucs[1])[1:]),
            (mean[0], *bootstrap(aucs[0], generator)),
            (mean[0] - mean[1], *bootstrap(aucs[0] - aucs[1], generator)),
            (other, *prediction_interval(aucs[0], variances)),
        )
        held += [low <= truth <= high for truth, low, high in ends]
    return [str(n_sites), *(f"{100 * share / DRAWS:.1f}" for share in held)]


def main() -> None:
    """Print the page."""
    argument_parser(__doc__).parse_args()
    columns = ("sites", "mean, Student", "difference, Student", "mean, bootstrap",
               "difference, bootstrap", "new site")  # fmt: skip
    print("# Coverage of intervals\n")
    print(
        f"Percent of {DRAWS:,} made-up cohorts whose 95 % interval holds the truth. Seeds: {SEEDS}."
    )
    print("The bootstrap draws sites with replacement.\n")
    print(table(columns, [coverage(n_sites) for n_sites in (7, 12, 20)]))


if __name__ == "__main__":
    main()
