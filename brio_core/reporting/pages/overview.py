"""The overview page: what the template needs, gathered from explicit files."""

import base64
import hashlib
from collections.abc import Sequence
from datetime import datetime
from os.path import relpath
from pathlib import Path

import jinja2
import pandas as pd

from brio_core.cohorts.subsets import DRAWN
from brio_core.reporting import results
from brio_core.reporting.pages.answer import headlines, rankings, site_maps
from brio_core.reporting.pages.items import read_figures, read_tables, sections
from brio_core.reporting.table import duration, plural
from brio_core.reporting.tables.results import permuted_rows, verdict
from brio_core.reporting.tables.settings import read_yaml
from brio_core.system.files import ROOT

FOLDER = ROOT / "workflow" / "report"


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
    rows, site_rows = results.read_summaries(summaries), results.read_sites(sites)
    permuted = rows[rows["protocol"].str.fullmatch(results.PERMUTED.pattern)]
    trained = results.read_runs(runs)
    places = {
        f"{cohort}/{protocol}": (
            results.cohort_title(datasets, cohort),
            results.place_title(datasets, cohort, protocol),
        )
        for cohort, protocol in dict.fromkeys(zip(rows["cohort"], rows["protocol"]))
        if protocol in results.PROTOCOLS
    }
    shown, notes, empty = read_tables(tables, places)
    script = (FOLDER / "overview.js").read_text(encoding="utf-8")
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(FOLDER),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template("overview.html.j2").render(
        cohorts={
            name: results.cohort_title(datasets, name)
            for name in results.ordered(run["cohort"] for run in trained)
        },
        protocols={
            name: title
            for name, title in results.PROTOCOLS.items()
            if name in set(rows["protocol"])
        },
        facts=_facts(trained, _whole_cohorts(rows), datasets),
        overrides=changed_hyperparameters(read_yaml(config) or {}),
        answers=headlines(rows, site_rows, datasets),
        rankings=rankings(rows, datasets),
        site_maps=site_maps(rows, site_rows, datasets),
        verdict=verdict(permuted_rows(permuted)) if len(permuted) else "",
        sections=sections([*read_figures(figures, places), *shown]),
        notes=notes,
        empty=empty,
        versions=_versions(trained),
        config=Path(config).read_text(encoding="utf-8"),
        config_name=relpath(config, Path(out).parent),
        citation=_citation(),
        methods_text=Path(methods_text).read_text(encoding="utf-8") if methods_text else "",
        command=command,
        one_run=f"{trained[0]['folder']}/predictions.csv",
        style=(FOLDER / "overview.css").read_text(encoding="utf-8"),
        script=script,
        # The only script that a browser runs on this page.
        script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
    )


def _citation() -> str:
    """How CITATION.cff says to cite the software and the paper, as BibTeX."""
    cited = read_yaml(ROOT / "CITATION.cff")
    entries = {"software": cited, "paper": cited["references"][0]}
    text = []
    for kind, entry in entries.items():
        names = [
            (one.get("name") and f"{{{one['name']}}}")
            or f"{one['family-names']}, {one['given-names']}"
            for one in entry["authors"]
        ]
        lines = {"title": f"{{{entry['title']}}}", "author": " and ".join(names)}
        if "version" in entry:
            lines["version"] = str(entry["version"])
        body = ",\n".join(f"  {key} = {{{value}}}" for key, value in lines.items())
        text.append(f"@{'software' if kind == 'software' else 'misc'}{{brio-{kind},\n{body}\n}}")
    return "\n\n".join(text)


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
