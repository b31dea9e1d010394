"""BRIO with other numbers of re-estimates K and factors J, one changed at a time."""

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import NullLocator

from brio_core.reporting import plotting, results
from brio_core.reporting.catalogue import REFERENCE
from brio_core.reporting.given import Given
from brio_core.reporting.table import percent

OUTPUT = {
    "files": ["summaries", "runs"],
    "title": "Number of re-estimates and of factors",
    "caption": "AUC on unseen sites when K or J is changed and all else stays.",
}

SWEEPS = {"reestimates": "Re-estimates K", "factors": "Factors J"}


def draw(given: Given) -> plotting.Drawing:
    """Cohorts are columns, K and J lines; a single cohort has both side by side."""
    rows = results.read_summaries(given.files["summaries"])
    hyperparameters = results.read_hyperparameters(given.files["runs"])
    cohorts = results.ordered(rows["cohort"])
    single = len(cohorts) == 1
    shape = (1, 2) if single else (2, len(cohorts))
    figure, axes = plotting.new_figure(
        plotting.PAGE, 2.3 if single else 3.6, *shape, sharey=single or "col"
    )
    texts = []
    for column, cohort in enumerate(cohorts):
        title = results.cohort_title(given.datasets, cohort)
        panels = axes[0] if single else axes[:, column]
        for number, (axis, (key, name)) in enumerate(zip(panels, SWEEPS.items())):
            own = sweep(rows[rows["cohort"] == cohort], hyperparameters, key)
            _panel(axis, own, hyperparameters.get(REFERENCE, {}).get(key))
            axis.set_xlabel(name)
            if number == 0:
                axis.set_title(title, fontsize=8.5 if len(cohorts) <= 3 else 7)
            if column == 0 and not (single and number):
                axis.set_ylabel("AUC on unseen sites (%)")
            numbers = ", ".join(
                f"{value:g}: {percent(auc)}" for value, auc in own["auc_mean"].items()
            )
            texts.append(f"{title}, {name}: {numbers}")
    return plotting.Drawing(
        figure,
        f"Lines of AUC. {'. '.join(texts)}.",
        "The total dimension of the factors stays too. AUC is the mean over held-out sites; the "
        "star is the default. Error bars are 95 % intervals of the mean over sites. The table "
        "has the paired tests between variants.",
    )


def sweep(rows: pd.DataFrame, hyperparameters: dict[str, dict], key: str) -> pd.DataFrame:
    """Rows in which nothing but ``key`` differs from BRIO, by its value."""
    base = hyperparameters.get(REFERENCE, next(iter(hyperparameters.values())))

    def same(variant: str) -> bool:
        return all(hyperparameters[variant][other] == base[other] for other in base if other != key)

    own = rows[[same(variant) for variant in rows["variant"]]]
    value = own["variant"].map(lambda variant: hyperparameters[variant][key])
    return own.assign(value=value).set_index("value").sort_index()


def _panel(axis: Axes, rows: pd.DataFrame, default: int | None) -> None:
    colour = plotting.GROUP_COLOURS["Ours"]
    axis.errorbar(
        rows.index, rows["auc_mean"], plotting.error_bars(rows, "auc"), color=colour,
        marker="o", markersize=4, linewidth=1.2, elinewidth=0.8, capsize=2,
    )  # fmt: skip
    if default in rows.index:
        axis.plot(default, rows.loc[default, "auc_mean"], "*", color=colour, markersize=11,
                  markeredgecolor="white", markeredgewidth=0.7, zorder=3)  # fmt: skip
    axis.set_xscale("log", base=2)
    axis.set_xticks(rows.index, [f"{value:g}" for value in rows.index])
    axis.xaxis.set_minor_locator(NullLocator())
    plotting.in_percent(axis.yaxis)
    axis.grid()
