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
    cohort_title,
    in_paper_order,
    ordered,
    protocol_title,
    read_meta,
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
    metas = [read_meta(folder) for folder in runs]
    folder = Path(out).parent
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(template.parent),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template(template.name).render(
        cohorts=[cohort_title(datasets, name) for name in ordered(m["cohort"] for m in metas)],
        facts=_facts(metas, rows, datasets),
        headlines=headlines(true, datasets),
        verdict=verdict(permuted_rows(permuted)) if len(permuted) else "",
        tables=[read_json(path) for path in tables],
        figures=[read_picture(path) for path in figures],
        efficiency=efficiency_table(true, metas, datasets).as_dict(),
        versions=_versions(metas),
        config=Path(config).read_text(encoding="utf-8"),
        config_name=_link(config, folder),
        files=_files(tables, figures, summaries, config, folder),
        command=command,
        cell=f"{runs[0]}/predictions.csv",
    )


def _facts(metas: list[dict], rows: pd.DataFrame, datasets: dict) -> list[tuple[str, str]]:
    cohorts = rows.drop_duplicates("cohort")
    finished = max((meta.get("finished", "") for meta in metas), default="")
    seconds = sum(meta.get("seconds", 0) for meta in metas)
    seeds = len({meta["seed"] for meta in metas})
    variants = len({meta["variant"] for meta in metas})
    people = ", ".join(
        f"{plural(int(row['subjects']), 'subject')} of {plural(int(row['sites']), 'site')}"
        + (f" ({cohort_title(datasets, row['cohort'])})" if len(cohorts) > 1 else "")
        for _, row in cohorts.iterrows()
    )
    return [
        ("Data", people),
        ("Protocols", ", ".join(map(_protocol, ordered(m["protocol"] for m in metas)))),
        ("Training", f"{plural(len(metas), 'cell')}: {plural(variants, 'method or variant')}, "
                     f"{plural(seeds, 'seed')}"),
        ("Finished", _date(finished)),
        ("Training time", _duration(seconds)),
        ("Hardware", ", ".join(ordered(str(meta.get("device", "unknown")) for meta in metas))),
    ]  # fmt: skip


def _protocol(name: str) -> str:
    match = PERMUTED.fullmatch(name)
    return f"permuted labels {match[2]}" if match else protocol_title(name)


def _date(text: str) -> str:
    return datetime.fromisoformat(text).strftime("%Y-%m-%d %H:%M %Z").strip() if text else "unknown"


def _duration(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def _versions(metas: list[dict]) -> list[tuple[str, str]]:
    """Versions over all cells; several if cells were trained with different ones."""
    found: dict[str, list[str]] = {}
    for meta in metas:
        for name, version in meta.get("versions", {}).items():
            found.setdefault(name, []).append(str(version))
    return [(name, ", ".join(ordered(versions))) for name, versions in found.items()]


def efficiency_table(rows: pd.DataFrame, metas: list[dict], datasets: dict) -> Table:
    """Cost of training as measured by the training jobs themselves."""
    epochs = {
        (meta["cohort"], meta["protocol"], meta["variant"]): meta.get("settings", {}).get("epochs")
        for meta in metas
    }
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
