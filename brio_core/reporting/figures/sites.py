"""Sites before any training: age, motion, scan length and connectivity of each site and class."""

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.patches import Patch

from brio_core.reporting import plotting
from brio_core.reporting.cohorts import read_profiles, recognition
from brio_core.reporting.given import Given
from brio_core.reporting.results import class_names, cohort_title

OUTPUT = {
    "files": ["profiles"],
    "page": "cohort",
    "title": "Sites before any training",
    "caption": "Age, head motion, scan length and connectivity per site and class.",
    "shows_subjects": True,
}

PANELS = (
    ("age", "Age (years)"),
    ("mean_fd", "Motion (mm)"),
    ("frames", "Frames"),
    ("fc_mean", "Mean FC (z)"),
    ("fc_sd", "Spread of FC (z)"),
)
# Where the two classes of a site lie around its line.
SHIFT = {1: -0.19, 0: 0.19}


def draw(given: Given) -> plotting.Drawing:
    """One line of panels per cohort, one line of each panel per site."""
    cohorts, datasets = read_profiles(given.files["profiles"]), given.datasets
    heights = [1.0 + 0.27 * people["site"].nunique() for people in cohorts.values()]
    figure, axes = plotting.new_figure(
        plotting.PAGE, sum(heights) + 0.2, len(cohorts), len(PANELS) + 1, height_ratios=heights
    )
    for (name, people), line in zip(cohorts.items(), axes):
        sites = sorted(people["site"].unique())
        for axis, (column, title) in zip(line, PANELS):
            _boxes(axis, people, sites, column)
            axis.set_xlabel(title)
        _told(line[-1], people, sites)
        for axis in line[1:]:
            axis.set_yticklabels([])
        line[0].set_title(cohort_title(datasets, name))
    names = {class_names(datasets.get(name, {})) for name in cohorts}
    negative, positive = names.pop() if len(names) == 1 else ("class 0", "class 1")
    colours = dict(zip((positive, negative), reversed(plotting.CLASS_COLOURS)))
    handles = [Patch(color=colour, label=name) for name, colour in colours.items()]
    figure.legend(handles=handles, loc="outside lower center", ncols=2)
    told = {name: recognition(people) for name, people in cohorts.items()}
    numbers = "; ".join(
        f"{cohort_title(datasets, name)}: {100 * share.mean():.0f} % (chance {100 * chance:.0f} %)"
        for name, (share, chance) in told.items()
    )
    return plotting.Drawing(
        figure,
        f"Box plots per site. Site identifiable from connectivity: {numbers}.",
        "Boxes show median, quartiles and range; crosses are subjects whose connectivity stands "
        "out. At the right: the share of subjects whose site a linear classifier tells from the "
        "connectivity of others; the dotted line is chance.",
    )


def _boxes(axis: Axes, people: pd.DataFrame, sites: list[str], column: str) -> None:
    """Quartiles and whiskers per site and class; outliers by connectivity as crosses."""
    plotting.rows_down(axis, sites)
    if people[column].isna().all():
        axis.text(0.5, 0.5, "unknown", transform=axis.transAxes, ha="center", color=plotting.FAINT)
        axis.set_xticks([])
        return
    for label, shift in SHIFT.items():
        mine = people[people["label"] == label]
        values = [mine.loc[mine["site"] == site, column].dropna() for site in sites]
        place = np.arange(len(sites)) + shift
        some = [index for index, one in enumerate(values) if len(one)]
        axis.boxplot(
            [values[index] for index in some], positions=place[some], widths=0.3,
            orientation="horizontal", patch_artist=True, showfliers=False, manage_ticks=False,
            boxprops={"facecolor": plotting.CLASS_COLOURS[label], "linewidth": 0},
            medianprops={"color": plotting.INK, "linewidth": 0.8},
            whiskerprops={"color": plotting.FAINT, "linewidth": 0.6}, capprops={"linewidth": 0},
        )  # fmt: skip
        if column.startswith("fc"):
            odd = mine[mine["outlier"] != ""]
            where = [sites.index(site) + shift for site in odd["site"]]
            axis.plot(odd[column], where, "x", color="#D55E00", markersize=3, markeredgewidth=0.7)


def _told(axis: Axes, people: pd.DataFrame, sites: list[str]) -> None:
    plotting.rows_down(axis, sites)
    share, chance = recognition(people)
    axis.barh(np.arange(len(sites)), 100 * share.reindex(sites), 0.6, color=plotting.FAINT)
    axis.axvline(100 * chance, color=plotting.INK, linewidth=0.8, linestyle=":")
    axis.set_xlim(0, 100)
    axis.set_xlabel("Site identifiable (%)")
