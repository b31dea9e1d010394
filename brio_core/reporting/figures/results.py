"""Methods and BRIO's ablations by their scores."""

from itertools import pairwise
from types import SimpleNamespace as Namespace

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from brio_core.reporting import plotting, results
from brio_core.reporting.blocks import part_of
from brio_core.reporting.catalogue import Given, output
from brio_core.reporting.table import auc_text, percent, plural

# Sizes in a figure of one or two columns of panels, which has room for numbers, or of more, or of a
# column of a journal.
ROOMY = Namespace(numbers=True, row=0.28, point=(6, 16), mean=("D", 5.5), bar=2.0, title=8.5)
DENSE = Namespace(numbers=False, row=0.19, point=(2.5, 5), mean=("|", 5.0), bar=1.6, title=7.5)
NARROW = Namespace(numbers=False, row=0.21, point=(4, 11), mean=("D", 4.5), bar=1.6, title=8.0)


@output(
    files=["summaries", "sites"],
    title="AUC by method and test fold",
    caption="Every test fold, and the mean over folds with its 95 % interval.",
    options=["column"],
)
def auc_by_site_figure(given: Given) -> plotting.Drawing:
    """AUC of every test fold and its mean with an interval, per method, protocol and cohort.

    Panels are protocols by cohorts; a single cohort has its protocols side by side.
    """
    rows = results.read_summaries(given.files["summaries"])
    folds = results.read_sites(given.files["sites"])
    datasets = given.datasets
    cohorts = results.ordered(rows["cohort"])
    protocols = results.ordered(rows["protocol"], tuple(results.PROTOCOLS))
    methods = _ranked(rows, protocols[0])
    # A little air between groups.
    steps = [0.0] + [1.0 if a == b else 1.3 for a, b in pairwise(methods["group"])]
    height = np.cumsum(steps).tolist()
    single, column = len(cohorts) == 1, given.entry.get("column", False)
    shape = (1, len(protocols)) if single else (len(protocols), len(cohorts))
    if column:
        shape = (len(protocols) * len(cohorts), 1)
    style = NARROW if column else ROOMY if shape[1] <= 2 else DENSE
    # Chance is always inside; a fold of one class has no AUC.
    found = [0.4, *folds["auc"].dropna(), 0.6]
    limits = np.floor(10 * min(found)) / 10, np.ceil(10 * max(found)) / 10
    inches = shape[0] * (0.55 + style.row * (height[-1] + 1.2)) + (0.5 if column else 0.15)
    width = plotting.PAGE if shape[1] > 1 else 0.75 * plotting.PAGE
    figure, axes = plotting.new_figure(
        plotting.COLUMN if column else width, inches, *shape, sharex=True, sharey=True
    )
    words = {}
    places = [(cohort, protocol) for protocol in protocols for cohort in cohorts]
    for number, (axis, (cohort, protocol)) in enumerate(zip(axes.flat, places)):
        row, place = divmod(number, shape[1])
        name = results.protocol_title(protocol).capitalize()
        if single:
            axis.set_title(name)
        elif column:
            axis.set_title(results.place_title(datasets, cohort, protocol), fontsize=style.title)
        else:
            title = results.cohort_title(datasets, cohort)
            axis.set_title(title if row == 0 else "", fontsize=style.title)
            axis.set_ylabel(name if place == 0 else "", fontweight="bold")
        own = (part_of(table, cohort, protocol) for table in (rows, folds))
        words |= _panel(axis, *own, dict(zip(methods["variant"], height)), style, number)
        axis.set_yticks(height, methods["label"])
        axis.set_ylim(height[-1] + 0.65, -0.65)
        axis.set_xlim(*limits)
        axis.tick_params(axis="y", length=0)
        if row == shape[0] - 1:
            axis.set_xlabel("AUC (%)")
            plotting.in_percent(axis.xaxis)
    plotting.group_legend(figure, methods["group"].tolist(), _sizes(folds, style))
    means = "; ".join(
        f"{row['label']}, {results.place_title(datasets, row['cohort'], row['protocol'])}: "
        f"{percent(row['auc_mean'])}"
        for _, row in rows.dropna(subset="auc_mean").iterrows()
    )
    return plotting.Drawing(
        figure,
        f"Dot plot of AUCs per fold, with means and intervals. Means: {means}.",
        f"Each circle is the AUC of one {results.fold_names(rows)}, averaged over seeds. "
        "Bars show the 95 % interval of the mean over test folds; diamonds mark the mean. The "
        "dashed line is chance. Within a group the methods are ranked.",
        words,
    )


