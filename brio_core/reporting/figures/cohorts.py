"""Cohorts before any training: subjects, sites, block lengths."""

from textwrap import fill, shorten

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from brio_core.reporting import plotting
from brio_core.reporting.catalogue import Given, output
from brio_core.reporting.cohorts import (
    CohortTables,
    read_block_lengths,
    read_cohorts,
    read_profiles,
    recognition,
    site_rows,
)
from brio_core.reporting.results import (
    class_names,
    cohort_title,
    protocol_title,
    shared_class_names,
)

# Reasons that are shown, and the letters in a line of one.
MOST_REASONS, WIDTH = 8, 24


@output(
    files=["inclusion", "participants"],
    page="cohort",
    title="Subjects per site and exclusions",
    caption="Subjects per site and class, and how many were left out for which reason.",
)
def cohort_figure(given: Given) -> plotting.Drawing:
    """Subjects per site and class, and why others were left out.

    One line of panels per cohort: sites at the left, exclusions at the right.
    """
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


PANELS = (
    ("age", "Age (years)"),
    ("mean_fd", "Motion (mm)"),
    ("frames", "Frames"),
    ("fc_mean", "Mean FC (z)"),
    ("fc_sd", "Spread of FC (z)"),
)
# Where the two classes of a site lie around its line.
SHIFT = {1: -0.19, 0: 0.19}


@output(
    files=["profiles"],
    page="cohort",
    title="Sites before any training",
    caption="Age, head motion, scan length and connectivity per site and class.",
    shows_subjects=True,
)
def sites_figure(given: Given) -> plotting.Drawing:
    """Sites before any training: age, motion, scan length and connectivity of each site and class.

    One line of panels per cohort, one line of each panel per site.
    """
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
    negative, positive = shared_class_names(datasets, cohorts)
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


@output(
    files=["block_lengths"],
    page="diagnostics",
    title="Block length of the re-estimation",
    caption="How many neighbouring frames are drawn together, as estimated in each fold.",
)
def block_length_figure(given: Given) -> plotting.Drawing:
    """Estimated and used block length of every fold.

    One line per cohort and protocol: estimates as points, used lengths as rings.
    """
    found = read_block_lengths(given.files["block_lengths"])
    figure, axes = plotting.new_figure(0.75 * plotting.PAGE, 0.7 + 0.38 * len(found))
    axis = axes[0, 0]
    names, texts = [], []
    for y, ((cohort, protocol), folds) in enumerate(found.items()):
        offsets = np.linspace(-0.18, 0.18, len(folds)) if len(folds) > 1 else np.zeros(1)
        axis.plot(
            folds["estimate"].sort_values(), y + offsets, "o", color="#56B4E9", markersize=3.5,
            label="" if y else "estimate of a fold",
        )  # fmt: skip
        used = folds["block_length"].value_counts().sort_index()
        axis.scatter(
            used.index, np.full(len(used), y), s=60 + 6 * used, facecolor="none",
            edgecolor="#0072B2", linewidth=1.3, label="" if y else "used by folds",
        )  # fmt: skip
        names.append(f"{cohort_title(given.datasets, cohort)},\n{protocol_title(protocol)}")
        texts.append(f"{cohort}, {protocol}: {used.index.min()} to {used.index.max()} frames")
    plotting.rows_down(axis, names)
    axis.set_xlim(0, max(folds["block_length"].max() for folds in found.values()) + 1.5)
    axis.set_xlabel("Block length (frames)")
    figure.legend(loc="outside upper right", ncols=2)
    return plotting.Drawing(
        figure,
        f"Dot plot of block lengths per fold. {'; '.join(texts)}.",
        "Each fold estimates it from its training subjects; rings are rounded values.",
    )
