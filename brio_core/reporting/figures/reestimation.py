"""Whom to set aside, shorter scans, and regions behind BRIO's factors."""

import pandas as pd
from matplotlib.axes import Axes

from brio_core.evaluation.abstention import PROBABILITY, STABILITY
from brio_core.reporting import plotting
from brio_core.reporting.blocks import part_of
from brio_core.reporting.catalogue import REFERENCE, Given, output
from brio_core.reporting.diagnostics import Diagnostics, of_reference, read_diagnostics
from brio_core.reporting.results import cohort_title
from brio_core.reporting.tables.reestimation import (
    ROI_SHOWN,
    SCORES,
    abstention_rows,
    profile_rows,
    scan_length_rows,
    scan_length_variants,
    top_rois,
)

TITLES = {"accuracy": "Accuracy (%)", "auc": "AUC (%)"}
STYLES = {STABILITY: "-", PROBABILITY: plotting.DASHES}


@output(
    files=["diagnostics"],
    page="diagnostics",
    title="Whom to set aside",
    caption="Accuracy and AUC of those who are kept, when the least certain are set aside.",
)
def abstention_figure(given: Given) -> plotting.Drawing:
    """Accuracy and AUC against the share of subjects kept, by stability and by probability.

    Two panels per cohort: BRIO, the most accurate method, and the most accurate linear row.
    """
    rows = abstention_rows(read_diagnostics(given.files["diagnostics"]))
    places = list(dict.fromkeys(zip(rows["cohort"], rows["protocol"])))
    figure, axes = plotting.new_figure(
        plotting.PAGE, 0.7 + 2.3 * len(places), len(places), len(SCORES)
    )
    texts = []
    for line, place in zip(axes, places):
        own, title = part_of(rows, *place), cohort_title(given.datasets, place[0])
        chosen = shown(own)
        for axis, score in zip(line, SCORES):
            _abstention_panel(axis, own, chosen, score)
            axis.set_title(title if len(places) > 1 else "")
            axis.set_ylabel(TITLES[score])
        for by, style in STYLES.items():
            line[1].plot([], [], color=plotting.INK, linestyle=style, label=f"by {by}")
        for axis in line:
            axis.legend(loc="best")
        texts.append(f"{title}: {_words(own, chosen)}")
    return plotting.Drawing(
        figure,
        f"Accuracy in percent with all and with half of the subjects. {'. '.join(texts)}.",
        "Solid: subjects with the least stable decisions are set aside. Dashed: those with logits "
        "nearest the threshold. Means over held-out sites, each of which keeps the same share.",
    )


def shown(rows: pd.DataFrame) -> list[str]:
    """BRIO, the most accurate linear row, and the most accurate of all."""
    whole = rows[(rows["share"] == 1.0) & (rows["by"] == STABILITY)].set_index("variant")
    linear = whole[whole["group"] == "Linear"]
    best = [part["accuracy_mean"].idxmax() for part in (linear, whole) if len(part)]
    return list(dict.fromkeys([*([REFERENCE] if REFERENCE in whole.index else []), *best]))


def _abstention_panel(axis: Axes, rows: pd.DataFrame, chosen: list[str], score: str) -> None:
    colours = dict(zip(chosen, ("#D55E00", "#555555", "#0072B2")))
    for variant in chosen:
        for by, style in STYLES.items():
            own = rows[(rows["variant"] == variant) & (rows["by"] == by)]
            named = by == STABILITY and score == SCORES[0]
            label = own["label"].iloc[0] if named else None
            axis.plot(
                100 * own["share"], own[f"{score}_mean"], color=colours[variant],
                linestyle=style, marker="o", markersize=3, linewidth=1.2, label=label,
            )  # fmt: skip
    axis.invert_xaxis()
    axis.set_ylim(top=min(axis.get_ylim()[1], 1.005))
    axis.set_xlabel("Subjects kept (%)")
    plotting.in_percent(axis.yaxis)
    axis.grid(axis="y")


def _words(rows: pd.DataFrame, chosen: list[str]) -> str:
    at = rows.set_index(["variant", "by", "share"])
    texts = []
    for variant in chosen:
        label = rows.loc[rows["variant"] == variant, "label"].iloc[0]
        places = ((STABILITY, 1.0), (STABILITY, 0.5), (PROBABILITY, 0.5))
        ends = [at.loc[(variant, *place), "accuracy_mean"] for place in places]
        whole, stable, sure = (f"{100 * end:.1f}" for end in ends)
        texts.append(f"{label} {whole}, by stability {stable}, by probability {sure}")
    return "; ".join(texts)


@output(
    files=["diagnostics"],
    page="diagnostics",
    title="Shorter scans",
    caption="Change of AUC when test scans are cut short, with models as they were trained.",
)
def scan_length_figure(given: Given) -> plotting.Drawing:
    """Change of AUC when test scans are cut short, for BRIO and two of its ablations.

    One panel per cohort.
    """
    found = of_reference(given.files["diagnostics"])
    rows = scan_length_rows(found)
    figure, axes = plotting.panel_grid(len(found), alone=0.62, row=2.1, bottom=0.6)
    texts = []
    for axis, one in zip(axes, found):
        title = cohort_title(given.datasets, one.cohort)
        axis.set_title(title)
        own = part_of(rows, one.cohort, one.protocol)
        texts.append(f"{title}: {_scan_panel(axis, one, own)}")
        if axis.get_subplotspec().is_first_col():
            axis.set_ylabel("Change of AUC\n(percentage points)")
    plotting.legend_below(figure, axes[0])
    return plotting.Drawing(
        figure,
        f"Change of AUC in percentage points. {'. '.join(texts)}.",
        "AUC is that on held-out sites; connectivity of the test scans is estimated from fewer "
        "frames. Windows at the beginning, middle and end are averaged. Error bars are standard "
        "errors over sites of the change within a site.",
    )


def _scan_panel(axis: Axes, one: Diagnostics, rows: pd.DataFrame) -> str:
    chosen = scan_length_variants(one)
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


# Inches per cohort.
LINE = 2.0


@output(
    files=["diagnostics"],
    page="diagnostics",
    title="Regions behind the qualified factors",
    caption="The five regions with the highest qualification-weighted pooling score of BRIO.",
)
def roi_profile_figure(given: Given) -> plotting.Drawing:
    """Where in the brain the qualified factors of BRIO pool from: the top regions, with names.

    One line per cohort: bars of the top regions, and where centroids are known a glass brain.
    """
    found = of_reference(given.files["diagnostics"])
    rows = profile_rows(found)
    inches = LINE * len(found)
    figure = plotting.plt.figure(figsize=(plotting.PAGE, inches))
    # Axes are placed by hand.
    figure.set_layout_engine("none")
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
    top = rows.head(ROI_SHOWN)
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
    display.add_markers(places[ROI_SHOWN:], plotting.FAINT, 4)
    display.add_markers(places[:ROI_SHOWN], plotting.GROUP_COLOURS["Ours"], 42)
