"""Estimated and used block length of every fold."""

import numpy as np

from brio_core.reporting import plotting
from brio_core.reporting.cohorts import read_block_lengths
from brio_core.reporting.given import Given
from brio_core.reporting.results import cohort_title, protocol_title

OUTPUT = {
    "files": ["block_lengths"],
    "page": "diagnostics",
    "title": "Block length of the re-estimation",
    "caption": "How many neighbouring frames are drawn together, as estimated in each fold.",
}


def draw(given: Given) -> plotting.Drawing:
    """One line per cohort and protocol: estimates as points, used lengths as rings."""
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
