"""Accuracy and AUC against the share of subjects kept, by stability and by probability."""

import pandas as pd
from matplotlib.axes import Axes

from brio_core.evaluation.abstention import PROBABILITY, STABILITY
from brio_core.reporting import plotting
from brio_core.reporting.blocks import part_of
from brio_core.reporting.catalogue import REFERENCE
from brio_core.reporting.diagnostics import read_diagnostics
from brio_core.reporting.given import Given
from brio_core.reporting.results import cohort_title
from brio_core.reporting.tables.abstention import SCORES, abstention_rows

OUTPUT = {
    "files": ["diagnostics"],
    "page": "diagnostics",
    "title": "Who to set aside",
    "caption": "Accuracy and AUC of those who are kept, when the least certain are set aside.",
}

MISSING = "No stored diagnostics tell about single subjects"
TITLES = {"accuracy": "Accuracy (%)", "auc": "AUC (%)"}
STYLES = {STABILITY: "-", PROBABILITY: plotting.DASHES}


def draw(given: Given) -> plotting.Drawing:
    """Two panels per cohort: BRIO, the most accurate method, and the most accurate linear row."""
    rows = abstention_rows(read_diagnostics(given.files["diagnostics"]))
    places = list(dict.fromkeys(zip(rows["cohort"], rows["protocol"])))
    if not places:
        # Diagnostics of an earlier version, which must not cost the other figures.
        figure, axes = plotting.new_figure(plotting.COLUMN, 1.0)
        axes[0, 0].set_axis_off()
        axes[0, 0].text(0.5, 0.5, MISSING, ha="center")
        return plotting.Drawing(figure, f"{MISSING}.")
    figure, axes = plotting.new_figure(
        plotting.PAGE, 0.7 + 2.3 * len(places), len(places), len(SCORES)
    )
    texts = []
    for line, place in zip(axes, places):
        own, title = part_of(rows, *place), cohort_title(given.datasets, place[0])
        chosen = shown(own)
        for axis, score in zip(line, SCORES):
            _panel(axis, own, chosen, score)
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


def _panel(axis: Axes, rows: pd.DataFrame, chosen: list[str], score: str) -> None:
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
