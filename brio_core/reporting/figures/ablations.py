"""BRIO and what is left of it without one of its parts: bars of AUC and accuracy."""

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from brio_core.reporting import plotting, results
from brio_core.reporting.given import Given
from brio_core.reporting.table import percent

OUTPUT = {
    "files": ["summaries", "runs"],
    "title": "BRIO without one of its parts",
    "caption": "AUC and accuracy on unseen sites, with 95 % intervals.",
}

SCORES = {"auc": "AUC", "acc": "Accuracy"}
# Bars rise from chance, so that their lengths can be compared.
CHANCE = 0.5


def draw(given: Given) -> plotting.Drawing:
    """A panel for AUC and one for accuracy; variants of a cohort stand side by side."""
    rows = results.read_summaries(given.files["summaries"])
    hyperparameters = results.read_hyperparameters(given.files["runs"])
    # BRIO stands first, then what is left without its parts, as in the table.
    parts = ["none", *plotting.PART_COLOURS]
    place_of = {name: parts.index(one["without"]) for name, one in hyperparameters.items()}
    variants = sorted(results.ordered(rows["variant"]), key=place_of.__getitem__)
    cohorts = results.ordered(rows["cohort"])
    titles = {one: results.cohort_title(given.datasets, one) for one in cohorts}
    single = len(cohorts) == 1
    shape = (1, 2) if single else (2, 1)
    figure, axes = plotting.new_figure(plotting.PAGE, 2.4 if single else 4.2, *shape)
    for axis, (score, name) in zip(axes.flat, SCORES.items()):
        for number, variant in enumerate(variants):
            own = rows[rows["variant"] == variant].set_index("cohort").reindex(cohorts)
            place = np.arange(len(cohorts)) + 0.16 * (number - (len(variants) - 1) / 2)
            _bars(axis, place, own, score, hyperparameters[variant])
        axis.axhline(CHANCE, color=plotting.FAINT, linewidth=0.9)
        axis.set_xticks(range(len(cohorts)), list(titles.values()))
        axis.tick_params(axis="x", length=0, pad=12)  # the numbers stand between
        axis.set_xlim(-0.55, len(cohorts) - 0.45)
        axis.set_ylabel(f"{name} (%)")
        plotting.in_percent(axis.yaxis)
        axis.grid(axis="y")
    plotting.legend_below(figure, axes.flat[0])
    numbers = "; ".join(
        f"{row['label']}, {titles[row['cohort']]}: "
        f"{percent(row['auc_mean'])} and {percent(row['acc_mean'])}"
        for _, row in rows.iterrows()
    )
    return plotting.Drawing(
        figure,
        f"Bar charts. Mean AUC and accuracy: {numbers}.",
        "Bars show the mean over held-out sites in percent and rise from chance; the number is the "
        "mean. Error bars are 95 % intervals of the mean over sites. The table has the paired "
        "tests between variants. RS: re-estimation support, TR: task relevance, SM: strength "
        "modulation, SF: support in the factor weights.",
    )


def _bars(axis: Axes, place: np.ndarray, rows: pd.DataFrame, score: str, hyperparameters: dict):
    group, label = (rows[name].dropna().iloc[0] for name in ("group", "label"))
    mean = rows[f"{score}_mean"].to_numpy()
    axis.bar(
        place, mean - CHANCE, 0.145, bottom=CHANCE, label=label,
        color=plotting.variant_colour(group, hyperparameters),
        yerr=plotting.error_bars(rows, score), ecolor=plotting.INK, error_kw={"elinewidth": 0.8},
    )  # fmt: skip
    for x, value in zip(place, mean):
        if np.isfinite(value):
            # Below the axis of chance, where neither a bar nor its interval is.
            style = {"ha": "center", "va": "top", "fontsize": 6.5, "annotation_clip": False}
            plotting.beside(axis, percent(value), (x, CHANCE), (0, -3), **style)
