"""Site discrepancy against predictive re-estimation variation, folds as points."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from brio_core.errors import BrioError
from brio_core.reporting import plotting
from brio_core.reporting.results import (
    cohort_title,
    in_paper_order,
    ordered,
    protocol_title,
    read_summaries,
    read_table,
)

MEASURES = ("site_discrepancy", "predictive_variation")


def draw(
    diagnostics: Sequence[str], summaries: Sequence[str], datasets: dict, out_prefix: str
) -> None:
    """One panel per cohort and protocol; names and groups of methods come from the summaries."""
    names = read_summaries(summaries).drop_duplicates("variant").set_index("variant")
    table = in_paper_order(pd.concat([_read(path, names) for path in diagnostics]))
    blocks = list(table.groupby(["cohort", "protocol"], sort=False))
    columns = min(2, len(blocks))
    lines = -(-len(blocks) // columns)
    width = plotting.PAGE if columns == 2 else 0.75 * plotting.PAGE
    figure, axes = plotting.new_figure(width, 0.4 + 2.6 * lines, lines, columns)
    methods = table.drop_duplicates("variant")
    shapes = plotting.markers(zip(methods["variant"], methods["method"], methods["group"]))
    for number, axis in enumerate(axes.flat):
        if number >= len(blocks):
            axis.set_axis_off()
            continue
        (cohort, protocol), rows = blocks[number]
        axis.set_title(f"{cohort_title(datasets, cohort)}, {protocol_title(protocol)}")
        _panel(axis, rows, shapes)
    handles, labels = axes.flat[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside right upper")
    plotting.save(figure, out_prefix, section="diagnostics", **_words(table))


def _read(path: str, names: pd.DataFrame) -> pd.DataFrame:
    """The rows of one cell, whose cohort, protocol and variant are the folders of its file."""
    folder = Path(path).parent
    if folder.name not in names.index:
        raise BrioError(f"{path}: no summary has a variant {folder.name!r}; pass its summary too")
    variant = names.loc[folder.name]
    return read_table(path, ("fold",), MEASURES).assign(
        cohort=folder.parent.parent.name,
        protocol=folder.parent.name,
        variant=folder.name,
        **{key: variant[key] for key in ("method", "label", "group")},
    )


def _panel(axis: Axes, rows: pd.DataFrame, shapes: dict[str, str]) -> None:
    axis.grid()
    for variant in ordered(rows["variant"]):
        own = rows[rows["variant"] == variant]
        colour = plotting.group_colour(own["group"].iloc[0])
        x, y = (own[measure].to_numpy() for measure in MEASURES)
        axis.plot(
            x, y, shapes[variant], color=plotting.lighter(colour, 0.55), markersize=3.5,
            markeredgewidth=0,
        )  # fmt: skip
        axis.plot(
            np.nanmean(x), np.nanmean(y), shapes[variant], color=colour, markersize=8,
            markeredgecolor="white", markeredgewidth=0.9, zorder=3, label=own["label"].iloc[0],
        )  # fmt: skip
    axis.set_xlim(left=0)
    axis.set_ylim(bottom=0)
    axis.set_xlabel("Site discrepancy")
    axis.set_ylabel("Predictive re-estimation variation")


def _words(table: pd.DataFrame) -> dict[str, str]:
    means = table.groupby("label", sort=False)[list(MEASURES)].mean()
    text = "; ".join(f"{name}: {x:.3g} and {y:.3g}" for name, (x, y) in means.iterrows())
    return {
        "title": "Site discrepancy and predictive re-estimation variation",
        "caption": (
            "Each small point is one fold and seed, each large one the mean of a method. Left: "
            "representations of a class agree across sites. Low: predictions hold when "
            "connectivity is estimated again from other frames of the same scan."
        ),
        "alt": f"Scatter plot. Mean discrepancy and variation by method: {text}.",
    }
