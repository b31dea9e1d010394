"""What connectivity tells about sites before anything is trained.

Nothing here decides who is in the cohort: outliers are shown, not excluded.
"""

import numpy as np

# Robust z beyond which a subject is called an outlier: connectivity has heavier tails than a normal
# distribution, of which this would be one in a million.
OUTLIER = 5.0
FOLDS = 5
# Recognising sites takes the square of this many subjects in memory; larger cohorts are thinned.
MOST_SUBJECTS = 2000
_CHUNK = 256


def site_profile(fc: np.ndarray, site: np.ndarray) -> dict[str, np.ndarray]:
    """One value per subject and column.

    Parameters
    ----------
    fc : (N, P, P) array, or a table that is read when asked for
        Fisher-z connectivity.
    site : (N,) array of names

    Returns
    -------
    dict
        ``fc_mean`` and ``fc_sd`` over pairs of ROIs; ``typicality``, the correlation of a subject's
        FC with the mean FC of the others of its site; ``outlier``, why the subject stands out, or
        an empty text; ``recognised_as``, the site that other subjects' FC would give it.
    """
    rows, columns = np.triu_indices(fc.shape[1], 1)
    names, index = np.unique(site, return_inverse=True)
    sums = np.zeros((len(names), len(rows)))
    mean, spread = np.empty(len(fc)), np.empty(len(fc))

    def chunks():
        for start in range(0, len(fc), _CHUNK):
            part = slice(start, start + _CHUNK)
            yield part, fc[part][:, rows, columns].astype(np.float64)

    for part, edges in chunks():
        mean[part], spread[part] = edges.mean(axis=1), edges.std(axis=1)
        np.add.at(sums, index[part], edges)
    typicality = np.empty(len(fc))
    count = np.bincount(index)
    for part, edges in chunks():
        others = (sums[index[part]] - edges) / np.maximum(count[index[part]] - 1, 1)[:, None]
        typicality[part] = _row_correlation(edges, others)
    unlike = robust_z(typicality, index) < -OUTLIER
    level = np.abs(robust_z(mean, index)) > OUTLIER
    reasons = [
        "; ".join(text for text, is_so in (("unlike its site", a), ("level of FC", b)) if is_so)
        for a, b in zip(unlike, level)
    ]
    return {
        "fc_mean": mean,
        "fc_sd": spread,
        "typicality": typicality,
        "outlier": np.array(reasons, dtype=object),
        "recognised_as": recognised_sites(fc, site),
    }


def _row_correlation(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    first = first - first.mean(axis=1, keepdims=True)
    second = second - second.mean(axis=1, keepdims=True)
    norm = np.linalg.norm(first, axis=1) * np.linalg.norm(second, axis=1)
    return (first * second).sum(axis=1) / np.where(norm > 0, norm, 1)


def robust_z(values: np.ndarray, index: np.ndarray) -> np.ndarray:
    """Distance from the median of the own site, in robust deviations of the whole cohort."""
    centre = np.array([np.median(values[index == k]) for k in range(index.max() + 1)])
    distance = values - centre[index]
    scale = 1.4826 * np.median(np.abs(distance))
    return distance / scale if scale > 0 else np.zeros_like(distance)


def recognised_sites(fc: np.ndarray, site: np.ndarray) -> np.ndarray:
    """The site of each subject as a linear classifier tells it, an empty text where not asked.

    Ridge regression on one indicator per site, every site weighing the same, in five folds that
    are stratified by site. Small sites count as much as large ones, so chance is one over the
    number of sites.
    """
    draw = np.random.default_rng(0)
    order = draw.permutation(len(site))
    chosen = np.sort(order[:MOST_SUBJECTS])
    names, index = np.unique(site[chosen], return_inverse=True)
    fold = np.empty(len(chosen), int)
    for k in range(len(names)):
        members = draw.permutation(np.flatnonzero(index == k))
        # Each site begins with another fold, so that small ones do not all fall into the first.
        fold[members] = (k + np.arange(len(members))) % FOLDS
    rows, columns = np.triu_indices(fc.shape[1], 1)
    edges = fc[chosen][:, rows, columns].astype(np.float32)
    edges -= edges.mean(axis=0)
    gram = (edges @ edges.T).astype(np.float64)
    found = np.full(len(site), "", dtype=object)
    for number in range(FOLDS):
        train, test = np.flatnonzero(fold != number), np.flatnonzero(fold == number)
        if len(test):
            found[chosen[test]] = names[_ridge(gram, index, train, test, len(names))]
    return found


def _ridge(gram, index, train, test, n_sites: int) -> np.ndarray:
    """Weighted kernel ridge regression with an intercept; the penalty is the mean eigenvalue."""
    weight = 1 / np.maximum(np.bincount(index[train], minlength=n_sites), 1)[index[train]]
    weight /= weight.sum()
    inner = gram[np.ix_(train, train)]
    column = inner @ weight
    level = weight @ column
    centred = inner - column - column[:, None] + level
    outer = gram[np.ix_(test, train)]
    outer = outer - (outer @ weight)[:, None] - column + level
    target = np.eye(n_sites)[index[train]]
    average = weight @ target
    penalty = np.trace(centred) / len(train)
    solution = np.linalg.solve(
        centred + penalty * np.diag(1 / (weight * len(train))), target - average
    )
    return np.argmax(outer @ solution + average, axis=1)
