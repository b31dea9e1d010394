"""The look of all figures, and how they are saved: the same data give the same bytes."""

import io
from base64 import b64encode
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import matplotlib
import pandas as pd
from matplotlib.colors import to_rgb

from brio_core.reporting.catalogue import Given
from brio_core.reporting.results import GROUPS
from brio_core.reporting.vectors import SVG, simplified
from brio_core.system.files import atomic

matplotlib.use("Agg")
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.image import imread, imsave
from matplotlib.lines import Line2D
from matplotlib.ticker import PercentFormatter

PAGE, COLUMN = 7.0, 3.4
# Points of a text that stands within a panel.
SMALL = 6.5
INK, FAINT, GRID = "#222222", "#8a8a8a", "#e6e6e6"
# Colours that the colour-blind can tell apart, each with a contrast of 3 or more to white.
GROUP_COLOURS = dict(
    zip(GROUPS, ("#0072B2", "#7570B3", "#00875F", "#A6761D", "#D55E00", "#555555"))
)
OTHER_COLOUR = "#CC79A7"
# Ablations of BRIO, from Tol's muted scheme; what is left of the qualification gives the colour.
PART_COLOURS = {
    "RS": "#AA4499", "TR": "#882255", "SM": "#999933", "SF": "#3A9A8A", "QG": "#332288",
}  # fmt: skip
CLASS_COLOURS = ("#9ecae1", "#0072B2")
DASHES = (0, (4, 3))
# Where the name of a point may stand, in points to the right (None: to the left) and up.
LABEL_PLACES = ((6, 5), (6, -11), (7, -2), (None, 5), (None, -11), (None, -2), (0, 9), (0, -14))

matplotlib.rcParams.update(
    {
        "font.family": "DejaVu Sans",
        "font.size": 8,
        "axes.titlesize": 8.5,
        "axes.titleweight": "bold",
        "axes.titlelocation": "left",
        "axes.labelsize": 8,
        "axes.labelcolor": INK,
        "axes.edgecolor": FAINT,
        "axes.linewidth": 0.6,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.axisbelow": True,
        "text.color": INK,
        # Names from data may hold dollars, which are no formulas.
        "text.parse_math": False,
        "xtick.color": INK,
        "ytick.color": INK,
        "xtick.labelsize": 7.5,
        "ytick.labelsize": 7.5,
        "xtick.major.width": 0.6,
        "ytick.major.width": 0.6,
        "grid.color": GRID,
        "grid.linewidth": 0.6,
        "legend.frameon": False,
        "legend.fontsize": 7.5,
        "legend.handletextpad": 0.5,
        "figure.constrained_layout.use": True,
        "savefig.dpi": 220,
        "pdf.fonttype": 42,
        # Text stays text, and names within a file are the same every time.
        "svg.fonttype": "none",
        "svg.hashsalt": "brio",
    }
)


class Drawing(NamedTuple):
    """A figure, its alternative text, and what is added to its caption.

    The figure may also be the path, without ending, of a stored PDF and PNG. ``words`` has the
    texts of marks on the page, by the ``gid`` of what draws them.
    """

    figure: Figure | Path
    alt: str
    note: str = ""
    words: Mapping[str, Sequence[str]] = MappingProxyType({})


def group_colour(group: str) -> str:
    """The colour of a group of methods."""
    return GROUP_COLOURS.get(group, OTHER_COLOUR)


def variant_colour(group: str, hyperparameters: dict) -> str:
    """The colour of a variant: that of its group, but ablations have one of their own."""
    return PART_COLOURS.get(hyperparameters.get("without", ""), group_colour(group))


def lighter(colour: str, share: float) -> tuple[float, ...]:
    """A colour mixed with white."""
    return tuple(1 - (1 - part) * (1 - share) for part in to_rgb(colour))


def group_legend(figure: Figure, groups: Sequence[str], more: Sequence[Line2D] = ()) -> None:
    """Name the colours of the methods' groups below the figure, unless each method has its own.

    ``more`` are entries besides.
    """
    names = list(dict.fromkeys(groups))
    handles = [
        Line2D([], [], marker="o", linestyle="", color=group_colour(name), label=name)
        for name in (names if 1 < len(names) < len(groups) else ())
    ]
    if handles := [*handles, *more]:
        width = 2 if figure.get_figwidth() <= COLUMN else 4 if len(handles) < 5 else 3
        figure.legend(handles=handles, loc="outside lower center", ncols=width)


def legend_below(figure: Figure, axis: Axes) -> None:
    """Name what is drawn in ``axis`` below the figure, side by side."""
    handles, labels = axis.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels))


def rows_down(axis: Axes, names: Sequence[str]) -> None:
    """Name rows 0, 1, … of a panel that are read from top to bottom."""
    axis.set_yticks(range(len(names)), names)
    axis.set_ylim(len(names) - 0.4, -0.6)
    axis.tick_params(axis="y", length=0)
    axis.grid(axis="x")


def beside(axis: Axes, text: str, place: tuple, offset: tuple, **style: Any) -> None:
    """A small text at some points from a place in data."""
    style = {"fontsize": SMALL, "textcoords": "offset points"} | style
    axis.annotate(text, place, offset, **style)


