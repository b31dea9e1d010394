"""Validation AUC over epochs: methods one below the other, cohorts side by side."""

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from brio_core.reporting import plotting, results
from brio_core.reporting.blocks import pairs, part_of
from brio_core.reporting.given import Given

OUTPUT = {
    "files": ["runs"],
    "page": "training",
    "title": "Course of training",
    "caption": "Validation AUC over epochs, and the epochs that were selected.",
    "section": "Training",
}

# Every row of a panel shows AUCs from LOW to 1.
LOW, CHANCE = 0.4, 0.5


def draw(given: Given) -> plotting.Drawing:
    """One panel per cohort and protocol, one row per variant; folds of all seeds together."""
    table = results.in_paper_order(pd.DataFrame([_run(folder) for folder in given.files["runs"]]))
    names = table.drop_duplicates("variant").set_index("variant")["label"]
    blocks = pairs(table, Given(given.output))
    row = 0.8 if len(names) <= 6 else 0.34
    height = 0.75 + row * len(names)
    figure, axes = plotting.new_figure(plotting.PAGE, height, 1, len(blocks), sharey=True)
    one_protocol = len({protocol for _, protocol in blocks}) == 1
    texts = []
    for axis, (cohort, protocol) in zip(axes.flat, blocks):
        own = part_of(table, cohort, protocol)
        title = results.cohort_title(given.datasets, cohort)
        title = title if one_protocol else f"{title}\n{results.protocol_title(protocol)}"
        axis.set_title(title, fontsize=8.5 if len(blocks) <= 2 else 7)
        _panel(axis, own, list(names.index))
        for variant, part in own.groupby("variant", sort=False):
            texts.append(f"{names[variant]} ({title}): {_median(part):.2f}")
    axes[0, 0].set_yticks(range(len(names)), names)
    axes[0, 0].set_ylim(len(names) - 0.5, -0.5)
    note = (
        "Line and band are the median and the quartiles over folds and seeds; every row spans AUCs "
        f"from {LOW} to 1, dashed is chance ({CHANCE}). Circles are the epochs whose checkpoint "
        "was selected, one per fold and seed; only these are tested. Their median AUC stands on "
        "the right."
    )
    if not table["trained"].all():
        note += " A method without epochs shows the selected model of each fold, and the median."
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


def _height(row: int, auc: np.ndarray | float) -> np.ndarray | float:
    """Where an AUC lies in its row; rows are one unit high and grow downwards."""
    return row + 0.45 - 0.9 * (np.clip(auc, LOW, 1) - LOW) / (1 - LOW)


def _median(runs: pd.DataFrame) -> float:
    return float(np.median([auc for run in runs["selected"] for _, auc in run]))


def _panel(axis: Axes, runs: pd.DataFrame, variants: list[str]) -> None:
    trained = runs[runs["trained"]]
    length = max((len(curve) for run in trained["curves"] for curve in run), default=1)
    for row, variant in enumerate(variants):
        if row:
            axis.axhline(row - 0.5, color=plotting.GRID, linewidth=0.6)
        own = runs[runs["variant"] == variant]
        if own.empty:
            axis.text(0.5 * length, row, "not run", ha="center", va="center", fontsize=6.5,
                      color=plotting.FAINT)  # fmt: skip
            continue
        height = _height(row, CHANCE)
        axis.axhline(height, color=plotting.FAINT, linewidth=0.6, linestyle=plotting.DASHES)
        _row(axis, row, own, length)
        right = {"xycoords": ("axes fraction", "data"), "va": "center", "fontsize": 6}
        plotting.beside(axis, f"{_median(own):.2f}", (1, row), (2, 0), **right)
    axis.set_xlim(0, length + 1)
    axis.set_xlabel("Epoch")
    axis.tick_params(axis="y", length=0)


def _row(axis: Axes, row: int, runs: pd.DataFrame, length: int) -> None:
    colour = plotting.group_colour(runs["group"].iloc[0])
    epoch, auc = np.array([pair for run in runs["selected"] for pair in run], float).T
    if not runs["trained"].all():
        epoch = np.linspace(0.3, 0.7, len(auc)) * length
        axis.plot([0.25 * length, 0.75 * length], [_height(row, np.median(auc))] * 2, color=colour,
                  linewidth=1.3)  # fmt: skip
        auc = np.sort(auc)
    else:
        # Folds that stopped early keep their last value: the median is always over all folds.
        curves = [curve for run in runs["curves"] for curve in run]
        own = max(map(len, curves))
        whole = np.array([np.pad(curve, (0, own - len(curve)), "edge") for curve in curves])
        low, middle, high = np.nanquantile(whole, [0.25, 0.5, 0.75], axis=0)
        x = np.arange(1, own + 1)
        axis.fill_between(x, _height(row, low), _height(row, high), linewidth=0,
                          color=plotting.lighter(colour, 0.75))  # fmt: skip
        axis.plot(x, _height(row, middle), color=colour, linewidth=1.2)
    size = 2.4 if len(auc) <= 40 else 1.5
    axis.plot(epoch, _height(row, auc), "o", color="white", markeredgecolor=colour,
              markersize=size, markeredgewidth=0.6, zorder=3)  # fmt: skip
