"""Pages of prose with numbers, tables and figures."""

from functools import partial
from pathlib import Path

import pandas as pd
import pytest
from PIL import Image, PngImagePlugin

from brio_core.reporting.pages.numbers import Sources
from brio_core.reporting.pages.template import Template
from brio_core.reporting.table import Cell, Row, Table
from brio_core.reporting.writing import write_table
from brio_core.system.errors import BrioError
from brio_core.system.files import read_json, write_json

AUC, FIGURE = 'AUC {{ value("main-loso", "brio", "auc") }}', '{{ figure("main-loso") }}'
P = '{{ value("comparison", "gcn", "p", score="acc") }}'


def picture(path: Path) -> Path:
    words = PngImagePlugin.PngInfo()
    for key, text in (("Description", "Who_is where."), ("Comment", "Dots [1].")):
        words.add_text(key, text)
    Image.new("RGB", (2, 2)).save(path, pnginfo=words)
    return path


@pytest.fixture
def sources(tmp_path) -> Sources:
    """Three tables and a figure, as the pipeline writes them."""
    identity = {"cohort": "demo", "protocol": "loso"}
    scores = [
        ("gcn", "GCN", "General GNNs", 0.6004, 0.55, 0.65, 1234, "run"),
        ("brio", "BRIO", "Ours", 0.7049, 0.68, 0.73, 98765, "run"),
        ("brio-wo-rs", "BRIO w/o RS", "Ours", 0.7051, 0.66, 0.72, 5, "run"),
        ("linear-tangent", "Linear (tangent)", "Linear", 0.71234, 0.69, 0.74, 3, "run"),
        ("core", "CORE", "Ours", None, None, None, None, "not run"),
    ]
    names = ("variant", "label", "group", "auc_mean", "auc_sites_low", "auc_sites_high",
             "parameters", "status")  # fmt: skip
    rows = pd.DataFrame([{**identity, **dict(zip(names, row))} for row in scores])
    table = Table("Unseen sites", "All.", ("Method", "AUC"), (
        Row((Cell("Ours"),), heading=True), Row((Cell("BRIO"), Cell("70.5", "± 1.0", True))),
    ))  # fmt: skip
    write_table(tmp_path / "main-loso", rows.astype({"parameters": "Int64"}), table)
    tests = pd.DataFrame([
        {"variant": "gcn", "score": "auc", "difference": -0.104, "difference_low": -0.15,
         "difference_high": 0.01, "p": 0.00012, "change_mean": -0.0002,
         "auc_difference": 0.012, "crossed_difference": 0.0466, "crossed_difference_se": 0.0169},
        {"variant": "gcn", "score": "acc", "difference": 0.02, "difference_low": 0.01,
         "difference_high": 0.03, "p": 0.04, "change_mean": 0.01,
         "crossed_difference": 0.0, "crossed_difference_se": 0.01},
    ])  # fmt: skip
    write_table(tmp_path / "comparison", tests, table)
    paper = pd.DataFrame([
        {"variant": "brio", "method": "BRIO", "unit": "%", "quantity": "auc_mean", "paper": 70.94,
         "ours": 68.7, "difference": -2.24, "low": 64.0, "high": 73.2, "contains": "yes"},
        {"variant": "brio", "method": "BRIO", "unit": "s", "quantity": "seconds_per_epoch",
         "paper": 1.25, "ours": 0.0512, "difference": -1.1988, "contains": ""},
    ])  # fmt: skip
    folded = Table("Paper_and ours", "", ("Method",), (), folded=True)
    write_table(tmp_path / "paper_vs_ours", paper, folded)
    figure = picture(tmp_path / "main-loso.png")
    return Sources(sorted(tmp_path.glob("*.csv")), [figure])


@pytest.fixture
def filled(tmp_path, sources):
    """The text that a template becomes."""

    def fill(text: str, waiting: tuple[str, ...] = ()) -> str:
        path = tmp_path / "page.md"
        path.write_text(text)
        names = (sources.tables, sources.figures, waiting)
        template = Template(path, "config/documents/page.md", *names)
        return template.fill(lambda call: sources.text(call, "page"))

    return fill


