"""Subjects per site and class, and why others were left out."""

from textwrap import fill, shorten

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from brio_core.reporting import plotting
from brio_core.reporting.cohorts import CohortTables, read_cohorts, site_rows
from brio_core.reporting.given import Given
from brio_core.reporting.results import class_names, cohort_title

OUTPUT = {
    "files": ["inclusion", "participants"],
    "page": "cohort",
    "title": "Subjects per site and exclusions",
    "caption": "Subjects per site and class, and how many were left out for which reason.",
}

# Reasons that are shown, and the letters in a line of one.
MOST_REASONS, WIDTH = 8, 24


def draw(given: Given) -> plotting.Drawing:
    """One line of panels per cohort: sites at the left, exclusions at the right."""
    cohorts = read_cohorts(given.files["inclusion"], given.files["participants"])
    datasets = given.datasets
    sites = [len(site_rows(cohort)) - 1 for cohort in cohorts]
    heights = [0.95 + 0.17 * max(number, 6) for number in sites]
    figure, axes = plotting.new_figure(
        plotting.PAGE, sum(heights), len(cohorts), 2, height_ratios=heights, width_ratios=(1.25, 1)
    )
    for cohort, (left, right) in zip(cohorts, axes):
        _sites(left, cohort, class_names(datasets.get(cohort.name, {})))
        _reasons(right, cohort)
        left.set_title(cohort_title(datasets, cohort.name), pad=18)
    counts = "; ".join(
        f"{cohort_title(datasets, cohort.name)}: {len(cohort.participants)} subjects of "
        f"{cohort.participants['site'].nunique()} sites, "
        f"{len(cohort.inclusion) - len(cohort.participants)} excluded"
        for cohort in cohorts
    )
    return plotting.Drawing(figure, f"Bar charts. {counts}.")


def _sites(axis: Axes, cohort: CohortTables, names: tuple[str, str]) -> None:
    rows = site_rows(cohort).iloc[:-1]
    place = np.arange(len(rows))
    bars = (
        (rows["positives"], names[1], plotting.CLASS_COLOURS[1], {}),
        (rows["negatives"], names[0], plotting.CLASS_COLOURS[0], {}),
        (rows["excluded"], "excluded", "white", {"edgecolor": plotting.FAINT, "linewidth": 0.7}),
    )
    start = np.zeros(len(rows))
    for count, name, colour, options in bars:
        count = count.to_numpy()
        # A bar of no length would still draw its edge.
        drawn = count > 0
        axis.barh(
            place[drawn], count[drawn], 0.72, start[drawn], color=colour, label=name, **options
        )
        start = start + count
    for y, (end, kept) in enumerate(zip(start, rows["subjects"])):
        plotting.beside(axis, f"{kept}", (end, y), (3, 0), va="center")
    plotting.rows_down(axis, rows["site"])
    axis.set_xlim(0, start.max() * 1.1)
    axis.set_xlabel("Subjects (number kept at the bar's end)")
    axis.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    legend = axis.legend(
        loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=3, borderaxespad=0.1, handlelength=1.0,
        columnspacing=1.2, borderpad=0.2,
    )  # fmt: skip
    # It may reach over the labels of the other panel, which begin lower.
    legend.set_in_layout(False)


def _reasons(axis: Axes, cohort: CohortTables) -> None:
    reasons = cohort.reasons
    if len(reasons) > MOST_REASONS:
        rest = reasons.iloc[MOST_REASONS - 1 :].sum()
        reasons = reasons.iloc[: MOST_REASONS - 1]
        reasons["other reasons"] = rest
    axis.set_title(f"Excluded: {reasons.sum()} of {len(cohort.inclusion)}", pad=18)
    if reasons.empty:
        axis.set_axis_off()
        return
    place = np.arange(len(reasons))
    axis.barh(place, reasons, 0.6, color="white", edgecolor=plotting.FAINT, linewidth=0.7)
    for y, count in enumerate(reasons):
        plotting.beside(axis, f"{count}", (count, y), (3, 0), va="center")
    short = [shorten(reason, 2 * WIDTH, placeholder=" …") for reason in reasons.index]
    plotting.rows_down(axis, [fill(reason, WIDTH) for reason in short])
    # Bars of about the same thickness as those of the sites.
    axis.set_ylim(max(len(reasons), 4, 0.6 * cohort.inclusion["site"].nunique()) - 0.4, -0.6)
    axis.set_xlim(0, reasons.max() * 1.12)
    axis.xaxis.set_major_locator(MaxNLocator(5, integer=True))
    axis.set_xlabel("Subjects")
