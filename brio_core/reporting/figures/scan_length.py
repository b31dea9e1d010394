"""Change of AUC when test scans are cut short, for BRIO and two of its ablations."""

import pandas as pd
from matplotlib.axes import Axes

from brio_core.reporting import plotting
from brio_core.reporting.blocks import part_of
from brio_core.reporting.diagnostics import Diagnostics, of_reference
from brio_core.reporting.given import Given
from brio_core.reporting.results import cohort_title
from brio_core.reporting.tables.scan_length import compared, scan_length_rows

OUTPUT = {
    "files": ["diagnostics"],
    "page": "diagnostics",
    "title": "Shorter scans",
    "caption": "Change of AUC when test scans are cut short, with models as they were trained.",
}


def draw(given: Given) -> plotting.Drawing:
    """One panel per cohort."""
    found = of_reference(given.files["diagnostics"])
    rows = scan_length_rows(found)
    columns = 2 if len(found) == 4 else min(len(found), 3)
    lines = -(-len(found) // columns)
    width = plotting.PAGE if columns > 1 else plotting.PAGE * 0.62
    figure, axes = plotting.new_figure(width, 0.6 + 2.1 * lines, lines, columns, sharey=True)
    texts = []
    for number, axis in enumerate(axes.flat):
        if number >= len(found):
            axis.set_axis_off()
            continue
        one = found[number]
        title = cohort_title(given.datasets, one.cohort)
        axis.set_title(title)
        own = part_of(rows, one.cohort, one.protocol)
        texts.append(f"{title}: {_panel(axis, one, own)}")
        if number % columns == 0:
            axis.set_ylabel("Change of AUC\n(percentage points)")
    plotting.legend_below(figure, axes.flat[0])
    return plotting.Drawing(
        figure,
        f"Change of AUC in percentage points. {'. '.join(texts)}.",
        "AUC is that on held-out sites; connectivity of the test scans is estimated from fewer "
        "frames. Windows at the beginning, middle and end are averaged. Error bars are standard "
        "errors over sites of the change within a site.",
    )


def _panel(axis: Axes, one: Diagnostics, rows: pd.DataFrame) -> str:
    chosen = compared(one)
    shapes = dict(zip(chosen, "*so"))
    texts = []
    axis.axhline(0, color=plotting.FAINT, linewidth=0.9, linestyle=plotting.DASHES)
    for number, variant in enumerate(chosen):
        about, own = one.variants[variant], rows[rows["variant"] == variant]
        colour = plotting.variant_colour(about["group"], about["hyperparameters"])
        # Side by side, so that error bars can be told apart.
        x = 100 * own["fraction"] + 2.2 * (number - (len(chosen) - 1) / 2)
        axis.errorbar(
            x, 100 * own["change_mean"], 100 * own["change_se"].fillna(0), color=colour,
            marker=shapes[variant], markersize=8 if variant == chosen[0] else 4.5,
            linewidth=1.2, elinewidth=0.8, capsize=2, label=about["label"],
        )  # fmt: skip
        points = ", ".join(f"{100 * value:+.1f}" for value in own["change_mean"])
        texts.append(f"{about['label']} {points}")
    axis.set_xticks(100 * rows["fraction"].unique())
    axis.invert_xaxis()
    axis.margins(0.12)
    axis.set_xlabel("Frames used (%)")
    axis.grid(axis="y")
    return "; ".join(texts)
