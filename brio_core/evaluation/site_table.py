"""The scores of one leave-one-site-out run, site by site."""

from collections.abc import Mapping

import numpy as np
import pandas as pd

from brio_core.evaluation import intervals
from brio_core.evaluation.scores import Decision, score_folds, usable

ALL_SITES = "all"


def site_table(
    site: np.ndarray, label: np.ndarray, logits: np.ndarray, decisions: Mapping[str, Decision]
) -> pd.DataFrame:
    """Scores at every site, and in the row ``all`` their means over sites.

    ``auc_low`` and ``auc_high`` are the 95 % interval of a site's AUC (DeLong), and of the mean
    (Student's over sites); ``auc_new_low`` and ``auc_new_high`` where a new site's is expected.
    """
    scores = score_folds(site, label, logits[None], [decisions]).set_index("fold")
    scores.index.name = "site"
    rows = [site == one for one in scores.index]
    ends = [intervals.auc_interval(label[own], logits[None, own])[1:] for own in rows]
    scores.insert(3, "auc_low", [low for low, _ in ends])
    scores.insert(4, "auc_high", [high for _, high in ends])
    used = usable(scores)
    mean, low, high = intervals.interval_over_sites(used["auc"])
    variances = [
        intervals.delong(label[site == one], logits[None, site == one])[1] for one in used.index
    ]
    new = intervals.prediction_interval(used["auc"], variances)
    total = used.mean().to_dict() | {"n": len(label), "positives": int(label.sum())}
    total |= {"auc": mean, "auc_low": max(0.0, low), "auc_high": min(1.0, high)}
    scores.loc[ALL_SITES] = total
    scores = scores.astype({"n": int, "positives": int})
    for place, (name, end) in enumerate(zip(("auc_new_low", "auc_new_high"), new)):
        scores.insert(5 + place, name, np.nan)
        scores.loc[ALL_SITES, name] = end
    return scores