def _ranked(rows: pd.DataFrame, protocol: str) -> pd.DataFrame:
    """The methods: groups as in the paper, each from its highest mean AUC to its lowest."""
    first = rows[rows["protocol"] == protocol].groupby("variant")["auc_mean"].mean()
    methods = rows.drop_duplicates("variant")
    place = {group: number for number, group in enumerate(dict.fromkeys(methods["group"]))}
    keys = {"place": methods["group"].map(place), "mean": -methods["variant"].map(first)}
    return methods.assign(**keys).sort_values(["place", "mean"], kind="stable", ignore_index=True)


def _sizes(folds: pd.DataFrame, style: Namespace) -> list[Line2D]:
    """A legend of the smallest and the largest circle, where folds differ in size."""
    ends = sorted({int(folds["n"].min()), int(folds["n"].max())})
    if len(ends) == 1:
        return []
    return [
        Line2D([], [], marker="o", linestyle="", markerfacecolor="white", markeredgewidth=0.8,
               color=plotting.INK, label=plural(n, "subject"),
               markersize=np.sqrt(_area(n, ends[-1], style)))
        for n in ends
    ]  # fmt: skip


def _area(n, largest, style: Namespace):
    smallest, growth = style.point
    return smallest + growth * n / largest


def _panel(
    axis: Axes,
    rows: pd.DataFrame,
    folds: pd.DataFrame,
    height: dict[str, float],
    style: Namespace,
    number: int,
) -> dict[str, list[str]]:
    """Draw a panel; gives what its circles say, by the names of their groups."""
    axis.axvline(0.5, color=plotting.FAINT, linewidth=0.9, linestyle=plotting.DASHES, zorder=1.5)
    axis.grid(axis="x")
    corner = {"xycoords": "axes fraction", "fontsize": 7, "color": plotting.INK}
    if style.numbers:
        plotting.beside(axis, "mean [95 %]", (1.0, 1.0), (7, 6), **corner)
    words = {}
    for _, row in rows.iterrows():
        y, colour = height[row["variant"]] - 0.15, plotting.group_colour(row["group"])
        own = folds[folds["variant"] == row["variant"]].dropna(subset="auc").sort_values("auc")
        name = f"sites-{number}-{len(words)}"
        words[name] = [results.site_words(site) for site in own.to_dict("records")]
        axis.scatter(
            own["auc"],
            y + _offsets(own["auc"].to_numpy(), dodge=style.numbers),
            s=_area(own["n"], folds["n"].max(), style),
            color="white",
            edgecolor=colour,
            linewidth=0.8,
            zorder=2,
            clip_on=False,
            gid=name,
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
            text = "no AUC" if np.isnan(mean) else auc_text(row)
            right = {"xycoords": ("axes fraction", "data"), "fontsize": 7}
            plotting.beside(axis, text, (1.0, y + 0.15), (7, -3), **right)
    return words


def _offsets(x: np.ndarray, dodge: bool) -> np.ndarray:
    """Distances below the mean's line; of sorted points that would overlap, the next goes lower."""
    offsets, row = np.full(len(x), 0.3), 0
    for i in range(1, len(x) if dodge else 0):
        row = (row + 1) % 3 if x[i] - x[i - 1] < 0.022 else 0
        offsets[i] += 0.15 * row
    return offsets


SCORES = {"auc": "AUC", "acc": "Accuracy"}
# Bars rise from chance, so that their lengths can be compared.
CHANCE = 0.5


@output(
    files=["summaries", "runs"],
    title="BRIO without one of its parts",
    caption="AUC and accuracy on unseen sites, with 95 % intervals.",
)
def ablations_figure(given: Given) -> plotting.Drawing:
    """BRIO and what is left of it without one of its parts: bars of AUC and accuracy.

    A panel for AUC and one for accuracy; variants of a cohort stand side by side.
    """
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