def label_points(
    axis: Axes, labels: Sequence[tuple[str, tuple, str]], others: Sequence = ()
) -> None:
    """Name points (text, place, colour) where a name covers neither another nor a point.

    Call it when the limits of the axis are known; widths of texts are estimated.
    """
    scale = axis.figure.dpi / 72
    inside = axis.get_window_extent()
    points = [axis.transData.transform(place) for _, place, _ in labels]
    every = [*points, *(axis.transData.transform(place) for place in others)]
    taken = [(x - 4 * scale, y - 4 * scale, x + 4 * scale, y + 4 * scale) for x, y in every]
    for (text, place, colour), (x, y) in zip(labels, points):
        width, height = 0.6 * SMALL * len(text) * scale, SMALL * scale
        best = None
        for dx, dy in LABEL_PLACES:
            left = (
                x - width - 7 * scale if dx is None else x + dx * scale - (0 if dx else width / 2)
            )
            bottom = y + dy * scale
            box = (left, bottom, left + width, bottom + height)
            hidden = sum(
                min(box[2], b[2]) > max(box[0], b[0]) and min(box[3], b[3]) > max(box[1], b[1])
                for b in taken
            )
            # A layout that is not yet final may take a tenth of the width.
            right = max(inside.x1 - 0.1 * inside.width, x)
            hidden += 2 * (box[0] < inside.x0 or box[2] > right or bottom < inside.y0)
            hidden += 2 * (box[3] > inside.y1)
            if best is None or hidden < best[0]:
                best = (hidden, box, dx, dy)
        _, box, dx, dy = best
        taken.append(box)
        style = {"ha": "right" if dx is None else "left" if dx else "center", "color": colour}
        beside(axis, text, place, (-7 if dx is None else dx, dy), **style)


def equal_axes(axis: Axes, highest: float) -> None:
    """Both axes from zero to ``highest``, with a dashed line where both are equal."""
    axis.plot([0, highest], [0, highest], color=FAINT, linewidth=0.9, linestyle=DASHES)
    axis.set_xlim(0, highest)
    axis.set_ylim(0, highest)
    axis.grid()


def error_bars(rows: pd.DataFrame, score: str) -> list[pd.Series]:
    """How far the interval of a score reaches below and above its mean."""
    mean, low, high = (rows[f"{score}_{end}"] for end in ("mean", "sites_low", "sites_high"))
    return [(mean - low).clip(lower=0), (high - mean).clip(lower=0)]


def in_percent(axis: Axis) -> None:
    """Label shares as percent; tables print them so."""
    axis.set_major_formatter(PercentFormatter(1, symbol=""))


def new_figure(width: float, height: float, rows: int = 1, columns: int = 1, **options):
    """A figure in inches and its axes as a two-dimensional array."""
    return plt.subplots(rows, columns, figsize=(width, height), squeeze=False, **options)


def panel_grid(count: int, alone: float, row: float, bottom: float):
    """A figure and its ``count`` panels, in rows of at most three, which share the vertical axis.

    A single panel takes the share ``alone`` of the page's width. Rows are ``row`` inches high, and
    what stands below them ``bottom`` inches.
    """
    columns = 2 if count == 4 else min(count, 3)
    rows = -(-count // columns)
    width = PAGE if columns > 1 else PAGE * alone
    figure, axes = new_figure(width, bottom + row * rows, rows, columns, sharey=True)
    for axis in axes.flat[count:]:
        axis.set_axis_off()
    return figure, axes.flat[:count]


def save(drawing: Drawing, given: Given, prefix: str | Path) -> None:
    """Write ``prefix.pdf``, ``prefix.svg`` for the overview page, and ``prefix.png``.

    The PNG carries title, caption, alternative text and its section of the overview page, so that
    the page needs to know nothing about a figure. No file holds a date or a version.
    """
    text = {
        "Title": given.title,
        "Description": given.caption(drawing.note),
        "Comment": drawing.alt,
        "Section": given.output.page,
    }
    nothing = {"Creator": None, "Producer": None, "CreationDate": None}
    metadata = {
        "pdf": {"Title": given.title} | nothing,
        "svg": {"Creator": None, "Date": None, "Format": None, "Type": None},
        "png": text | {"Software": None},
    }
    for kind, words in metadata.items():
        # By way of memory, because on a full disk the writer of PDF fails for reasons of its own.
        drawn = io.BytesIO()
        if isinstance(drawing.figure, Figure):
            drawing.figure.savefig(drawn, format=kind, metadata=words)
            content = drawn.getvalue()
            content = simplified(content, drawing.words) if kind == "svg" else content
        elif kind == "png":
            pixels = imread(f"{drawing.figure}.png")
            imsave(drawn, pixels, metadata=words, dpi=matplotlib.rcParams["savefig.dpi"])
            content = drawn.getvalue()
        elif kind == "svg":
            content = _wrapped(Path(f"{drawing.figure}.png")).encode()
        else:
            content = Path(f"{drawing.figure}.{kind}").read_bytes()
        with atomic(f"{prefix}.{kind}") as temporary:
            temporary.write_bytes(content)
    plt.close("all")


def _wrapped(path: Path) -> str:
    """A stored PNG as SVG."""
    height, width = imread(path).shape[:2]
    size = f'width="{width}" height="{height}"'
    data = b64encode(path.read_bytes()).decode()
    return (
        f'<svg xmlns="{SVG}" {size} viewBox="0 0 {width} {height}">'
        f'<image {size} href="data:image/png;base64,{data}"/></svg>'
    )
