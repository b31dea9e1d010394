"""Candidate subjects: the rows of a source's table, checked and brought to common columns.

Scans without a row are candidates too, and so are rows without an id: both are told and left out.
"""

import math
import re

from brio_core.cohorts.inclusion import NO_ROW, NOT_SELECTED, Rules, not_accepted
from brio_core.cohorts.readers.reader import Reader
from brio_core.cohorts.scan import RUN_SEPARATOR, Unusable
from brio_core.cohorts.tables import (
    MISSING,
    bare,
    did_you_mean,
    letters,
    plain,
    read_own_table,
    refuse_formula,
)
from brio_core.system.errors import BrioError

_REQUIRED = ("subject", "site", "label")
_OPTIONAL = ("age", "sex", "mean_fd", "tr", "group")
COLUMNS = (*_REQUIRED, *_OPTIONAL, "source", "excluded")
# What stands for an id where a subject has none; missing cells are there already.
_PLACEHOLDERS = {MISSING, "no_filename", "no_file", "none", "missing", "unknown", "-", "--", "?"}


def find_candidates(reader: Reader) -> list[dict]:
    """One mapping with the keys ``COLUMNS`` per candidate, in the order of the source's table.

    Scans without a row follow.
    """
    table = reader.table()
    columns = _checked_columns(reader, table)
    rules = Rules.of(reader.dataset)
    rows = table.to_dict(orient="records")
    named = [row for row in rows if _has_id(row[columns["subject"]])]
    chosen = [row[columns["label"]] for row in named if not not_accepted(row, rules.select)]
    labels = _checked_labels(reader, chosen, columns["label"])
    _check_sites(reader, {row[columns["site"]] for row in rows}, columns["site"])
    for row in rows:
        for role, column in columns.items():
            refuse_formula(row[column], f"{reader.table_path}: the {role} of a subject")
    candidates = [
        _candidate(reader, row, columns, labels, rules)
        if _has_id(row[columns["subject"]])
        else _without_id(row, columns, labels, number)
        for number, row in enumerate(rows, 1)
    ]
    with_file = [candidate for candidate in candidates if candidate["source"] != MISSING]
    if with_file and all("missing file" in candidate["excluded"] for candidate in with_file):
        example = reader.data_dir / with_file[0]["source"].split(RUN_SEPARATOR)[0]
        beside = reader.beside(example)
        raise reader.missing(
            f"none of the scans that {reader.table_path} lists is there (the first would be "
            f"{example}{f', but {beside} lies there: correct source.pattern' if beside else ''})"
        )
    reader.check()
    return [*candidates, *_without_row(reader, candidates)]


def _has_id(subject: str) -> bool:
    return subject.lower() not in _PLACEHOLDERS


def _without_id(row: dict, columns: dict, labels: dict, number: int) -> dict:
    """A row whose id is a placeholder: no subject, and not the same as other such rows."""
    known = {role: row[columns[role]] for role in _OPTIONAL if role in columns}
    return (
        dict.fromkeys(COLUMNS, MISSING)
        | known
        | {
            "subject": f"row {number}",
            "site": row[columns["site"]],
            "label": labels.get(row[columns["label"]], MISSING),
            "excluded": f"no id in the table: {columns['subject']} is {row[columns['subject']]}",
        }
    )


def _without_row(reader: Reader, candidates: list[dict]) -> list[dict]:
    """Scans that lie in the folder, but which no row of the table names."""
    listed = {bare(candidate["subject"]) for candidate in candidates}
    used = {name for one in candidates for name in one["source"].split(RUN_SEPARATOR)}
    found = {}
    for subject, path in sorted(reader.scan_files()):
        name = path.relative_to(reader.data_dir).as_posix()
        subject = plain(subject)
        if name not in used and bare(subject) not in listed:
            refuse_formula(subject, f"the beginning of {path}")
            reason = f"{NO_ROW}: {plain(name)} is not in {reader.table_path.name}"
            own = {"subject": subject, "source": plain(name), "excluded": reason}
            found.setdefault(subject, dict.fromkeys(COLUMNS, MISSING) | own)
    return list(found.values())


def read_candidates(path) -> list[dict]:
    """The rows of candidates.tsv."""
    table = read_own_table(path, COLUMNS)
    if table.empty:
        raise BrioError(f"{path} lists no subjects; delete it and run the workflow again")
    candidates = table.to_dict(orient="records")
    for candidate in candidates:
        if candidate["excluded"] == MISSING:
            candidate["excluded"] = ""
    return candidates


def _checked_columns(reader: Reader, table) -> dict[str, str]:
    path, cohort = reader.table_path, reader.dataset["cohort"]
    columns = {role: name for role, name in reader.dataset["columns"].items() if name}
    absent = {role: name for role, name in columns.items() if name not in table.columns}
    if absent:
        named = " and no column ".join(f"{name!r} (the {role})" for role, name in absent.items())
        role, name = next(iter(absent.items()))
        hint = did_you_mean(name, table.columns)
        raise BrioError(
            f"{path} has no column {named}; {hint + ' Correct' if hint else 'add it, or name'} the "
            f"right one under columns.{role} in the dataset file of cohort {cohort}"
        )
    for rule in ("select", "quality"):
        for column in reader.dataset.get("inclusion", {}).get(rule, {}):
            if column not in table.columns:
                hint = did_you_mean(column, table.columns)
                raise BrioError(
                    f"{path} has no column {column!r}; {hint + ' ' if hint else ''}correct "
                    f"inclusion.{rule} in the dataset file of cohort {cohort}"
                )
    for role in _REQUIRED:
        if role not in columns:
            raise BrioError(
                f"the dataset file of cohort {cohort} does not say which column of "
                f"{path} is the {role}; add columns.{role}"
            )
    subjects = table[columns["subject"]]
    subjects = subjects[subjects.map(_has_id).astype(bool)]
    if subjects.empty:
        raise BrioError(f"{path} lists no subjects; fill it or choose another file")
    if subjects.duplicated().any():
        twice = subjects[subjects.duplicated()].iloc[0]
        raise BrioError(
            f"{path} lists subject {twice} more than once in column "
            f"{columns['subject']!r}; keep one row per subject"
        )
    return columns


