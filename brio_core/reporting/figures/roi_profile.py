"""Where in the brain the qualified factors of BRIO pool from: the top regions, named and placed."""

import pandas as pd
from matplotlib.axes import Axes

from brio_core.reporting import plotting
from brio_core.reporting.diagnostics import of_reference
from brio_core.reporting.given import Given
from brio_core.reporting.results import cohort_title
from brio_core.reporting.tables.roi_profiles import SHOWN, profile_rows, top_rois

OUTPUT = {
    "files": ["diagnostics"],
    "page": "diagnostics",
    "title": "Regions behind the qualified factors",
    "caption": "The five regions with the highest qualification-weighted pooling score of BRIO.",
}

# Inches per cohort.
LINE = 2.0


def draw(given: Given) -> plotting.Drawing:
    """One line per cohort: bars of the top regions, and where centroids are known a glass brain."""
    found = of_reference(given.files["diagnostics"])
    rows = profile_rows(found)
    inches = LINE * len(found)
    figure = plotting.empty_figure(plotting.PAGE, inches)
    texts = []
    for number, one in enumerate(found):
        own = rows[rows["cohort"] == one.cohort]
        top = 1 - number * LINE / inches
        bars = (0.25, top - (LINE - 0.45) / inches, 0.2, (LINE - 0.75) / inches)
        _bars(figure.add_axes(bars), own)
        title = cohort_title(given.datasets, one.cohort)
        figure.text(0.01, top - 0.22 / inches, title, fontsize=8.5, fontweight="bold")
        if own[["x", "y", "z"]].notna().all(axis=None):
            brain = (0.48, top - (LINE - 0.1) / inches, 0.52, (LINE - 0.3) / inches)
            _glass_brain(figure.add_axes(brain), own)
        names = ", ".join(top_rois(rows, one.cohort)["name"])
        texts.append(f"{title}: {names}")
    return plotting.Drawing(
        figure,
        f"Bars and glass brains. Top regions, highest first. {'. '.join(texts)}.",
        "Scores are averaged over folds and seeds in ROI space; 1 (dashed) is the average region. "
        "Error bars are standard deviations over models. On the "
        "glass brain these five are large, the centres of all other regions small.",
    )


def _bars(axis: Axes, rows: pd.DataFrame) -> None:
    top = rows.head(SHOWN)
    colour = plotting.GROUP_COLOURS["Ours"]
    axis.barh(range(len(top)), top["times_uniform"] - 1, 0.6, left=1, ecolor=plotting.INK,
              xerr=top["times_uniform_sd"].fillna(0), error_kw={"elinewidth": 0.8},
              color=plotting.lighter(colour, 0.3))  # fmt: skip
    axis.axvline(1, color=plotting.FAINT, linewidth=0.9, linestyle=plotting.DASHES)
    plotting.rows_down(axis, [f"{name} " for name in top["name"]])
    axis.set_xlabel("Relative weight (1 = average region)", labelpad=1, fontsize=7)


def _glass_brain(axis: Axes, rows: pd.DataFrame) -> None:
    from nilearn.plotting import plot_glass_brain

    display = plot_glass_brain(
        None, display_mode="lyrz", axes=axis, figure=axis.figure, annotate=False
    )
    # Sides are named above the brains, not over them.
    for view, cut in display.axes.items():
        sides = {"l": {0.5: "left"}, "r": {0.5: "right"}}.get(view, {0.05: "L", 0.95: "R"})
        for x, side in sides.items():
            cut.ax.text(x, 1.02, side, transform=cut.ax.transAxes, ha="center", fontsize=7)
    places = rows[["x", "y", "z"]].to_numpy()
    display.add_markers(places[SHOWN:], plotting.FAINT, 4)
    display.add_markers(places[:SHOWN], plotting.GROUP_COLOURS["Ours"], 42)
