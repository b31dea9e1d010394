"""Estimated and used block length of every fold."""

import numpy as np

from brio_core.reporting import plotting
from brio_core.reporting.given import Given
from brio_core.reporting.results import cohort_title, protocol_title
from brio_core.system.files import read_json

OUTPUT = {
    "files": ["block_lengths"],
    "page": "diagnostics",
    "title": "Block length of the re-estimation",
    "caption": "How many neighbouring frames are drawn together, as estimated in each fold.",
    "section": "Data",
}


def draw(given: Given) -> plotting.Drawing:
    """One line per cohort and protocol: estimates as points, used lengths as rings."""
    files = [read_json(path) for path in given.files["block_lengths"]]
    figure, axes = plotting.new_figure(0.75 * plotting.PAGE, 0.7 + 0.38 * len(files))
    axis = axes[0, 0]
    for y, file in enumerate(files):
        estimates = np.sort([fold["estimate"] for fold in file["folds"]])
        used, folds = np.unique(
            [fold["block_length"] for fold in file["folds"]], return_counts=True
        )
        offsets = np.linspace(-0.18, 0.18, len(estimates)) if len(estimates) > 1 else [0.0]
        axis.plot(
            estimates, y + np.array(offsets), "o", color="#56B4E9", markersize=3.5,
            label="" if y else "estimate of a fold",
        )  # fmt: skip
        axis.scatter(
            used, np.full(len(used), y), s=60 + 6 * folds, facecolor="none", edgecolor="#0072B2",
            linewidth=1.3, label="" if y else "used by folds",
        )  # fmt: skip
    names = [
        f"{cohort_title(given.datasets, file['cohort'])},\n{protocol_title(file['protocol'])}"
        for file in files
    ]
    plotting.rows_down(axis, names)
    longest = max(fold["block_length"] for file in files for fold in file["folds"])
    axis.set_xlim(0, longest + 1.5)
    axis.set_xlabel("Block length (frames)")
    figure.legend(loc="outside upper right", ncols=2)
    lengths = "; ".join(
        f"{file['cohort']}, {file['protocol']}: "
        f"{min(fold['block_length'] for fold in file['folds'])} to "
        f"{max(fold['block_length'] for fold in file['folds'])} frames"
        for file in files
    )
    return plotting.Drawing(
        figure,
        f"Dot plot of block lengths per fold. {lengths}.",
        "Each fold estimates it from its training subjects; rings are rounded values.",
    )
