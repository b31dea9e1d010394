"""Overview of BRIO: from one scan to qualified alignment of sites. A drawing, made of no data."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import Ellipse, FancyArrowPatch, FancyBboxPatch, Rectangle

from brio_core.reporting import plotting
from brio_core.reporting.given import Given
from brio_core.system.seeds import numpy_generator

OUTPUT = {
    "page": "method",
    "title": "Overview of BRIO",
    "caption": "From one scan to qualified alignment of sites.",
    "section": "Method",
}

WIDTH, HEIGHT = plotting.PAGE, 3.3
FACTORS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7")
SITES = ("#D55E00", "#332288")
PANELS = (
    (0.04, 1.86, "1  Re-estimate", "within each scan"),
    (2.02, 1.66, "2  Factorise", "with shared maps"),
    (3.80, 1.62, "3  Qualify", "relevance × support"),
    (5.54, 1.42, "4  Align", "what is qualified"),
)
RELEVANCE = (0.9, 0.75, 0.3, 0.45)
SUPPORT = ((0.9, 0.35, 0.85, 0.6), (0.8, 0.3, 0.95, 0.75))
UPPER, LOWER = 1.98, 0.88  # heights of the full scan and of its re-estimates


def draw(given: Given) -> plotting.Drawing:
    """Four steps from left to right."""
    figure = plotting.empty_figure(WIDTH, HEIGHT)
    axis = figure.add_axes((0, 0, 1, 1))
    axis.set_xlim(0, WIDTH)
    axis.set_ylim(0, HEIGHT)
    axis.set_axis_off()
    for left, width, title, rest in PANELS:
        _box(axis, left, 0.06, width, HEIGHT - 0.12, "#f6f7f9")
        axis.text(left + 0.1, HEIGHT - 0.27, title, fontsize=9, fontweight="bold")
        axis.text(left + 0.1, HEIGHT - 0.44, rest, fontsize=7.5, color="#5d6776")
    _reestimation(axis)
    _factorisation(axis)
    _qualification(axis)
    _alignment(axis)
    return plotting.Drawing(
        figure,
        "Drawing in four steps: re-estimation of connectivity within a scan, factorisation with "
        "shared maps, qualification by relevance and support, alignment of sites.",
        "Blocks of frames of a scan are drawn again to estimate its connectivity anew. A shared "
        "network and one map of regions turn every estimate into factors with the same index. A "
        "factor qualifies if it separates the classes (relevance) and if its contribution survives "
        "re-estimation at both sites of a pair (support); this decides which factors are aligned, "
        "and how strongly. Unseen sites need the full scan only.",
    )


def _box(axis: Axes, x: float, y: float, width: float, height: float, colour, edge="#d8dde4"):
    shape = "round,pad=0,rounding_size=0.06"
    axis.add_patch(
        FancyBboxPatch((x, y), width, height, boxstyle=shape, facecolor=colour, edgecolor=edge,
                       linewidth=0.8)
    )  # fmt: skip


def _arrow(axis: Axes, start: tuple, end: tuple, colour: str = plotting.INK, bend: float = 0.0):
    axis.add_patch(
        FancyArrowPatch(start, end, arrowstyle="-|>", mutation_scale=7, color=colour, linewidth=0.9,
                        shrinkA=0, shrinkB=0, connectionstyle=f"arc3,rad={bend}", zorder=5)
    )  # fmt: skip


def _series(axis: Axes, x: float, y: float, width: float, height: float, order: tuple) -> None:
    """Four signals whose frames are cut into coloured blocks, in the given order."""
    generator = numpy_generator("overview", "series")
    steps = generator.normal(size=(4, 96)).cumsum(1)
    steps -= np.linspace(0, 1, 96) * steps[:, -1:]
    smooth = np.array([np.convolve(one, np.ones(5) / 5, "same") for one in steps])
    smooth /= np.abs(smooth).max(1, keepdims=True)
    blocks = np.split(smooth, 6, axis=1)
    shades = ("#dbe9f4", "#fbe7c6", "#d5ece4", "#f3e1ec", "#e4e4e4", "#e3def2")
    part = width / 6
    for place, number in enumerate(order):
        left = x + place * part
        axis.add_patch(Rectangle((left, y), part, height, facecolor=shades[number], linewidth=0))
        times = np.linspace(left, left + part, 16)
        for line, signal in enumerate(blocks[number]):
            axis.plot(times, y + height * (line + 0.5 + 0.36 * signal) / 4, color=plotting.INK,
                      linewidth=0.6)  # fmt: skip
    axis.add_patch(Rectangle((x, y), width, height, fill=False, edgecolor="#b9c0ca", linewidth=0.6))


def _matrix(axis: Axes, x: float, y: float, size: float, change: int) -> None:
    """A connectivity matrix; ``change`` shakes it a little."""
    generator = numpy_generator("overview", "matrix")
    pattern = generator.normal(size=(9, 3))
    shaken = pattern + 0.35 * numpy_generator("overview", change).normal(size=(9, 3)) * bool(change)
    values = np.corrcoef(shaken)
    extent = (x, x + size, y, y + size)
    axis.imshow(values, cmap="PuOr_r", vmin=-1, vmax=1, extent=extent, zorder=3, aspect="auto",
                interpolation="nearest")  # fmt: skip
    axis.add_patch(Rectangle((x, y), size, size, fill=False, edgecolor="white", linewidth=1.2,
                             zorder=4))  # fmt: skip


def _reestimation(axis: Axes) -> None:
    left = PANELS[0][0] + 0.1
    _series(axis, left, UPPER - 0.02, 0.92, 0.56, (0, 1, 2, 3, 4, 5))
    axis.text(left, UPPER + 0.59, "BOLD of one scan", fontsize=6.5)
    for depth in (2, 1):
        _box(axis, left + 0.05 * depth, LOWER - 0.02 - 0.05 * depth, 0.92, 0.56, "#ffffff")
    _series(axis, left, LOWER - 0.02, 0.92, 0.56, (3, 3, 0, 5, 1, 3))
    axis.text(left, LOWER + 0.59, "blocks drawn again, $K$ times", fontsize=6.5)
    _arrow(axis, (left + 0.2, UPPER - 0.05), (left + 0.2, LOWER + 0.72))
    place = left + 1.12
    _matrix(axis, place, UPPER, 0.52, 0)
    for depth in (2, 1, 0):
        _matrix(axis, place + 0.045 * depth, LOWER - 0.045 * depth, 0.5, depth + 1)
    axis.text(place + 0.26, UPPER + 0.59, "$A^{(0)}$", fontsize=7.5, ha="center")
    axis.text(place + 0.45, LOWER + 0.56, "$A^{(k)}$", fontsize=7.5, ha="center")
    for height in (UPPER, LOWER):
        _arrow(axis, (left + 0.95, height + 0.26), (place - 0.03, height + 0.26))
    axis.text(left, 0.2, "same frames for all regions,\nneighbouring frames stay together",
              fontsize=6.5, linespacing=1.3)  # fmt: skip


def _factorisation(axis: Axes) -> None:
    left = PANELS[1][0]
    gnn = left + 0.12
    _box(axis, gnn, LOWER - 0.04, 0.42, UPPER - LOWER + 0.62, "#dfe6ee", "#b9c0ca")
    middle = (UPPER + LOWER + 0.54) / 2
    axis.text(gnn + 0.21, middle, "shared signed GNN", rotation=90, fontsize=7.5, ha="center",
              va="center")  # fmt: skip
    place = left + 0.86
    for height, lighter in ((UPPER, 0.0), (LOWER, 0.45)):
        _arrow(axis, (left - 0.12, height + 0.26), (gnn - 0.02, height + 0.26))
        _arrow(axis, (gnn + 0.44, height + 0.26), (place - 0.04, height + 0.26))
        for number, colour in enumerate(FACTORS):
            x = place + 0.175 * number
            fill = plotting.lighter(colour, lighter)
            _box(axis, x, height + 0.08, 0.145, 0.36, fill, fill)
            axis.text(x + 0.073, height + 0.26, f"{number + 1}", fontsize=6.5, color="white",
                      ha="center", va="center", fontweight="bold")  # fmt: skip
    axis.text(place, UPPER + 0.5, "factors $r_j^{(0)}$", fontsize=7.5)
    axis.text(place, LOWER + 0.5, "factors $r_j^{(k)}$", fontsize=7.5)
    weights = numpy_generator("overview", "assignment").dirichlet(np.full(9, 0.6), 4)
    for row, colour in enumerate(FACTORS):
        for column, value in enumerate(weights[row]):
            shade = plotting.lighter(colour, 1 - min(1, 2.2 * value))
            axis.add_patch(Rectangle((place + 0.078 * column, middle + 0.07 - 0.07 * row), 0.07,
                                     0.062, facecolor=shade, edgecolor="#d8dde4",
                                     linewidth=0.3))  # fmt: skip
    axis.text(place, middle + 0.17, "region map $\\Pi$", fontsize=6.5)
    axis.text(left + 0.1, 0.2, "same index, same regions: what\n"
              "factor $j$ adds can be compared", fontsize=6.5, linespacing=1.3)  # fmt: skip


def _bars(axis: Axes, x: float, y: float, values, edge: str | None = None) -> None:
    for number, (value, colour) in enumerate(zip(values, FACTORS)):
        axis.add_patch(Rectangle((x + 0.13 * number, y), 0.1, 0.36 * value, facecolor=colour,
                                 edgecolor=edge or colour,
                                 linewidth=0.9 if edge else 0))  # fmt: skip
    axis.plot([x - 0.03, x + 0.53], [y, y], color="#8a8a8a", linewidth=0.6)


def _qualification(axis: Axes) -> None:
    left = PANELS[2][0]
    near, far = left + 0.14, left + 0.94
    axis.text(near - 0.02, 2.6, "relevance $\\pi_j$", fontsize=7)
    _bars(axis, near, 2.2, RELEVANCE)
    axis.text(far - 0.06, 2.6, "separates\nclasses", fontsize=6, color="#5d6776", va="center")
    for number, (place, name) in enumerate(((near, "e"), (far, "e′"))):
        axis.text(place - 0.02, 2.0, f"support $q_{{{name},j}}$", fontsize=7)
        _bars(axis, place, 1.6, SUPPORT[number], SITES[number])
    axis.text(left + 0.81, 1.45, "survives re-estimation at both sites", fontsize=6,
              color="#5d6776", ha="center")  # fmt: skip
    alpha = np.array(RELEVANCE) * np.sqrt(np.prod(SUPPORT, axis=0))
    _arrow(axis, (left + 0.81, 1.4), (left + 0.81, 1.22))
    axis.text(left + 0.81, 1.1, "$\\alpha_j=\\pi_j\\,\\sqrt{q_{e,j}\\,q_{e′,j}}$", fontsize=7.5,
              ha="center")  # fmt: skip
    _bars(axis, near, 0.62, alpha / alpha.max())
    axis.text(far - 0.12, 0.88, "weights $\\bar\\alpha_j$", fontsize=7)
    axis.text(far - 0.12, 0.68, "strength $g$", fontsize=7)
    axis.text(left + 0.1, 0.2, "for every pair of training sites\nand class", fontsize=6.5,
              linespacing=1.3)  # fmt: skip
    start = PANELS[1][0] + 1.56
    _arrow(axis, (start, UPPER + 0.26), (left + 0.1, 2.3), bend=-0.1)
    _arrow(axis, (start, LOWER + 0.26), (left + 0.1, 1.7), bend=0.2)


def _alignment(axis: Axes) -> None:
    left = PANELS[3][0]
    generator = numpy_generator("overview", "sites")
    centres = ((left + 0.45, 2.3), (left + 0.95, 1.85))
    for (x, y), colour, shape in zip(centres, SITES, "os"):
        axis.add_patch(Ellipse((x, y), 0.66, 0.52, facecolor=plotting.lighter(colour, 0.85),
                               edgecolor=colour, linewidth=0.9, zorder=2))  # fmt: skip
        points = generator.normal(size=(11, 2)) * (0.12, 0.09) + (x, y)
        axis.plot(*points.T, shape, color=colour, markersize=3, markeredgewidth=0, zorder=3)
    axis.text(left + 0.12, 2.62, "site $e$", fontsize=7, color=SITES[0])
    axis.text(left + 1.32, 1.5, "site $e$′", fontsize=7, color=SITES[1], ha="right")
    _arrow(axis, (left + 0.62, 2.12), (left + 0.72, 2.03))
    _arrow(axis, (left + 0.72, 2.03), (left + 0.62, 2.12))
    axis.text(left + 0.71, 1.27, "$L_{cls}+\\lambda\\,g\\,S_{\\varepsilon}$",
              fontsize=8.5, ha="center")  # fmt: skip
    axis.text(left + 0.71, 1.08, "full-scan features,\nweighted by $\\bar\\alpha_j$", fontsize=6.2,
              color="#5d6776", ha="center", va="top", linespacing=1.25)  # fmt: skip
    _arrow(axis, (PANELS[2][0] + 1.5, 0.8), (left + 0.3, 1.22), bend=0.25)
    _box(axis, left + 0.1, 0.2, 1.22, 0.44, "#ffffff", "#8a8a8a")
    axis.text(left + 0.71, 0.42, "unseen site:\nfull scan → prediction", fontsize=6.8,
              ha="center", va="center", linespacing=1.3)  # fmt: skip
