"""The course of training, and how many sites it needs."""

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from brio_core.reporting import plotting, results
from brio_core.reporting.blocks import pairs, part_of
from brio_core.reporting.catalogue import Given, output
from brio_core.reporting.results import cohort_title
from brio_core.reporting.table import percent
from brio_core.reporting.tables.training import ALL, ARMS, curve_rows

CHANCE = 0.5
# Every row of a panel shows AUCs from LOW, or from the lowest, to 1.
LOW = 0.4


@output(
    files=["runs"],
    page="training",
    title="Course of training",
    caption="Validation AUC over epochs, and the epochs that were selected.",
)
def training_figure(given: Given) -> plotting.Drawing:
    """Validation AUC over epochs: methods one below the other, cohorts side by side.

    One panel per cohort and protocol, one row per variant; folds of all seeds together.

    Methods without epochs have a panel of their own below, whose axis is the AUC.
    """
    table = results.in_paper_order(pd.DataFrame([_run(folder) for folder in given.files["runs"]]))
    # Trained rows first, and each part in the order of the paper.
    parts = [part for part in (table[table["trained"]], table[~table["trained"]]) if len(part)]
    names = [part.drop_duplicates("variant").set_index("variant")["label"] for part in parts]
    blocks = pairs(table, Given(given.output))
    every = sum(map(len, names))
    row = 0.8 if every <= 6 else 0.34
    height = 0.75 * len(parts) + row * every
    figure, axes = plotting.new_figure(
        plotting.PAGE, height, len(parts), len(blocks), sharey="row",
        height_ratios=[len(one) for one in names],
    )  # fmt: skip
    one_protocol = len({protocol for _, protocol in blocks}) == 1
    texts = []
    lows = [_low(part) for part in parts]
    for number, (panels, part, labels) in enumerate(zip(axes, parts, names)):
        is_trained = bool(part["trained"].all())
        for axis, (cohort, protocol) in zip(panels, blocks):
            own = part_of(part, cohort, protocol)
            title = results.cohort_title(given.datasets, cohort)
            title = title if one_protocol else f"{title}\n{results.protocol_title(protocol)}"
            if number == 0:
                axis.set_title(title, fontsize=8.5 if len(blocks) <= 2 else 7)
            (_training_panel if is_trained else _exact)(axis, own, list(labels.index), lows[number])
            for variant, of_variant in own.groupby("variant", sort=False):
                texts.append(f"{labels[variant]} ({title}): {percent(_median(of_variant))}")
        panels[0].set_yticks(range(len(labels)), labels)
        panels[0].set_ylim(len(labels) - 0.5, -0.5)
    note = (
        "Line and band are the median and the quartiles over folds and seeds; every row spans AUCs "
        f"from {100 * lows[0]:.0f} to 100 %, dashed is chance (50). Circles are the epochs whose "
        "checkpoint was selected, one per fold and seed; only these are tested. Their median AUC "
        "stands on the right."
    )
    if len(parts) > 1 or not table["trained"].all():
        note += (
            " Methods without epochs have no course of training: each circle is the validation AUC "
            "of the model that a fold selected, and the bar is their median."
        )
    alt = "Curves of validation AUC over epochs. Median AUC of the selected epochs: "
    return plotting.Drawing(figure, f"{alt}{'; '.join(texts)}.", note)


def _run(folder: str) -> dict:
    meta = results.read_meta(folder)
    curves = [
        part.sort_values("epoch")["validation_auc"].to_numpy()
        for _, part in results.read_history(folder).groupby("fold", sort=True)
    ]
    # A method without epochs fits a path of penalties; its history is no course of training.
    return {key: meta[key] for key in results.IDENTITY} | {
        "curves": curves,
        "trained": "epochs" in meta.get("hyperparameters", {}),
        "selected": [(fold["selected_epoch"], fold["validation_auc"]) for fold in meta["folds"]],
    }


def _low(runs: pd.DataFrame) -> float:
    """Where the rows of these runs begin, so that no value leaves its row."""
    lowest = [auc for run in runs["selected"] for _, auc in run]
    for _, own in runs[runs["trained"]].groupby(["cohort", "protocol", "variant"]):
        lowest += _quartiles(own)[1].tolist()
    return min(LOW, np.floor(10 * np.nanmin(lowest)) / 10)


def _quartiles(runs: pd.DataFrame) -> np.ndarray:
    """Quartiles and median of the course of all folds and seeds of a variant."""
    # Folds that stopped early keep their last value: the median is always over all folds.
    curves = [curve for run in runs["curves"] for curve in run]
    longest = max(map(len, curves))
    whole = np.array([np.pad(curve, (0, longest - len(curve)), "edge") for curve in curves])
    return np.nanquantile(whole, [0.25, 0.5, 0.75], axis=0)


def _height(row: int, auc: np.ndarray | float, low: float) -> np.ndarray | float:
    """Where an AUC lies in its row; rows are one unit high and grow downwards."""
    return row + 0.45 - 0.9 * (np.clip(auc, low, 1) - low) / (1 - low)


def _median(runs: pd.DataFrame) -> float:
    return float(np.median([auc for run in runs["selected"] for _, auc in run]))


def _rows(axis: Axes, runs: pd.DataFrame, variants: list[str], middle: float):
    """The rows of a panel that have runs, with the median on the right; others say so."""
    for row, variant in enumerate(variants):
        if row:
            axis.axhline(row - 0.5, color=plotting.GRID, linewidth=0.6)
        own = runs[runs["variant"] == variant]
        if own.empty:
            axis.text(middle, row, "not run", ha="center", va="center", fontsize=6.5,
                      color=plotting.FAINT)  # fmt: skip
            continue
        yield row, own
        right = {"xycoords": ("axes fraction", "data"), "va": "center", "fontsize": 6}
        plotting.beside(axis, percent(_median(own)), (1, row), (5, 0), **right)
    axis.tick_params(axis="y", length=0)


