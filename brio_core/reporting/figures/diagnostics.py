"""The four diagnostics of the paper."""

from functools import partial

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.patches import Patch
from matplotlib.ticker import NullFormatter

from brio_core.reporting import diagnostics, plotting
from brio_core.reporting.catalogue import REFERENCE, Given, output
from brio_core.reporting.paired import MARGIN
from brio_core.reporting.results import place_title
from brio_core.reporting.tables.diagnostics import relations

NOTE = (
    "(a) Small points are single runs (one method, held-out site and seed), large ones the mean of "
    "a method; BRIO and the methods at the edges are named, others grey. Left means that sites "
    "agree, low that predictions hold when connectivity is estimated again from other frames of "
    "the same scan. Spearman's ρ is over runs, of all methods and of those that the paper "
    "compares. A pair of methods is discordant when the one with the smaller discrepancy has the "
    "larger variation, in the same fold and seed; linear models have one seed for all. (b) BRIO "
    "without qualification guidance under growing λ, and BRIO (star); bars are standard errors "
    "over runs; the ring marks the λ that source validation would choose. (c) A run is a mismatch "
    "when its discrepancy is below and its variation above the median of all these runs; AUC is "
    "preserved when validation AUC falls by at most {:.1f} points against λ = 0. (d) AUC of BRIO's "
    "unchanged classifier on held-out sites when only the highest ranked factors are kept; the "
    "band holds 90 % of the random orders."
)
X, Y = "site_discrepancy", "predictive_variation"
X_NAME, Y_NAME = "Site discrepancy", "Predictive variation"
RANKINGS = {
    "qualification": ("Full qualification", plotting.GROUP_COLOURS["Ours"], "o", "-"),
    "relevance": ("Relevance alone", plotting.PART_COLOURS["RS"], "s", (0, (4, 1.5))),
    "support": ("Support alone", plotting.PART_COLOURS["TR"], "^", (0, (1.5, 1.2))),
    "random": ("Random order", plotting.FAINT, "D", (0, (5, 1.5, 1, 1.5))),
}


@output(
    files=["diagnostics"],
    page="diagnostics",
    title="Site discrepancy, re-estimation, mismatches and retained factors",
    caption="Agreement between source sites, change of predictions when FC is re-estimated, and "
    "which factors carry predictions to unseen sites.",
    options=["margin"],
)
def diagnostics_figure(given: Given) -> plotting.Drawing:
    """The four diagnostics of the paper for a cohort: do agreeing sites mean stable predictions?

    Two rows of two panels for every cohort and protocol.
    """
    found, datasets = diagnostics.read_diagnostics(given.files["diagnostics"]), given.datasets
    margin = given.entry.get("margin", MARGIN)
    many = len(found) > 1
    figure, axes = plotting.new_figure(plotting.PAGE, 0.3 + 4.6 * len(found), 2 * len(found), 2)
    alt, words = [], {}
    for number, one in enumerate(found):
        panels = axes[2 * number : 2 * number + 2].ravel()
        where = place_title(datasets, one.cohort, one.protocol)
        titles = ("Across methods", "Growing alignment", "Mismatch rates", "Factor retention")
        parts = (
            partial(_scatter, words=words),
            _sweep,
            partial(_mismatch, margin=margin),
            _retention,
        )
        texts = [part(panel, one) for part, panel in zip(parts, panels)]
        for letter, title, axis in zip("abcd", titles, panels):
            above = f"{where}\n" if many and letter == "a" else ""
            axis.set_title(f"{above}({letter}) {title}")
        alt.append(f"{where}. " + " ".join(texts))
    note = NOTE.format(100 * margin)
    return plotting.Drawing(figure, "Four panels. " + " ".join(alt), note, words)


