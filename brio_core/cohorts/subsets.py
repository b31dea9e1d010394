"""Fewer subjects than a cohort has: draws for learning curves, and classes matched by motion."""

import re

import numpy as np

from brio_core.system.errors import BrioError
from brio_core.system.seeds import numpy_generator

DRAWN = re.compile(r"loso-(sites|subjects)-(\d+)-draw-(\d+)")

# Of the deviation of log motion within sites and classes: the usual calliper of matched pairs.
CALLIPER = 0.2
FEWEST_PAIRS = 3


def drawn_folds(folds: list[dict], site, label, cohort: str, what: re.Match) -> list[dict]:
    """The same folds with fewer training subjects; validation and test sites do not change.

    ``sites`` keeps some training sites; ``subjects`` keeps as many of each class, but of all
    training sites. The folds also get ``sources``: the same for methods that train on validation
    sites too, drawn from training and validation sites together.
    """
    site, label, drawn = np.asarray(site), np.asarray(label), []
    arm, count, draw = what[1], int(what[2]), int(what[3])
    for fold in folds:
        key = (cohort, fold["name"], draw)
        sources = np.union1d(fold["train"], fold["validation"]).astype(int)
        order = numpy_generator(*key, "source sites").permutation(np.unique(site[sources]))
        chance = numpy_generator(*key, "source subjects").random(len(site))
        own = dict(fold)
        for name, pool in (("train", np.asarray(fold["train"], int)), ("sources", sources)):
            sites = order[np.isin(order, site[pool])]
            kept = pool[np.isin(site[pool], sites[:count])]
            if arm == "subjects":
                counts = np.bincount(label[kept], minlength=2)
                kept = of_all_sites(pool, counts, sites, site, label, chance)
            own[name] = np.sort(kept).tolist()
        drawn.append(own)
    return drawn


def of_all_sites(pool, counts, sites, site, label, chance) -> np.ndarray:
    """``counts`` subjects of each class of the ``pool``, in the same share of every site.

    Every site keeps both classes. Where a class has fewer subjects than there are sites, the last
    of the ``sites`` have none.
    """
    found = []
    for side, number in enumerate(counts):
        share = np.full(len(site), np.inf)
        for name in sites[: min(counts)]:
            here = pool[(site[pool] == name) & (label[pool] == side)]
            share[here[np.argsort(chance[here])]] = np.arange(len(here)) / len(here)
        # The first of every site has share 0; chance decides between equals.
        found.append(np.lexsort((chance, share))[:number])
    return np.concatenate(found)


def motion_matched(site, label, mean_fd) -> np.ndarray:
    """Rows of pairs of a patient and a control of one site who moved alike.

    In every site the largest number of pairs that differ by at most :data:`CALLIPER` in the log of
    mean FD is kept, and of those sets one with the smallest sum of differences. Sites with fewer
    than :data:`FEWEST_PAIRS` pairs and subjects without mean FD are left out.
    """
    import pandas as pd
    from scipy.optimize import linear_sum_assignment

    site, label = np.asarray(site), np.asarray(label)
    motion = pd.to_numeric(pd.Series(mean_fd), errors="coerce").to_numpy(float)
    known = np.isfinite(motion) & (motion > 0)
    if not known.any():
        raise BrioError(
            "no subject has a mean framewise displacement, so none can be matched by motion; name "
            "its column under 'columns: mean_fd' of the dataset, or leave the experiment out"
        )
    motion = np.log(motion, where=known, out=np.full(len(motion), np.nan))
    cells = [known & (site == one) & (label == side) for one in np.unique(site) for side in (0, 1)]
    squares = sum(((motion[cell] - motion[cell].mean()) ** 2).sum() for cell in cells if cell.any())
    widest = CALLIPER * np.sqrt(squares / max(known.sum() - len(cells), 1))
    rows = []
    for one in np.unique(site):
        negative, positive = (np.flatnonzero(known & (site == one) & (label == c)) for c in (0, 1))
        apart = np.abs(motion[negative][:, None] - motion[positive])
        # A pair that is too far apart costs more than all others of the site together.
        cost = np.where(apart <= widest, apart, (len(site) + 1) * (widest + 1))
        first, second = linear_sum_assignment(cost)
        close = apart[first, second] <= widest
        if close.sum() >= FEWEST_PAIRS:
            rows += [*negative[first[close]], *positive[second[close]]]
    return np.sort(np.array(rows, int))