def _training_panel(axis: Axes, runs: pd.DataFrame, variants: list[str], low: float) -> None:
    length = max((len(curve) for run in runs["curves"] for curve in run), default=1)
    for row, own in _rows(axis, runs, variants, 0.5 * length):
        height = _height(row, CHANCE, low)
        axis.axhline(height, color=plotting.FAINT, linewidth=0.6, linestyle=plotting.DASHES)
        colour = plotting.group_colour(own["group"].iloc[0])
        epoch, auc = np.array([pair for run in own["selected"] for pair in run], float).T
        first, middle, third = (_height(row, end, low) for end in _quartiles(own))
        x = np.arange(1, len(middle) + 1)
        axis.fill_between(x, first, third, linewidth=0, color=plotting.lighter(colour, 0.75))
        axis.plot(x, middle, color=colour, linewidth=1.2)
        size = 2.4 if len(auc) <= 40 else 1.5
        axis.plot(epoch, _height(row, auc, low), "o", color="white", markeredgecolor=colour,
                  markersize=size, markeredgewidth=0.6, zorder=3)  # fmt: skip
    axis.set_xlim(0, length + 1)
    axis.set_xlabel("Epoch")


def _exact(axis: Axes, runs: pd.DataFrame, variants: list[str], low: float) -> None:
    """Methods without epochs: the AUC along the axis."""
    axis.axvline(CHANCE, color=plotting.FAINT, linewidth=0.6, linestyle=plotting.DASHES)
    for row, own in _rows(axis, runs, variants, (1 + low) / 2):
        colour = plotting.group_colour(own["group"].iloc[0])
        auc = np.array([value for run in own["selected"] for _, value in run])
        axis.plot(auc, np.full(len(auc), row), "o", color="white", markeredgecolor=colour,
                  markersize=3.4, markeredgewidth=0.7, clip_on=False)  # fmt: skip
        axis.plot([_median(own)] * 2, [row - 0.32, row + 0.32], color=colour, linewidth=1.6,
                  clip_on=False)  # fmt: skip
    axis.set_xlim(low, 1)
    axis.set_xlabel("Validation AUC of the selected models (%)")
    plotting.in_percent(axis.xaxis)


STYLES = {
    "sites": {"marker": "o", "color": "#0072B2"},
    "subjects": {"marker": "s", "color": "#D55E00", "linestyle": plotting.DASHES},
}


@output(
    files=["sites", "runs"],
    page="training",
    title="How many sites do I need?",
    caption="AUC on unseen sites after training on few sites, or on few subjects of all sites.",
)
def learning_curve_figure(given: Given) -> plotting.Drawing:
    """AUC on unseen sites against the number of training subjects: few sites, and all sites.

    One panel per cohort and variant.
    """
    rows = curve_rows(given.files["sites"], given.files["runs"])
    panels = list(rows.groupby(["cohort", "variant"], sort=False))
    figure, axes = plotting.panel_grid(len(panels), alone=0.7, row=2.2, bottom=0.7)
    texts = []
    for axis, ((cohort, _), own) in zip(axes, panels):
        name = f"{cohort_title(given.datasets, cohort)}, {own['label'].iloc[0]}"
        axis.set_title(own["label"].iloc[0] if rows["cohort"].nunique() == 1 else name)
        texts.append(f"{name}: {_curve_panel(axis, own)}")
        if axis.get_subplotspec().is_first_col():
            axis.set_ylabel("AUC on unseen sites (%)")
        plotting.in_percent(axis.yaxis)
    plotting.legend_below(figure, axes[0])
    return plotting.Drawing(
        figure,
        f"AUC in percent against the number of training subjects. {'. '.join(texts)}.",
        "Numbers beside points are training sites. Each point is the mean over test sites, each "
        "averaged over draws; bars are Student's 95 % intervals over sites.",
    )


def _curve_panel(axis: Axes, rows: pd.DataFrame) -> str:
    texts, whole = [], rows[rows["sites"] == ALL]
    # Side by side, so that error bars can be told apart.
    aside = 0.006 * (rows["training_subjects"].max() - rows["training_subjects"].min())
    for place, (arm, label) in enumerate(ARMS.items()):
        # The point with all subjects belongs to both curves; it is drawn once, with the first.
        points = pd.concat([rows[(rows["arm"] == arm) & (rows["sites"] != ALL)], whole])
        bars = points.iloc[: len(points) if place == 0 else -len(whole) or None]
        style = STYLES[arm]
        axis.plot(
            points["training_subjects"], points["auc_mean"], linewidth=1.2, **style | {"marker": ""}
        )
        reach = [bars["auc_mean"] - bars["auc_low"], bars["auc_high"] - bars["auc_mean"]]
        x = bars["training_subjects"] + (2 * place - 1) * aside
        axis.errorbar(
            x, bars["auc_mean"], reach, label=label, markersize=4.5, elinewidth=0.8, capsize=2,
            **style | {"linestyle": ""},
        )  # fmt: skip
        shown = zip(points["sites"], points["training_subjects"], points["auc_mean"])
        values = ", ".join(f"{100 * auc:.1f} ({n:.0f} subjects)" for _, n, auc in shown)
        texts.append(f"{label.lower()} {values}")
    for _, point in rows[rows["arm"] == "sites"].iterrows():
        where = (point["training_subjects"], point["auc_mean"])
        plotting.beside(axis, str(point["sites"]), where, (4, -9))
    axis.set_xlabel("Training subjects")
    axis.grid(axis="y")
    return "; ".join(texts)
