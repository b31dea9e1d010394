"""Validation AUC over epochs: median and quartiles over folds, and the selected epochs."""

from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from brio_core.reporting import plotting
from brio_core.reporting.results import (
    PROTOCOLS,
    cohort_title,
    in_paper_order,
    ordered,
    protocol_title,
    read_history,
    read_meta,
)


def draw(runs: Sequence[str], datasets: dict, out_prefix: str) -> None:
    """One panel per cohort, protocol and variant; folds of all seeds together."""
    table = in_paper_order(pd.DataFrame([_run(folder) for folder in runs]))
    cohorts, protocols = ordered(table["cohort"]), ordered(table["protocol"], tuple(PROTOCOLS))
    panels = [
        (cohort, protocol, variant)
        for cohort in cohorts
        for protocol in protocols
        for variant in ordered(table["variant"])
    ]
    index = dict(list(table.groupby(["cohort", "protocol", "variant"])))
    panels = [index[panel] for panel in panels if panel in index]
    most = 4 if len(panels) <= 12 else 6
    columns = min(most, len(ordered(table["variant"])), len(panels))
    lines = -(-len(panels) // columns)
    inches = 0.45 + (1.55 if most == 4 else 1.2) * lines
    figure, axes = plotting.new_figure(plotting.PAGE, inches, lines, columns, sharey=True)
    for number, axis in enumerate(axes.flat):
        if number >= len(panels):
            axis.set_axis_off()
            continue
        _panel(axis, panels[number])
        first = panels[number].iloc[0]
        where = [cohort_title(datasets, first["cohort"])] if len(cohorts) > 1 else []
        where += [protocol_title(first["protocol"])] if len(protocols) > 1 else []
        title = f"{first['label']}\n{', '.join(where)}" if where else first["label"]
        axis.set_title(title, fontsize=7.5 if most == 4 else 6.5)
        if number % columns == 0:
            axis.set_ylabel("Validation AUC")
        if number + columns >= len(panels) and panels[number]["trained"].all():
            axis.set_xlabel("Epoch")
    plotting.save(figure, out_prefix, section="training", **_words(panels))


def _run(folder: str) -> dict:
    meta = read_meta(folder)
    identity = {
        key: meta[key] for key in ("cohort", "protocol", "variant", "method", "label", "group")
    }
    curves = [
        part.sort_values("epoch")["validation_auc"].to_numpy()
        for _, part in read_history(folder).groupby("fold", sort=True)
    ]
    # A method without epochs fits a path of penalties; its history is no course of training.
    return identity | {
        "curves": curves,
        "trained": "epochs" in meta.get("settings", {}),
        "selected": [(fold["selected_epoch"], fold["validation_auc"]) for fold in meta["folds"]],
    }


def _panel(axis: Axes, runs: pd.DataFrame) -> None:
    colour = plotting.group_colour(runs["group"].iloc[0])
    curves = [curve for run in runs["curves"] for curve in run]
    epoch, auc = np.array([pair for run in runs["selected"] for pair in run], float).T
    axis.axhline(0.5, color=plotting.FAINT, linewidth=0.9, linestyle=(0, (4, 3)), zorder=1.5)
    axis.grid(axis="y")
    if not runs["trained"].all():
        axis.plot(np.linspace(-0.3, 0.3, len(auc)), np.sort(auc), "o", color=colour, markersize=3)
        axis.plot([-0.4, 0.4], [np.median(auc)] * 2, color=colour, linewidth=1.6)
        axis.set_xlim(-1, 1)
        axis.set_xticks([0], ["selected model"])
        axis.set_ylim(min(0.4, *axis.get_ylim()), 1.02)
        return
    # Folds that stopped early keep their last value, so that the median is always over all folds.
    length = max(map(len, curves))
    whole = np.array([np.pad(curve, (0, length - len(curve)), "edge") for curve in curves])
    low, middle, high = np.nanquantile(whole, [0.25, 0.5, 0.75], axis=0)
    x = np.arange(1, length + 1)
    axis.fill_between(x, low, high, color=plotting.lighter(colour, 0.75), linewidth=0)
    axis.plot(x, middle, color=colour, linewidth=1.4)
    axis.plot(epoch, auc, "o", color="white", markeredgecolor=colour, markersize=3.2,
              markeredgewidth=0.8, zorder=3)  # fmt: skip
    axis.set_xlim(0, length + 1)
    axis.set_ylim(min(0.4, *axis.get_ylim()), 1.02)


def _words(panels: list[pd.DataFrame]) -> dict[str, str]:
    ends = "; ".join(
        f"{panel['label'].iloc[0]} ({panel['cohort'].iloc[0]}, {panel['protocol'].iloc[0]}): "
        f"{np.median([auc for run in panel['selected'] for _, auc in run]):.2f}"
        for panel in panels
    )
    caption = (
        "Line and band are the median and the quartiles over folds and seeds. Circles are the "
        "epochs whose checkpoint was selected; only these are tested."
    )
    if not all(panel["trained"].all() for panel in panels):
        caption += " A method without epochs shows the selected model of each fold, and the median."
    return {
        "title": "Validation AUC during training",
        "caption": caption,
        "alt": f"Curves of validation AUC over epochs. Median AUC of the selected epochs: {ends}.",
    }
