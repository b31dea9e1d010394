"""What figures share: colours that are seen, names that cover nothing, rows that stay readable."""

import re
from itertools import combinations

import numpy as np
import pytest

from brio_core.reporting import plotting
from brio_core.reporting.catalogue import Given, catalogue
from tests.reporting.standins import METHODS, ROOT, write_run
from tests.reporting.test_figures import draw


def test_training_stays_readable_with_all_methods_and_cohorts(tmp_path):
    """21 methods and five cohorts on one page, every method named once."""
    from brio_core.reporting.results import METHODS as EVERY

    for cohort in ("a", "b", "c", "d", "e"):
        for method in EVERY:
            write_run(tmp_path, method, cohort_name=cohort, method=(method.upper(), "Ours", 1.0))
    runs = sorted(tmp_path.glob("runs/*/loso/*/seed-0"))
    _, png = draw("training", tmp_path / "figure", runs=runs)
    with pytest.importorskip("PIL.Image").open(png) as picture:
        assert picture.width <= 1600 and picture.height <= 2000


def test_groups_have_their_own_colour_that_is_seen_on_white():
    from matplotlib.colors import to_rgb

    from brio_core.reporting.results import GROUPS

    colours = [plotting.group_colour(group) for group in (*GROUPS, "unheard of")]
    assert len(set(colours)) == len(colours)
    for colour in (*colours, *plotting.PART_COLOURS.values()):
        parts = [c / 12.92 if c <= 0.04 else ((c + 0.055) / 1.055) ** 2.4 for c in to_rgb(colour)]
        assert 1.05 / (np.dot(parts, (0.2126, 0.7152, 0.0722)) + 0.05) >= 3, colour


def test_names_of_points_cover_neither_each_other_nor_a_point():
    figure, axes = plotting.new_figure(4, 3)
    axis = axes.flat[0]
    places = [(0.5, 0.5), (0.52, 0.5), (0.5, 0.53), (0.97, 0.5)]
    axis.plot(*zip(*places), "o", markersize=4)
    axis.set(xlim=(0, 1), ylim=(0, 1))
    figure.draw_without_rendering()
    figure.set_layout_engine("none")
    plotting.label_points(axis, [(f"method {i}", one, "k") for i, one in enumerate(places)])
    boxes = [text.get_window_extent() for text in axis.texts]
    assert not [pair for pair in combinations(boxes, 2) if pair[0].overlaps(pair[1])]
    points = [axis.transData.transform(one) for one in places]
    assert not [1 for box in boxes for one in points if box.contains(*one)]
    assert all(box.x1 <= axis.get_window_extent().x1 for box in boxes)


def test_methods_without_epochs_have_an_axis_of_their_own(tmp_path):
    from brio_core.reporting.figures import training

    for variant in METHODS:
        write_run(tmp_path, variant)
    runs = [str(path) for path in sorted(tmp_path.glob("runs/demo/loso/*/seed-0"))]
    figure = training.training_figure(
        Given(catalogue("figures")["training"], {"runs": runs})
    ).figure
    curves, exact = figure.axes
    assert [text.get_text() for text in exact.get_yticklabels()] == ["Linear (correlation)"]
    assert curves.get_xlabel() == "Epoch" and "AUC" in exact.get_xlabel()


def test_picture_of_abide_has_the_numbers_of_its_table():
    """``make pages`` draws it again."""
    from brio_core.reporting.results import read_table
    from brio_core.reporting.table import with_interval

    svg = (ROOT / "docs/images/abide.svg").read_text(encoding="utf-8")
    texts = [text.strip() for text in re.findall(r"<text[^>]*>([^<]+)</text>", svg)]
    ends = [f"auc_{end}" for end in ("mean", "sites_low", "sites_high")]
    rows = read_table(ROOT / "docs/results/abide-cc200/main-loso.csv", (), ends)
    rows = rows.dropna(subset="auc_mean").sort_values("auc_mean", ascending=False, kind="stable")
    cells = [with_interval(*row) for row in rows[ends].to_numpy()]
    expected = [f"{cell.text} {cell.extra}" for cell in cells]
    assert [text for text in texts if text in expected] == expected
    assert [text for text in texts if text in set(rows["label"])] == rows["label"].tolist()