@pytest.mark.parametrize(
    ("call", "text"),
    [
        ('value("main-loso", "brio", "auc")', "70.5"),
        ('value("main-loso", "brio", "auc_mean")', "70.5"),
        ('value("main-loso", "auc", variant="brio")', "70.5"),
        ('value("main-loso", "brio", "parameters")', "98,765"),
        ('value("main-loso", "linear-tangent", "label")', "Linear (tangent)"),
        ('value("main-loso", "core", "auc")', "not run"),
        ('value("comparison", "gcn", "difference", score="auc")', "−10.4"),
        ('value("comparison", "gcn", "difference", score="acc")', "+2.0"),
        ('value("comparison", "gcn", "change_mean", score="auc")', "0.0"),
        ('value("comparison", "gcn", "crossed_difference", score="auc")', "+4.7"),
        ('value("comparison", "gcn", "crossed_difference_se", score="auc")', "1.7"),
        ('value("comparison", "gcn", "auc_difference", score="auc")', "+1.2"),
        ('value("comparison", "gcn", "p", score="auc")', "&lt; 0.001"),
        ('value("comparison", "gcn", "p", score="acc")', "0.040"),
        ('value("paper_vs_ours", "brio", "paper", quantity="auc_mean")', "70.9"),
        ('value("paper_vs_ours", "brio", "difference", quantity="auc_mean")', "−2.2"),
        ('value("paper_vs_ours", "brio", "ours", quantity="seconds_per_epoch")', "0.0512"),
        ('value("paper_vs_ours", "brio", "contains", quantity="seconds_per_epoch")', "–"),
        ('interval("main-loso", "brio", "auc_sites")', "[68.0,\u00a073.0]"),
        ('interval("comparison", "gcn", "difference", score="auc")', "[−15.0,\u00a01.0]"),
        ('interval("paper_vs_ours", "brio", "ours", quantity="auc_mean")', "[64.0,\u00a073.2]"),
        ('highest("main-loso", "auc")', "Linear (tangent) (71.2)"),
        ('highest("main-loso", "auc", group="General GNNs")', "GCN (60.0)"),
        ('highest("main-loso", "auc", status="not run")', "not run"),
        ('value("main-loso", "brio", "auc [auc_sites]")', "70.5 [68.0,\u00a073.0]"),
        ('value("main-loso", "core", "auc [auc_sites]")', "not run"),
        ('value("paper_vs_ours", "brio", "ours [ours]", unit="s")', "0.0512"),
        (
            'highest("main-loso", "auc [auc_sites]", group="Ours")',
            "BRIO w/o RS (70.5 [66.0,\u00a072.0])",
        ),
        ('value("presets", "gcn", "auc")', "not run"),
        ('rows("presets", "label")', "*presets: not run.*"),
        ('figure("training")', "*training: not run.*"),
        ('count("main-loso")', "5"),
        ('count("main-loso", group="Ours")', "3"),
        ('count("main-loso", group="External")', "0"),
    ],
)
def test_numbers(filled, call, text):
    waiting = ("presets", "training")
    assert filled(f"It is {{{{ {call} }}}}.\n", waiting) == f"It is {text}.\n"


def test_a_call_may_be_broken_into_lines(filled):
    call = 'value("main-loso",\n  "brio", "auc")'
    assert filled(f'{{{{ {call} }}}} and {{{{count("main-loso")}}}}') == "70.5 and 5"


def test_tables_and_figures(filled):
    text = filled('Before.\n\n{{ table("main-loso") }}\n\n{{ figure("main-loso") }}\n\nAfter.\n')
    assert text == (
        "Before.\n\n**Unseen sites**\n\nAll.\n\n| Method | AUC |\n| --- | ---: |\n| *Ours* |  |\n"
        "| BRIO | **70.5** ± 1.0 |\n\n[main-loso.csv](page/main-loso.csv)\n\n"
        "![Dots \\[1\\].](page/main-loso.png)\n\n*Who\\_is where.*\n\nAfter.\n"
    )
    text = filled('{{ table("paper_vs_ours") }}')
    assert text.startswith("<details><summary>Paper\\_and ours</summary>\n\n**Paper")
    assert text.endswith("\n\n</details>")


