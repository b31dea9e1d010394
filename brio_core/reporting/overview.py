"""The overview page: what the template needs, gathered from explicit files."""

import base64
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import jinja2
import pandas as pd

from brio_core.reporting.headline import headlines
from brio_core.reporting.results import (
    EXTERNAL,
    PERMUTED,
    PROTOCOLS,
    cohort_title,
    ordered,
    protocol_title,
    read_runs,
    read_summaries,
)
from brio_core.reporting.table import duration, plural
from brio_core.reporting.tables.permuted import permuted_rows, verdict
from brio_core.reporting.tables.settings import read_yaml
from brio_core.system.errors import BrioError
from brio_core.system.files import read_json

# In the order of the page; a section that is not listed comes before "paper".
SECTIONS = {
    "method": "The method in one picture",
    "cohort": "Cohorts and who is in them",
    "results": "Results",
    "comparison": "Noise or difference?",
    "permuted": "Check: permuted labels",
    "training": "Training",
    "diagnostics": "Diagnostics",
    "paper": "The paper against ours",
    "efficiency": "Cost",
    "settings": "Choices that the paper leaves open",
}


@dataclass(frozen=True)
class Section:
    """A part of the page."""

    name: str
    title: str
    tables: list[dict]
    figures: list["Picture"]


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
    cells = read_runs(runs)
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
        changes=_changes(config),
        headlines=headlines(true, datasets),
        verdict=verdict(permuted_rows(permuted)) if len(permuted) else "",
        sections=sections(
            [read_json(path) for path in tables], [read_picture(path) for path in figures]
        ),
        versions=_versions(cells),
        config=_text(config),
        config_name=_link(config, folder),
        files=_files(tables, figures, summaries, config, folder),
        command=command,
        one_cell=f"{cells[0]['folder']}/predictions.csv",
    )


def sections(tables: list[dict], figures: list[Picture]) -> list[Section]:
    """Tables and figures by the section that they name, in the order of the page."""
    found = ordered([*(t["section"] for t in tables), *(f.section for f in figures)])
    known = list(SECTIONS)
    last = known.index("paper")
    others = [name for name in found if name not in SECTIONS]
    order = [name for name in [*known[:last], *others, *known[last:]] if name in found]
    return [
        Section(
            re.sub(r"[^a-z0-9]+", "-", name.lower()),
            SECTIONS.get(name, name[:1].upper() + name[1:]),
            [t for t in tables if t["section"] == name],
            [f for f in figures if f.section == name],
        )
        for name in order
    ]


def _changes(config: str) -> list[str]:
    """Hyperparameters that this run changes, as the configuration says them."""
    settings = (read_yaml(config) or {}).get("config", {})
    return [
        f"{'all methods' if method == 'all' else method}: "
        + ", ".join(f"{key} = {value}" for key, value in values.items())
        for method, values in settings.get("overrides", {}).items()
    ]


def _text(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except FileNotFoundError:
        raise BrioError(f"{path} does not exist; run the rule that makes it first") from None


def _facts(cells: list[dict], rows: pd.DataFrame, datasets: dict) -> list[tuple[str, str]]:
    cohorts = rows.drop_duplicates("cohort")
    protocols = ordered((cell["protocol"] for cell in cells), tuple(PROTOCOLS))
    external = len({cell["variant"] for cell in cells if cell["device"] == EXTERNAL})
    cells = [cell for cell in cells if cell["device"] != EXTERNAL]
    finished = max(cell["finished"] or "" for cell in cells)
    seconds = sum(cell["seconds"] or 0 for cell in cells)
    seeds = len({cell["seed"] for cell in cells})
    methods = len({cell["method"] for cell in cells})
    others = len({cell["variant"] for cell in cells}) - methods
    people = ", ".join(
        f"{plural(int(row['subjects']), 'subject')} of {plural(int(row['sites']), 'site')}"
        + (f" ({cohort_title(datasets, row['cohort'])})" if len(cohorts) > 1 else "")
        for _, row in cohorts.iterrows()
    )
    return [
        ("Data", people),
        ("Protocols", _protocols(protocols)),
        ("Training", f"{plural(len(cells), 'cell')}: {plural(methods, 'method')}, "
                     + (f"{plural(others, 'variant')}, " if others > 0 else "")
                     + f"{plural(seeds, 'seed')}"
                     + (f"; {plural(external, 'method')} of external code" if external else "")),
        ("Finished", _date(finished)),
        ("Training time", duration(seconds)),
        ("Hardware", ", ".join(ordered(str(cell["device"] or "unknown") for cell in cells))),
    ]  # fmt: skip


def _protocols(names: list[str]) -> str:
    true = [protocol_title(name) for name in names if not PERMUTED.fullmatch(name)]
    permuted = len(names) - len(true)
    return ", ".join(true + ([plural(permuted, "permutation") + " of labels"] if permuted else []))


def _date(text: str) -> str:
    return datetime.fromisoformat(text).strftime("%Y-%m-%d %H:%M %Z").strip() if text else "unknown"


def _versions(cells: list[dict]) -> list[tuple[str, str]]:
    """Versions over all cells; several if cells were trained with different ones."""
    found: dict[str, list[str]] = {}
    for cell in cells:
        for name, version in (cell["versions"] or {}).items():
            found.setdefault(name, []).append(str(version))
    return [(name, ", ".join(ordered(versions))) for name, versions in found.items()]


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
