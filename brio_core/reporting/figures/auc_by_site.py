"""AUC of every test fold and its mean with an interval, per method, protocol and cohort."""

from itertools import pairwise
from types import SimpleNamespace as Namespace

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from brio_core.reporting import plotting, results
from brio_core.reporting.blocks import part_of
from brio_core.reporting.given import Given
from brio_core.reporting.table import percent, with_interval

OUTPUT = {
    "files": ["summaries", "sites"],
    "title": "AUC by method and test fold",
    "caption": "Every test fold, and the mean over folds with its 95 % interval.",
}


# Sizes in a figure of one or two columns of panels, which has room for numbers, or of more.
ROOMY = Namespace(numbers=True, row=0.28, point=(6, 14), mean=("D", 5.5), bar=2.0, title=8.5)
DENSE = Namespace(numbers=False, row=0.19, point=(2.5, 5), mean=("|", 5.0), bar=1.6, title=7.5)


def draw(given: Given) -> plotting.Drawing:
    """Panels are protocols by cohorts; a single cohort has its protocols side by side."""
    rows = results.read_summaries(given.files["summaries"])
    folds = results.read_sites(given.files["sites"])
    datasets = given.datasets
    cohorts = results.ordered(rows["cohort"])
    protocols = results.ordered(rows["protocol"], tuple(results.PROTOCOLS))
    methods = rows.drop_duplicates("variant").reset_index(drop=True)
    # A little air between groups.
    steps = [0.0] + [1.0 if a == b else 1.3 for a, b in pairwise(methods["group"])]
    height = np.cumsum(steps).tolist()
    single = len(cohorts) == 1
    shape = (1, len(protocols)) if single else (len(protocols), len(cohorts))
    style = ROOMY if shape[1] <= 2 else DENSE
    # Chance is always inside; a fold of one class has no AUC.
    found = [0.4, *folds["auc"].dropna(), 0.6]
    limits = np.floor(10 * min(found)) / 10, np.ceil(10 * max(found)) / 10
    inches = shape[0] * (0.55 + style.row * (height[-1] + 1.2)) + 0.15
    width = plotting.PAGE if shape[1] > 1 else 0.75 * plotting.PAGE
    figure, axes = plotting.new_figure(width, inches, *shape, sharex=True, sharey=True)
    for (row, column), axis in np.ndenumerate(axes):
        cohort = cohorts[0 if single else column]
        protocol = protocols[column if single else row]
        name = results.protocol_title(protocol).capitalize()
        if single:
            axis.set_title(name)
        else:
            title = results.cohort_title(datasets, cohort)
            axis.set_title(title if row == 0 else "", fontsize=style.title)
            axis.set_ylabel(name if column == 0 else "", fontweight="bold")
        own = (part_of(table, cohort, protocol) for table in (rows, folds))
        _panel(axis, *own, dict(zip(methods["variant"], height)), style)
        axis.set_yticks(height, methods["label"])
        axis.set_ylim(height[-1] + 0.65, -0.65)
        axis.set_xlim(*limits)
        axis.tick_params(axis="y", length=0)
        if row == shape[0] - 1:
            axis.set_xlabel("AUC (%)")
            plotting.in_percent(axis.xaxis)
    plotting.group_legend(figure, methods["group"].tolist())
    means = "; ".join(
        f"{row['label']}, {results.place_title(datasets, row['cohort'], row['protocol'])}: "
        f"{percent(row['auc_mean'])}"
        for _, row in rows.dropna(subset="auc_mean").iterrows()
    )
    return plotting.Drawing(
        figure,
        f"Dot plot of AUCs per fold, with means and intervals. Means: {means}.",
        f"Each point is the AUC of one {results.fold_names(rows)}, averaged over seeds; larger "
        "points have more subjects. Each bar is the 95 % interval of the mean over test folds, and "
        "the mark on it is the mean. The dashed line is chance.",
    )


def _panel(
    axis: Axes, rows: pd.DataFrame, folds: pd.DataFrame, height: dict[str, float], style: Namespace
) -> None:
    axis.axvline(0.5, color=plotting.FAINT, linewidth=0.9, linestyle=plotting.DASHES, zorder=1.5)
    axis.grid(axis="x")
    corner = {"xycoords": "axes fraction", "fontsize": 7, "color": plotting.FAINT}
    if style.numbers:
        plotting.beside(axis, "mean [95 %]", (1.0, 1.0), (7, 6), **corner)
    for _, row in rows.iterrows():
        y, colour = height[row["variant"]] - 0.15, plotting.group_colour(row["group"])
        own = folds[folds["variant"] == row["variant"]].dropna(subset="auc").sort_values("auc")
        smallest, growth = style.point
        axis.scatter(
            own["auc"],
            y + _offsets(own["auc"].to_numpy(), dodge=style.numbers),
            s=smallest + growth * own["n"] / folds["n"].max(),
            color=plotting.lighter(colour, 0.5),
            edgecolor="white",
            linewidth=0.3,
            zorder=2,
            clip_on=False,
        )
        mean, *ends = (row[f"auc_{end}"] for end in ("mean", "sites_low", "sites_high"))
        axis.plot(
            ends, [y, y], color=colour, linewidth=style.bar, solid_capstyle="butt", zorder=3,
            clip_on=False,
        )  # fmt: skip
        marker, size = style.mean
        edge = {"markeredgecolor": "white", "markeredgewidth": 0.8} if marker == "D" else {}
        axis.plot(
            row["auc_mean"], y, marker, color=colour, markersize=size, zorder=4, clip_on=False,
            **edge,
        )  # fmt: skip
        if style.numbers:
            cell = with_interval(mean, *ends)
            text = "no AUC" if np.isnan(mean) else f"{cell.text} {cell.extra}"
            right = {"xycoords": ("axes fraction", "data"), "fontsize": 7}
            plotting.beside(axis, text, (1.0, y + 0.15), (7, -3), **right)


def _offsets(x: np.ndarray, dodge: bool) -> np.ndarray:
    """Distances below the mean's line; of sorted points that would overlap, the next goes lower."""
    offsets, row = np.full(len(x), 0.3), 0
    for i in range(1, len(x) if dodge else 0):
        row = (row + 1) % 3 if x[i] - x[i - 1] < 0.022 else 0
        offsets[i] += 0.15 * row
    return offsets
