"""AUC on unseen sites against the number of training subjects: few sites, and all sites."""

import pandas as pd
from matplotlib.axes import Axes

from brio_core.reporting import plotting
from brio_core.reporting.given import Given
from brio_core.reporting.results import cohort_title
from brio_core.reporting.tables.learning_curve import ALL, ARMS, curve_rows

OUTPUT = {
    "files": ["sites", "runs"],
    "page": "training",
    "title": "How many sites do I need?",
    "caption": "AUC on unseen sites after training on few sites, or on few subjects of all sites.",
}

STYLES = {
    "sites": {"marker": "o", "color": "#0072B2"},
    "subjects": {"marker": "s", "color": "#D55E00", "linestyle": plotting.DASHES},
}


def draw(given: Given) -> plotting.Drawing:
    """One panel per cohort and variant."""
    rows = curve_rows(given.files["sites"], given.files["runs"])
    panels = list(rows.groupby(["cohort", "variant"], sort=False))
    columns = min(len(panels), 2 if len(panels) in (2, 4) else 3)
    lines = -(-len(panels) // columns)
    width = plotting.PAGE if columns > 1 else plotting.PAGE * 0.7
    figure, axes = plotting.new_figure(width, 0.7 + 2.2 * lines, lines, columns, sharey=True)
    texts = []
    for index, axis in enumerate(axes.flat):
        if index >= len(panels):
            axis.set_axis_off()
            continue
        (cohort, _), own = panels[index]
        name = f"{cohort_title(given.datasets, cohort)}, {own['label'].iloc[0]}"
        axis.set_title(own["label"].iloc[0] if rows["cohort"].nunique() == 1 else name)
        texts.append(f"{name}: {_panel(axis, own)}")
        if index % columns == 0:
            axis.set_ylabel("AUC on unseen sites (%)")
        plotting.in_percent(axis.yaxis)
    plotting.legend_below(figure, axes.flat[0])
    return plotting.Drawing(
        figure,
        f"AUC in percent against the number of training subjects. {'. '.join(texts)}.",
        "Numbers beside points are training sites. Each point is the mean over test sites, each "
        "averaged over draws; bars are Student's 95 % intervals over sites.",
    )


def _panel(axis: Axes, rows: pd.DataFrame) -> str:
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
