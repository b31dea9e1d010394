"""The overview page: what the template needs, gathered from explicit files."""

import base64
import os
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import jinja2
import pandas as pd

from brio_core.errors import BrioError
from brio_core.files import read_json
from brio_core.reporting.headline import headlines
from brio_core.reporting.results import (
    PROTOCOLS,
    cohort_title,
    in_paper_order,
    ordered,
    protocol_title,
    read_cells,
    read_summaries,
)
from brio_core.reporting.results_table import PERMUTED, permuted_rows, verdict
from brio_core.reporting.tables import Cell, Row, Table, plural


@dataclass(frozen=True)
class Picture:
    """A figure as the page shows it; its words come from the PNG itself."""

    title: str
    caption: str
    alt: str
    section: str
    data: str
    width: int
    height: int


def read_picture(path: str | Path) -> Picture:
    """A PNG with its title, caption, alternative text and section."""
    from PIL import Image, UnidentifiedImageError

    try:
        with Image.open(path) as image:
            text, (width, height) = image.text, image.size
    except FileNotFoundError:
        raise BrioError(f"{path} does not exist; run the rule that makes it first") from None
    except (UnidentifiedImageError, AttributeError):
        raise BrioError(f"{path} is not a PNG; give the .png of a figure") from None
    title = text.get("Title", Path(path).stem)
    return Picture(
        title,
        text.get("Description", ""),
        text.get("Comment", title),
        text.get("Section", "results"),
        base64.b64encode(Path(path).read_bytes()).decode(),
        width,
        height,
    )


def render(
    template: Path,
    *,
    tables: Sequence[str],
    figures: Sequence[str],
    summaries: Sequence[str],
    runs: Sequence[str],
    config: str,
    datasets: dict,
    command: str,
    out: str,
) -> str:
    """The page as text. Everything that came from data is escaped by the template."""
    rows = read_summaries(summaries)
    is_permuted = rows["protocol"].str.fullmatch(PERMUTED.pattern)
    true, permuted = rows[~is_permuted], rows[is_permuted]
    cells = read_cells(runs)
    folder = Path(out).parent
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(template.parent),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template(template.name).render(
        cohorts=[
            cohort_title(datasets, name) for name in ordered(cell["cohort"] for cell in cells)
        ],
        facts=_facts(cells, rows, datasets),
        headlines=headlines(true, datasets),
        verdict=verdict(permuted_rows(permuted)) if len(permuted) else "",
        tables=[read_json(path) for path in tables],
        figures=[read_picture(path) for path in figures],
        efficiency=efficiency_table(true, cells, datasets).as_dict(),
        versions=_versions(cells),
        config=_text(config),
        config_name=_link(config, folder),
        files=_files(tables, figures, summaries, config, folder),
        command=command,
        one_cell=f"{cells[0]['folder']}/predictions.csv",
    )


def _text(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except FileNotFoundError:
        raise BrioError(f"{path} does not exist; run the rule that makes it first") from None


def _facts(cells: list[dict], rows: pd.DataFrame, datasets: dict) -> list[tuple[str, str]]:
    cohorts = rows.drop_duplicates("cohort")
    finished = max(cell["finished"] or "" for cell in cells)
    seconds = sum(cell["seconds"] or 0 for cell in cells)
    seeds = len({cell["seed"] for cell in cells})
    variants = len({cell["variant"] for cell in cells})
    people = ", ".join(
        f"{plural(int(row['subjects']), 'subject')} of {plural(int(row['sites']), 'site')}"
        + (f" ({cohort_title(datasets, row['cohort'])})" if len(cohorts) > 1 else "")
        for _, row in cohorts.iterrows()
    )
    return [
        ("Data", people),
        ("Protocols", _protocols(ordered((cell["protocol"] for cell in cells), tuple(PROTOCOLS)))),
        ("Training", f"{plural(len(cells), 'cell')}: {plural(variants, 'method')}, "
                     f"{plural(seeds, 'seed')}"),
        ("Finished", _date(finished)),
        ("Training time", _duration(seconds)),
        ("Hardware", ", ".join(ordered(str(cell["device"] or "unknown") for cell in cells))),
    ]  # fmt: skip


def _protocols(names: list[str]) -> str:
    true = [protocol_title(name) for name in names if not PERMUTED.fullmatch(name)]
    permuted = len(names) - len(true)
    return ", ".join(true + ([plural(permuted, "permutation") + " of labels"] if permuted else []))


def _date(text: str) -> str:
    return datetime.fromisoformat(text).strftime("%Y-%m-%d %H:%M %Z").strip() if text else "unknown"


def _duration(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def _versions(cells: list[dict]) -> list[tuple[str, str]]:
    """Versions over all cells; several if cells were trained with different ones."""
    found: dict[str, list[str]] = {}
    for cell in cells:
        for name, version in (cell["versions"] or {}).items():
            found.setdefault(name, []).append(str(version))
    return [(name, ", ".join(ordered(versions))) for name, versions in found.items()]


def efficiency_table(rows: pd.DataFrame, cells: list[dict], datasets: dict) -> Table:
    """Cost of training as measured by the training jobs themselves."""
    epochs = {(cell["cohort"], cell["protocol"], cell["variant"]): cell["epochs"] for cell in cells}
    lines, block = [], None
    unique = rows.drop_duplicates(["cohort", "protocol", "variant"])
    for key in ordered(zip(unique["cohort"], unique["protocol"])):
        part = unique[(unique["cohort"] == key[0]) & (unique["protocol"] == key[1])]
        if key != block:
            block = key
            name = f"{cohort_title(datasets, key[0])}, {protocol_title(key[1])}"
            lines.append(Row((Cell(name),), heading=True))
        for _, row in in_paper_order(part).iterrows():
            count = epochs.get((*key, row["variant"]))
            lines.append(
                Row(
                    (
                        Cell(row["label"]),
                        Cell(_number(row["parameters"], ",.0f")),
                        Cell("–" if count is None else f"{count}"),
                        Cell(_number(row["seconds_per_epoch"], ".3g")),
                        Cell(_number(row["peak_memory_gb"], ".2f")),
                        Cell(row["device"] or "–"),
                    )
                )
            )
    return Table(
        title="Cost of training",
        caption="",
        columns=("Method", "Parameters", "Epochs", "Seconds per epoch", "Memory (GB)", "Device"),
        rows=tuple(lines),
        notes=(
            "Seconds per epoch and fold, mean over folds and seeds; methods without epochs fit a "
            "path of penalties. Memory is the highest use: of the GPU, or of the whole process on "
            "a CPU.",
        ),
        section="efficiency",
        left=(0, 5),
    )


def _number(value: float, form: str) -> str:
    return "–" if pd.isna(value) else format(value, form)


def _link(path: str | Path, folder: Path) -> str:
    return os.path.relpath(path, folder)


def _files(
    tables: Sequence[str],
    figures: Sequence[str],
    summaries: Sequence[str],
    config: str,
    folder: Path,
) -> list[tuple[str, list[str]]]:
    """Links by kind, relative to the page."""

    def links(paths: Sequence[str], endings: Sequence[str]) -> list[str]:
        return [_link(Path(path).with_suffix(end), folder) for path in paths for end in endings]

    return [
        ("Tables", links(tables, (".csv", ".md", ".tex"))),
        ("Figures", links(figures, (".pdf", ".png"))),
        ("Summaries", links(summaries, (".csv",))),
        ("Configuration", [_link(config, folder)]),
    ]