def test_some_columns_as_a_table(filled):
    columns = '"label", "auc", "parameters:How large?"'
    text = filled(f'{{{{ rows("main-loso", {columns}, cohort="demo", group="Ours") }}}}')
    assert text.splitlines() == [
        "| Label | Auc | How large? |",
        "| --- | ---: | ---: |",
        "| BRIO | 70.5 | 98,765 |",
        "| BRIO w/o RS | 70.5 | 5 |",
        "| CORE | not run | not run |",
    ]


def test_rows_are_sorted_and_have_intervals(filled):
    columns = '"label", "auc [auc_sites]:AUC"'
    text = filled(f'{{{{ rows("main-loso", {columns}, group="Ours", sorted_by="parameters") }}}}')
    assert text.splitlines()[2:] == [
        "| BRIO w/o RS | 70.5 [66.0,\u00a072.0] |",
        "| BRIO | 70.5 [68.0,\u00a073.0] |",
        "| CORE | not run |",
    ]


@pytest.mark.parametrize(
    ("call", "problem"),
    [
        ('value("main-loso")', "must be value(TABLE, [ROW,] COLUMN)"),
        ('table("main-loso", group="Ours")', "must be table(TABLE)"),
        ('table("main-los")', "names the table 'main-los', which this configuration does not "
         "make; did you mean 'main-loso'?"),
        ('value("presets", "gcn", "auc")', "names the table 'presets', which"),
        ('figure("training")', "names the figure 'training', which"),
        ('value("main-loso", "brioo", "auc")', "finds no row with variant=brioo; did you mean"),
        ('value("main-loso", "brio", "auc_men")', "unknown column 'auc_men'; did you mean"),
        ('value("main-loso", "brio", "auc", grup="Ours")', "unknown column 'grup'; did you mean"),
        ('value("comparison", "gcn", "p")', 'means 2 rows; choose one, for example by score="auc"'),
        ('interval("main-loso", "brio", "auc")', "names an unknown column 'auc_low'"),
    ],
)  # fmt: skip
def test_mistakes_name_file_line_and_call(filled, call, problem):
    with pytest.raises(BrioError) as error:
        filled(f"First.\n\n{{{{ {call} }}}}\n")
    start = f"config/documents/page.md, line 3: {call.replace(chr(34), chr(39))} "
    assert str(error.value).startswith(start) and problem in str(error.value)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('{{ vlaue("main-loso") }}', "'vlaue' is unknown; did you mean 'value'?"),
        ("{{ main }}", "'main' is unknown; known: table, figure,"),
        ("{{ }}", "Jinja2 cannot read it (Expected an expression"),
        ('{{ value("main-loso }}', "Jinja2 cannot read it"),
        ('{{ value("main-loso", "brio", "auc")', "Jinja2 cannot read it"),
        ('value("main-loso", "brio", "auc") }}', "a pair of braces has no partner"),
        ('{% if count("main-loso") == "5" %}', "Jinja2 cannot read it (Unexpected end of template"),
        ("{% endif %}", "Jinja2 cannot read it (Encountered unknown tag 'endif'"),
        ('{{ count("main-loso") + 1 }}', "can only concatenate str"),
        ('{{ count("main-loso").__class__.__mro__ }}', "access to attribute '__class__'"),
        ('{{ count("main-loso") | nothing }}', "Jinja2 cannot read it (No filter named 'nothing'"),
    ],
)  # fmt: skip
def test_what_is_no_template_is_named_with_its_line(filled, text, problem):
    with pytest.raises(BrioError) as error:
        filled(f"First.\n\n{text}")
    assert str(error.value).startswith("config/documents/page.md, line 3: ")
    assert problem in str(error.value) and "\n" not in str(error.value)


