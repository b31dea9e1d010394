"""The overview page: what the template needs, gathered from explicit files."""

import re
from collections.abc import Sequence
from datetime import datetime
from os.path import relpath
from pathlib import Path
from typing import NamedTuple

import jinja2
import pandas as pd

from brio_core.cohorts.subsets import DRAWN
from brio_core.reporting import results
from brio_core.reporting.pages.headline import headlines
from brio_core.reporting.pages.pictures import Picture, read_picture
from brio_core.reporting.table import duration, plural
from brio_core.reporting.tables.permuted import permuted_rows, verdict
from brio_core.reporting.tables.settings import read_yaml
from brio_core.system.files import read_json
from brio_core.system.versions import ROOT

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


class Section(NamedTuple):
    """A part of the page."""

    name: str
    title: str
    tables: list[dict]
    figures: list[Picture]


def render(
    *,
    tables: Sequence[str],
    figures: Sequence[str],
    summaries: Sequence[str],
    sites: Sequence[str],
    runs: Sequence[str],
    config: str,
    datasets: dict,
    command: str,
    out: str,
    methods_text: str = "",
) -> str:
    """The page as text. Everything that came from data is escaped by the template."""
    rows = results.read_summaries(summaries)
    is_permuted = rows["protocol"].str.fullmatch(results.PERMUTED.pattern)
    permuted = rows[is_permuted]
    trained = results.read_runs(runs)
    folder = Path(out).parent

    def links(paths: Sequence[str], *endings: str) -> list[str]:
        return [relpath(Path(path).with_suffix(end), folder) for path in paths for end in endings]

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(ROOT / "workflow" / "report"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template("overview.html.j2").render(
        cohorts=[
            results.cohort_title(datasets, name)
            for name in results.ordered(run["cohort"] for run in trained)
        ],
        facts=_facts(trained, _whole_cohorts(rows), datasets),
        overrides=changed_hyperparameters(read_yaml(config) or {}),
        headlines=headlines(rows, results.read_sites(sites), datasets),
        verdict=verdict(permuted_rows(permuted)) if len(permuted) else "",
        sections=sections(list(map(read_json, tables)), list(map(read_picture, figures))),
        versions=_versions(trained),
        config=Path(config).read_text(encoding="utf-8"),
        config_name=relpath(config, folder),
        files={
            "Tables": links(tables, ".csv", ".md", ".tex"),
            "Figures": links(figures, ".pdf", ".png"),
            "Summaries": links(summaries, ".csv"),
            "Configuration": [relpath(config, folder)],
        },
        command=command,
        one_run=f"{trained[0]['folder']}/predictions.csv",
    )


def changed_hyperparameters(run: dict) -> dict[str, dict]:
    """The overrides of a resolved configuration that concern what was run, by method or 'all'."""
    used = [(one["method"], one["hyperparameters"]) for one in run.get("variants", {}).values()]
    changed = {
        name: {
            key: value
            for key, value in values.items()
            if any(key in own and name in ("all", method) for method, own in used)
        }
        for name, values in run.get("config", {}).get("overrides", {}).items()
    }
    return {name: values for name, values in changed.items() if values}


def sections(tables: list[dict], figures: list[Picture]) -> list[Section]:
    """Tables and figures by the section that they name, in the order of the page."""
    found = results.ordered([*(t["section"] for t in tables), *(f.section for f in figures)])
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


def _whole_cohorts(rows: pd.DataFrame) -> pd.DataFrame:
    """One row per cohort, of a protocol with all its subjects where there is one."""
    whole = rows["protocol"].isin(list(results.PROTOCOLS))
    return pd.concat([rows[whole], rows[~whole]]).drop_duplicates("cohort")


def _facts(runs: list[dict], cohorts: pd.DataFrame, datasets: dict) -> dict[str, str]:
    protocols = results.ordered((run["protocol"] for run in runs), tuple(results.PROTOCOLS))
    ours = [run for run in runs if run["device"] != results.EXTERNAL]
    counted = {key: len({run[key] for run in ours}) for key in ("method", "variant", "seed")}
    counted["variant"] -= counted["method"]
    external = len({run["variant"] for run in runs if run["device"] == results.EXTERNAL})
    people = [
        f"{plural(int(row['subjects']), 'subject')} of {plural(int(row['sites']), 'site')}"
        + (f" ({results.cohort_title(datasets, row['cohort'])})" if len(cohorts) > 1 else "")
        for _, row in cohorts.iterrows()
    ]
    finished = max(run["finished"] or "" for run in ours)
    date = datetime.fromisoformat(finished).strftime("%Y-%m-%d %H:%M %Z") if finished else "unknown"
    training = ", ".join(plural(number, key) for key, number in counted.items() if number > 0)
    if external:
        training += f"; {plural(external, 'method')} of external code"
    remarks = [
        f"{results.cohort_title(datasets, run['cohort'])}, {note}" if len(cohorts) > 1 else note
        for run in ours
        for note in run.get("notes", [])
    ]
    return {
        "Data": ", ".join(people),
        "Protocols": _protocols(protocols),
        "Training": f"{plural(len(ours), 'run')}: {training}",
        "Finished": date.strip(),
        "Training time": duration(sum(run["seconds"] or 0 for run in ours)),
        "Hardware": ", ".join(results.ordered(str(run["device"] or "unknown") for run in ours)),
        **({"Remarks": " ".join(results.ordered(remarks))} if remarks else {}),
    }


def _protocols(names: list[str]) -> str:
    permuted = [name for name in names if results.PERMUTED.fullmatch(name)]
    drawn = [name for name in names if DRAWN.fullmatch(name)]
    true = [results.protocol_title(one) for one in names if one not in {*permuted, *drawn}]
    for some, one in ((permuted, "permutation of labels"), (drawn, "draw of training subjects")):
        first, rest = one.split(" ", 1)
        true += [f"{plural(len(some), first)} {rest}"] if some else []
    return ", ".join(true)


def _versions(runs: list[dict]) -> dict[str, str]:
    """Versions over all runs; several if runs were trained with different ones."""
    found: dict[str, list[str]] = {}
    for run in runs:
        for name, version in (run["versions"] or {}).items():
            found.setdefault(name, []).append(str(version))
    return {name: ", ".join(results.ordered(versions)) for name, versions in found.items()}