def _scatter(axis: Axes, one: diagnostics.Diagnostics, words: dict[str, list[str]]) -> str:
    runs = diagnostics.compared(one)
    means = runs.groupby("variant", sort=False)[[X, Y]].mean()
    named = _named(means, one)
    labels = []
    for variant, (x, y) in means.iterrows():
        about, own = one.variants[variant], runs[runs["variant"] == variant]
        shape = "*" if variant == REFERENCE else "o"
        is_named = variant in named
        colour = plotting.variant_colour(about["group"], about["hyperparameters"])
        colour = colour if is_named else plotting.FAINT
        axis.plot(own[X], own[Y], shape, color=plotting.lighter(colour, 0.6),
                  markersize=4 if shape == "*" else 2.5, markeredgewidth=0)  # fmt: skip
        name = f"methods-{len(words)}"
        words[name] = [f"{about['label']}: discrepancy {x:.3g}, variation {y:.3g}"]
        axis.plot(
            x, y, shape, color=colour, markersize=11 if shape == "*" else 6, gid=name,
            markeredgecolor="white", markeredgewidth=0.8, zorder=4 if is_named else 3,
        )  # fmt: skip
        if is_named:
            labels.append((about["label"], (x, y), colour))
    _axes(axis, runs)
    texts = []
    for name, (rho, discordant) in relations(one).items():
        rho = f"{rho:.2f}".replace("-0.00", "0.00").replace("-", "−")
        texts.append(f"{name}: Spearman's ρ = {rho}, discordant pairs {100 * discordant:.0f} %")
    # Within the panel there is room for a few words.
    text = "\n".join(texts).replace("Spearman's ", "").replace("discordant pairs", "discordant")
    axis.set_xlabel(f"{X_NAME}\n{text}", fontsize=7)
    plotting.label_points(axis, labels, means.to_numpy())
    return f"{'; '.join(texts) or 'One method'}, over {len(runs)} runs."


def _named(means: pd.DataFrame, one: diagnostics.Diagnostics) -> set[str]:
    """BRIO, what it is without guidance, and the methods at the edges of the panel."""
    own = {REFERENCE, one.without_guidance().get(0.0)} & set(means.index)
    edges = [means[key].dropna() for key in (X, Y)]
    return own | {name for edge in edges if len(edge) for name in (edge.idxmin(), edge.idxmax())}


def _axes(axis: Axes, shown: pd.DataFrame, room: float = 1.12) -> None:
    """Logarithmic where the values spread over more than one order of magnitude."""
    for key, name in ((X, "x"), (Y, "y")):
        values = shown[key][shown[key] > 0]
        if len(values) and values.max() > 15 * values.quantile(0.05):
            getattr(axis, f"set_{name}scale")("log")
            # Plain numbers: math would be printed as it is written (see plotting).
            getattr(axis, f"{name}axis").set_major_formatter("{x:g}")
            getattr(axis, f"{name}axis").set_minor_formatter(NullFormatter())
        else:
            getattr(axis, f"set_{name}lim")(0, room * shown[key].max())
    axis.grid()
    axis.set_xlabel(X_NAME)
    axis.set_ylabel(Y_NAME)


def _sweep(axis: Axes, one: diagnostics.Diagnostics) -> str:
    names, runs = diagnostics.sweep_runs(one)
    steps = [name for name in names if name != REFERENCE]
    if not steps:
        return _nothing(axis, "BRIO w/o QG was not run")
    groups = runs.groupby("variant")[[X, Y]]
    mean, error = groups.mean(), groups.sem().fillna(0)
    colour = plotting.PART_COLOURS["QG"]
    axis.plot(mean.loc[steps, X], mean.loc[steps, Y], color=plotting.lighter(colour, 0.4), zorder=2)
    chosen, labels = diagnostics.matched(one), []
    for variant, name in names.items():
        ink = plotting.GROUP_COLOURS["Ours"] if variant == REFERENCE else colour
        (x, y), (dx, dy) = mean.loc[variant], error.loc[variant]
        axis.errorbar(x, y, dy, dx, "*" if variant == REFERENCE else "o", color=ink, elinewidth=0.7,
                      markersize=10 if variant == REFERENCE else 5, zorder=3)  # fmt: skip
        if variant == chosen:
            axis.plot(x, y, "o", markersize=10, markerfacecolor="none", color=ink, zorder=3)
        labels.append((name, (x, y), ink))
    axis.margins(0.2)
    _axes(axis, mean, room=1.3)  # for the names
    plotting.label_points(axis, labels)
    numbers = "; ".join(
        f"{name} {mean.loc[key, X]:.3g} and {mean.loc[key, Y]:.3g}" for key, name in names.items()
    )
    return f"Mean discrepancy and variation w/o QG: {numbers}."


