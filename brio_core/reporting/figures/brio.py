"""BRIO: what it is, its propositions, its sensitivity."""

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import NullLocator

from brio_core.reporting import plotting, results
from brio_core.reporting.catalogue import REFERENCE, Given, output
from brio_core.reporting.diagnostics import of_reference
from brio_core.reporting.results import cohort_title
from brio_core.reporting.table import percent
from brio_core.system.files import ROOT

COLOUR = plotting.GROUP_COLOURS["Ours"]
# More points than this would make a PDF that no viewer likes; they become an image in it.
MANY = 5000


@output(
    files=["diagnostics"],
    page="diagnostics",
    title="The two propositions on trained models",
    caption="How often the sign condition holds and the sign is kept, and the gap to the bounds.",
)
def propositions_figure(given: Given) -> plotting.Drawing:
    """The paper's two propositions on trained models: what they promise, and how much room is left.

    One line of three panels per cohort.
    """
    found = of_reference(given.files["diagnostics"])
    figure, axes = plotting.new_figure(plotting.PAGE, 0.3 + 2.1 * len(found), len(found), 3)
    texts = []
    for line, one in zip(axes, found):
        contrasts, penalties = one.table("contrasts"), one.table("penalties")
        contrasts = contrasts[contrasts["variant"] == REFERENCE]
        penalties = penalties[penalties["variant"] == REFERENCE]
        parts = [_signs(line[0], contrasts), _bound(line[1], contrasts), _gap(line[2], penalties)]
        title = cohort_title(given.datasets, one.cohort)
        above = f"{title}\n" if len(found) > 1 else ""
        line[0].set_title(f"{above}(a) Sign of the contrast")
        line[1].set_title("(b) Change against its bound")
        line[2].set_title("(c) Support penalty")
        texts.append(f"{title}: " + " ".join(parts))
    return plotting.Drawing(
        figure,
        "Three panels. " + " ".join(texts),
        "Every trained BRIO model, source site and factor. (a) Proposition 1: where support "
        "exceeds its threshold in both classes, re-estimation must not flip the sign of the class "
        "contrast; filled: the sign is kept, hatched: it flips. (b) The change of the contrast "
        "under re-estimation against the bound of Proposition 1; nothing may lie above the dashed "
        "line. (c) Proposition 2, for every pair of source sites and class: the support penalty "
        "−log g of the qualified weights against that of relevance alone; nothing may lie above "
        "the dashed line.",
    )


def _signs(axis: Axes, rows: pd.DataFrame) -> str:
    holds = rows["condition"] > 0
    same = np.sign(rows["contrast"]) == np.sign(rows["reestimated"])
    # Cases and those that keep their sign, where the condition holds and where it does not.
    counts = {
        "condition\nholds": (int(holds.sum()), int((holds & same).sum())),
        "condition\ndoes not hold": (int((~holds).sum()), int((~holds & same).sum())),
    }
    for place, (cases, kept) in enumerate(counts.values()):
        share = 100 * cases / max(1, len(rows))
        axis.bar(place, share, 0.6, color="white", edgecolor=COLOUR, linewidth=0.8, hatch="////")
        axis.bar(place, share * kept / max(1, cases), 0.6, color=plotting.lighter(COLOUR, 0.3))
        text = f"sign kept in\n{kept:,} of {cases:,}"
        plotting.beside(axis, text, (place, share), (0, 3), ha="center")
    axis.set_xticks([0, 1], list(counts))
    axis.tick_params(axis="x", length=0)
    axis.set_ylim(0, 125)
    axis.set_yticks(range(0, 101, 25))
    axis.set_ylabel("Sites × factors (%)")
    axis.grid(axis="y")
    (cases, kept), (others, others_kept) = counts.values()
    return (
        f"the condition holds in {cases} of {len(rows)} cases, and the sign is kept in {kept} of "
        f"these and in {others_kept} of the other {others}."
    )


