"""Draw the methods of a stored table of results, ranked by AUC with their intervals, as SVG."""

import argparse
from pathlib import Path

from brio_core.system import cli


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "table", metavar="CSV", help="such as docs/results/abide-cc200/main-loso.csv"
    )
    parser.add_argument("--out", type=Path, required=True, help="SVG")
    arguments = parser.parse_args()

    from brio_core.reporting.results import read_table
    from brio_core.system.files import write_text

    numbers = ("auc_mean", "auc_sites_low", "auc_sites_high")
    rows = read_table(arguments.table, ("label", "group"), numbers)
    write_text(arguments.out, drawn(rows.dropna(subset="auc_mean")))


def drawn(rows) -> str:
    """The picture: one line per method, the highest on top."""
    import io

    from brio_core.reporting import plotting
    from brio_core.reporting.table import auc_text
    from brio_core.reporting.vectors import simplified

    rows = rows.sort_values("auc_mean", ascending=False, kind="stable")
    figure, axes = plotting.new_figure(0.8 * plotting.PAGE, 0.6 + 0.18 * len(rows))
    axis = axes.flat[0]
    axis.axvline(0.5, color=plotting.FAINT, linewidth=0.9, linestyle=plotting.DASHES)
    for y, row in enumerate(rows.to_dict("records")):
        mean, *ends = (row[f"auc_{end}"] for end in ("mean", "sites_low", "sites_high"))
        colour = plotting.group_colour(row["group"])
        axis.plot(ends, [y, y], color=colour, linewidth=1.8, solid_capstyle="butt")
        axis.plot(mean, y, "D", color=colour, markersize=5, markeredgecolor="white")
        right = {"xycoords": ("axes fraction", "data"), "fontsize": 7, "va": "center"}
        plotting.beside(axis, auc_text(row), (1.0, y), (6, 0), **right)
    plotting.rows_down(axis, rows["label"].tolist())
    axis.set_xlabel("AUC on unseen sites (%), mean over sites and 95 % interval")
    plotting.in_percent(axis.xaxis)
    plotting.group_legend(figure, rows["group"].tolist())
    drawing = io.BytesIO()
    nothing = dict.fromkeys(("Creator", "Date", "Format", "Type"))
    figure.savefig(drawing, format="svg", metadata=nothing)
    return simplified(drawing.getvalue(), {}).decode()


if __name__ == "__main__":
    cli.run(main)