def _checked_labels(reader: Reader, values: list[str], column: str) -> dict[str, str]:
    """Which label text is class 1 and which class 0; anything but these two is an error."""
    path = reader.table_path
    classes = reader.dataset["label"]
    labels = {str(classes["positive"]): "1", str(classes["negative"]): "0"}
    wanted = " and ".join(repr(value) for value in labels)
    present = sorted(set(values) - {MISSING})
    others = [value for value in present if value not in labels]
    if others:
        raise BrioError(
            f"column {column!r} of {path} is not two-valued: besides {wanted} it holds "
            f"{', '.join(map(repr, others))}; choose among the rows with inclusion.select, or "
            "correct label.positive and label.negative"
        )
    absent = [value for value in labels if value not in present]
    if absent:
        raise BrioError(
            f"column {column!r} of {path} never holds {' or '.join(map(repr, absent))}; "
            "both classes are needed, so correct label.positive and label.negative or the table"
        )
    return labels


def _check_sites(reader: Reader, present: set[str], column: str) -> None:
    """Refuse a site that is called like a row of ours, or that ``tr`` spells differently.

    Other sites may stand there: a table can be a part of a study whose dataset file names them all.
    """
    if "all" in present:
        raise BrioError(
            f"{reader.table_path} has a site 'all' in column {column!r}, which stands for all "
            "sites in our tables; rename it"
        )
    spelt: dict[str, str] = {}
    for site in sorted(present):
        other = spelt.setdefault(re.sub(r"[\s_-]", "", site).casefold(), site)
        if other != site:
            raise BrioError(
                f"{reader.table_path} has sites {other!r} and {site!r} in column {column!r}; write "
                "the same site in one way, or give different sites different names"
            )
    tr = reader.dataset.get("tr")
    if not isinstance(tr, dict):
        return
    without = {letters(site): site for site in present if site not in tr}
    for site in tr:
        meant = without.get(letters(site))
        if site not in present and meant is not None:
            raise BrioError(
                f"tr in the dataset file of cohort {reader.dataset['cohort']} names {site!r}, "
                f"which is {meant!r} in column {column!r} of {reader.table_path}; write it as there"
            )


def _candidate(reader: Reader, row: dict, columns: dict, labels: dict, rules: Rules) -> dict:
    candidate = {
        role: row[columns[role]] if role in columns else MISSING
        for role in (*_REQUIRED, *_OPTIONAL)
    }
    candidate["label"] = labels.get(candidate["label"], MISSING)
    candidate["source"], candidate["excluded"] = MISSING, ""
    if refused := not_accepted(row, rules.select):
        candidate["excluded"] = f"{NOT_SELECTED}: {refused}"
        return candidate
    reasons = []
    if refused := not_accepted(row, rules.quality):
        reasons.append(f"failed quality control: {refused}")
    try:
        paths = reader.scan_paths(row)
        names = [path.relative_to(reader.data_dir).as_posix() for path in paths]
        candidate["source"] = RUN_SEPARATOR.join(names)
        for path, name in zip(paths, names):
            if not path.exists():
                beside = reader.beside(path)
                raise Unusable(f"missing file: {name}{f' ({beside} lies there)' if beside else ''}")
        # One empty run of several is left out when the scan is read.
        if not any(path.stat().st_size for path in paths):
            raise Unusable(f"empty file: {names[0]}")
        candidate["tr"] = _repetition_time(reader, paths, candidate)
        if candidate["mean_fd"] == MISSING:
            found = [reader.mean_fd(path) for path in paths]
            if None not in found:
                candidate["mean_fd"] = f"{sum(found) / len(found):.6g}"
        _check_motion(candidate["mean_fd"], rules.max_mean_fd)
    except Unusable as unusable:
        reasons.append(str(unusable))
    # Last, because the files of a scan may tell what the table does not.
    missing = [
        f"missing phenotype: no {columns.get(role, role)}"
        for role in dict.fromkeys(("site", "label", *rules.required))
        if candidate[role] == MISSING
    ]
    candidate["excluded"] = "; ".join([*missing, *reasons])
    return candidate


def _check_motion(mean_fd: str, most: float | None) -> None:
    if most is None:
        return
    try:
        value = float(mean_fd)
    except ValueError:
        raise Unusable(f"unknown head motion: mean framewise displacement is {mean_fd}") from None
    if value > most:
        raise Unusable(f"too much head motion: {value:g} mm on average, at most {most:g}")


def _repetition_time(reader: Reader, paths, candidate: dict) -> str:
    """Seconds from the scan's own files, else from the table, else from the dataset's ``tr``."""
    found = {reader.repetition_time(path) for path in paths}
    if len(found) > 1:
        raise Unusable(f"runs do not fit together: repetition times {sorted(map(str, found))}")
    tr = found.pop()
    if tr is None and candidate["tr"] != MISSING:
        tr = candidate["tr"]
    if tr is None:
        tr = reader.dataset.get("tr")
        tr = tr.get(candidate["site"]) if isinstance(tr, dict) else tr
    if tr is None:
        return MISSING
    try:
        valid = 0 < float(tr) < math.inf
    except (TypeError, ValueError, OverflowError):
        valid = False
    if not valid:
        raise Unusable(f"invalid repetition time: {str(tr)[:20]}")
    return plain(tr)