def _bound(axis: Axes, rows: pd.DataFrame) -> str:
    change = (rows["reestimated"] - rows["contrast"]).abs()
    holds, many = rows["condition"] > 0, len(rows) > MANY
    plotting.equal_axes(axis, 1.05 * max(rows["bound"].max(), 1e-12))
    axis.plot(rows["bound"][~holds], change[~holds], "o", color=plotting.lighter(COLOUR, 0.6),
              markersize=2.2, markeredgewidth=0, label="does not hold",
              rasterized=many)  # fmt: skip
    axis.plot(rows["bound"][holds], change[holds], "D", color=COLOUR, markersize=2.8,
              markeredgewidth=0, label="condition holds", rasterized=many)  # fmt: skip
    axis.set_xlabel("Bound")
    axis.set_ylabel("Change of the contrast")
    ratio = (change / rows["bound"]).median()
    axis.legend(loc="upper left", fontsize=6.5, handletextpad=0.2, title_fontsize=6.5,
                title=f"median {100 * ratio:.0f} % of the bound")  # fmt: skip
    over = int((change > rows["bound"] * (1 + 1e-6) + 1e-9).sum())
    return f"The change exceeds its bound in {over} cases; its median is {ratio:.2f} of the bound."


def _gap(axis: Axes, rows: pd.DataFrame) -> str:
    plotting.equal_axes(axis, 1.05 * max(rows["relevance_penalty"].max(), 1e-12))
    axis.plot(rows["relevance_penalty"], rows["penalty"], "o", markersize=2.2, markeredgewidth=0,
              color=plotting.lighter(COLOUR, 0.3), rasterized=len(rows) > MANY)  # fmt: skip
    axis.set_xlabel("Relevance weights (bound)")
    axis.set_ylabel("Qualified weights, −log g")
    saved = 1 - rows["penalty"].sum() / rows["relevance_penalty"].sum()
    axis.text(0.03, 0.97, f"reweighting saves\n{100 * saved:.1f} % on average",
              transform=axis.transAxes, va="top", fontsize=6.5)  # fmt: skip
    over = int((rows["penalty"] > rows["relevance_penalty"] * (1 + 1e-6) + 1e-9).sum())
    return (
        f"The penalty exceeds its bound in {over} of {len(rows)} pairs; {100 * saved:.1f} % less."
    )


SWEEPS = {"reestimates": "Re-estimates K", "factors": "Factors J"}


@output(
    files=["summaries", "runs"],
    title="Number of re-estimates and of factors",
    caption="AUC on unseen sites when K or J is changed and all else stays.",
)
def sensitivity_figure(given: Given) -> plotting.Drawing:
    """BRIO with other numbers of re-estimates K and factors J, one changed at a time.

    Cohorts are columns, K and J lines; a single cohort has both side by side.
    """
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
    axis.errorbar(
        rows.index, rows["auc_mean"], plotting.error_bars(rows, "auc"), color=COLOUR,
        marker="o", markersize=4, linewidth=1.2, elinewidth=0.8, capsize=2,
    )  # fmt: skip
    if default in rows.index:
        axis.plot(default, rows.loc[default, "auc_mean"], "*", color=COLOUR, markersize=11,
                  markeredgecolor="white", markeredgewidth=0.7, zorder=3)  # fmt: skip
    axis.set_xscale("log", base=2)
    axis.set_xticks(rows.index, [f"{value:g}" for value in rows.index])
    axis.xaxis.set_minor_locator(NullLocator())
    plotting.in_percent(axis.yaxis)
    axis.grid()


@output(
    page="method",
    title="Overview of BRIO",
    caption="From one scan to qualified alignment of sites.",
    reads=["docs/images/method.*"],
)
def method_figure(given: Given) -> plotting.Drawing:
    """Overview of BRIO: from one scan to qualified alignment of sites. A drawing, made of no data.

    It lies in docs/images: ``method.pdf`` to be edited, and ``method.png`` as exported from it.

    Four steps from left to right.
    """
    return plotting.Drawing(
        ROOT / "docs" / "images" / "method",
        "Drawing in four steps: re-estimation of connectivity within a scan, factorisation with "
        "shared maps, qualification by relevance and support, alignment of sites.",
        "Blocks of frames of a scan are drawn again to estimate its connectivity anew. A shared "
        "network and one map of regions turn every estimate into factors with the same index. A "
        "factor qualifies if it separates the classes (relevance) and if its contribution survives "
        "re-estimation at both sites of a pair (support); this decides which factors are aligned, "
        "and how strongly. Unseen sites need the full scan only.",
    )