def test_pages_of_a_call_share_a_folder(tmp_path, sources, run_script):
    page, second, out = tmp_path / "page.md", tmp_path / "second.md", tmp_path / "documents"
    page.write_text(f"{AUC}\n\n{FIGURE}\n\n{P}\n")
    second.write_text(f'{FIGURE}\n\n{{{{ table("main-loso") }}}}\n')
    words = ("--templates", page, second, "--tables", *sources.tables.values(), "--figures",
             sources.figures["main-loso"], "--command", "snakemake x",
             "--out-dir", out)  # fmt: skip
    result = run_script("document", *words)
    assert result.returncode == 0, result.stderr
    text, other = ((out / name).read_text() for name in ("page.md", "second.md"))
    assert text.startswith("<!-- Made by `snakemake x` from ") and "\n\nAUC 70.5\n" in text
    assert "(page/main-loso.png)" in text and "(page/main-loso.png)" in other
    before = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    # Only what a page uses, and JSON of the tables that one prints.
    files = ["comparison.csv", *(f"main-loso.{end}" for end in ("csv", "json", "png"))]
    names = {"page.md", "second.md", "page/pages.json", *(f"page/{name}" for name in files)}
    assert set(before) == {out / name for name in names}
    for name in files:
        assert before[out / "page" / name] == (tmp_path / name).read_bytes()
    assert run_script("document", *words).returncode == 0
    assert {path: path.read_bytes() for path in out.rglob("*") if path.is_file()} == before


def test_pages_are_filled_in_again_from_what_lies_beside_them(tmp_path, sources, run_script):
    template, other, out = tmp_path / "page.md", tmp_path / "other.md", tmp_path / "documents"
    other.write_text(f"{AUC}\n")
    template.write_text(f'{{{{ table("main-loso") }}}}\n\n{FIGURE}\n\n{P}\n')
    tables, figures = sources.tables.values(), sources.figures.values()
    run_script("document", "--templates", template, other, "--tables", *tables, "--figures",
               *figures, "--command", "x", "--out-dir", out)  # fmt: skip
    for file in (*tables, *figures):
        file.unlink()
    folder, page = out / "page", out / "page.md"
    again = partial(run_script, "document", "--again", folder)
    first, second = page.read_text(), (out / "other.md").read_text()
    assert "[main-loso.csv](page/main-loso.csv)" in first
    page.write_text("edited by hand")
    (out / "other.md").unlink()
    assert again().returncode == 0
    assert page.read_text() == first and (out / "other.md").read_text() == second
    template.write_text(f"p = {P}\n")
    assert again().returncode == 0
    assert page.read_text().endswith("\n\np = 0.040\n")
    template.write_text("Changed.\n")
    other.write_text('{{ table("presets") }}\n')
    assert again().returncode == 1 and "Changed." not in page.read_text()
    record = read_json(folder / "pages.json")
    write_json(folder / "pages.json", record | {"waiting": ["presets"]})
    assert again().returncode == 0
    assert (out / "other.md").read_text().endswith("\n\n*presets: not run.*\n")
    (folder / "pages.json").unlink()
    assert again().stderr.startswith(f"error: {folder / 'pages.json'} does not exist; ")


def test_a_mistake_leaves_nothing_half_written(tmp_path, sources, run_script):
    good, bad, out = tmp_path / "a.md", tmp_path / "b.md", tmp_path / "documents"
    good.write_text(f"{FIGURE}\n")
    bad.write_text('{{ value("main-loso", "brio", "auk") }}\n')
    result = run_script(
        "document", "--templates", good, bad, "--tables", *sources.tables.values(), "--figures",
        *sources.figures.values(), "--out-dir", out,
    )  # fmt: skip
    assert result.returncode == 1 and not out.exists()
    assert result.stderr.startswith(f"error: {bad}, line 1: value('main-loso', 'brio', 'auk') ")