def _mismatch(axis: Axes, one: diagnostics.Diagnostics, margin: float) -> str:
    names, _ = diagnostics.sweep_runs(one)
    if 0.0 not in one.without_guidance():
        return _nothing(axis, "BRIO w/o QG (λ = 0) was not run")
    runs = diagnostics.sweep_mismatches(one, margin)
    rates = 100 * runs.groupby("variant", sort=False)[["total", "preserved"]].mean()
    # A variant that shares no fold and seed with the reference has no rate.
    names = {key: name for key, name in names.items() if key in rates.index}
    place = np.arange(len(names))
    inks = [plotting.GROUP_COLOURS["Ours"] if key == REFERENCE else plotting.PART_COLOURS["QG"]
            for key in names]  # fmt: skip
    total, preserved = rates.loc[list(names)].to_numpy().T
    axis.bar(place, total, 0.62, color=[plotting.lighter(ink, 0.65) for ink in inks])
    axis.bar(place, preserved, 0.3, color=inks)
    for x, value in zip(place, total):
        plotting.beside(axis, f"{value:.0f}", (x, value), (0, 2), ha="center")
    axis.set_xticks(place, list(names.values()), fontsize=6.5)
    axis.tick_params(axis="x", length=0)
    axis.set_ylim(0, max(10.0, 1.35 * max(total)))
    axis.set_ylabel("Runs (%)")
    axis.grid(axis="y")
    wide = Patch(color=plotting.lighter(plotting.INK, 0.65), label="all mismatches (wide)")
    narrow = Patch(color=plotting.INK, label="AUC preserved (narrow)")
    axis.legend(handles=[wide, narrow], loc="upper right", fontsize=6.5)
    numbers = "; ".join(f"{names[key]} {every:.0f} % and {kept:.0f} %"
                        for key, every, kept in rates.itertuples())  # fmt: skip
    return f"Total and AUC-preserved mismatch rates: {numbers}."


def _retention(axis: Axes, one: diagnostics.Diagnostics) -> str:
    rows = one.table("retention")
    rows = rows[rows["variant"] == REFERENCE]
    if rows.empty:
        return _nothing(axis, "BRIO was not run")
    share = 100 * rows["kept"] / rows["factors"]
    # Sites and seeds first, so that a draw of random orders is one number.
    means = rows.assign(share=share).groupby(["ranking", "share", "draw"])["test_auc"].mean()
    texts = []
    for ranking, (label, colour, shape, line) in RANKINGS.items():
        draws = means[ranking].unstack()
        # The first is wide, so that it is seen below another that goes the same way.
        wide = ranking == "qualification"
        axis.plot(draws.index, draws.mean(axis=1), marker=shape, color=colour, linestyle=line,
                  markersize=8 if wide else 4, linewidth=3.2 if wide else 1.3, label=label,
                  zorder=2 + (ranking != "random") - 0.5 * wide)  # fmt: skip
        if ranking == "random":
            low, high = draws.quantile([0.05, 0.95], axis=1).to_numpy()
            axis.fill_between(draws.index, low, high, color=plotting.lighter(colour, 0.75),
                              linewidth=0)  # fmt: skip
        texts.append(f"{label} " + ", ".join(f"{value:.3f}" for value in draws.mean(axis=1)))
    axis.set_xticks(sorted(share.unique()))
    axis.set_xlabel("Factors kept (%)")
    axis.set_ylabel("AUC on unseen sites (%)")
    plotting.in_percent(axis.yaxis)
    axis.grid()
    axis.legend(loc="lower right", fontsize=6.5)
    return f"AUC by factors kept: {'; '.join(texts)}."


def _nothing(axis: Axes, reason: str) -> str:
    axis.set_axis_off()
    axis.text(0.5, 0.5, reason, transform=axis.transAxes, ha="center", color=plotting.FAINT)
    return f"{reason}."
