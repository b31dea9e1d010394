"""Candidate subjects: the rows of a source's table, checked and brought to common columns."""

from brio_core.errors import BrioError
from brio_core.imaging.base import Source, Unusable
from brio_core.imaging.tables import MISSING, plain, read_table

COLUMNS = (
    "subject",
    "site",
    "label",
    "age",
    "sex",
    "mean_fd",
    "tr",
    "group",
    "source",
    "excluded",
)
_REQUIRED = ("subject", "site", "label")
_OPTIONAL = ("age", "sex", "mean_fd", "tr", "group")


def find_candidates(source: Source) -> list[dict]:
    """One mapping with the keys ``COLUMNS`` per candidate, in the order of the source's table."""
    table = source.table()
    columns = _checked_columns(source, table)
    labels = _checked_labels(source, table, columns["label"])
    candidates = [
        _candidate(source, row, columns, labels) for row in table.to_dict(orient="records")
    ]
    with_file = [candidate for candidate in candidates if candidate["source"] != MISSING]
    if with_file and all("missing file" in candidate["excluded"] for candidate in with_file):
        example = source.data_dir / with_file[0]["source"]
        raise source.missing(
            f"none of the scans that {source.table_path} lists is there "
            f"(the first would be {example})"
        )
    source.check()
    return candidates


def read_candidates(path) -> list[dict]:
    """The rows of candidates.tsv."""
    candidates = read_table(path).to_dict(orient="records")
    for candidate in candidates:
        if candidate["excluded"] == MISSING:
            candidate["excluded"] = ""
    return candidates


def _checked_columns(source: Source, table) -> dict[str, str]:
    path, cohort = source.table_path, source.dataset["cohort"]
    columns = {role: name for role, name in source.dataset["columns"].items() if name}
    for role, column in columns.items():
        if column not in table.columns:
            raise BrioError(
                f"{path} has no column {column!r} (the {role}); add it, or name the right one "
                f"under columns.{role} in the dataset file of cohort {cohort}"
            )
    for role in _REQUIRED:
        if role not in columns:
            raise BrioError(
                f"the dataset file of cohort {cohort} does not say which column of "
                f"{path} is the {role}; add columns.{role}"
            )
    if table.empty:
        raise BrioError(f"{path} lists no subjects; fill it or choose another file")
    subjects = table[columns["subject"]]
    if (subjects == MISSING).any():
        raise BrioError(
            f"{path} has a row without an entry in column {columns['subject']!r}; "
            "give every subject an id"
        )
    if subjects.duplicated().any():
        twice = subjects[subjects.duplicated()].iloc[0]
        raise BrioError(
            f"{path} lists subject {twice} more than once in column "
            f"{columns['subject']!r}; keep one row per subject"
        )
    return columns


def _checked_labels(source: Source, table, column: str) -> dict[str, str]:
    """Which label text is class 1 and which class 0; anything but these two is an error."""
    path = source.table_path
    setting = source.dataset["label"]
    labels = {str(setting["positive"]): "1", str(setting["negative"]): "0"}
    wanted = " and ".join(repr(value) for value in labels)
    present = sorted(set(table[column]) - {MISSING})
    others = [value for value in present if value not in labels]
    if others:
        raise BrioError(
            f"column {column!r} of {path} is not two-valued: besides {wanted} it holds "
            f"{', '.join(map(repr, others))}; remove these rows or correct label.positive and "
            "label.negative"
        )
    absent = [value for value in labels if value not in present]
    if absent:
        raise BrioError(
            f"column {column!r} of {path} never holds {' or '.join(map(repr, absent))}; "
            "both classes are needed, so correct label.positive and label.negative or the table"
        )
    return labels


def _candidate(source: Source, row: dict, columns: dict, labels: dict) -> dict:
    candidate = {
        role: row[columns[role]] if role in columns else MISSING
        for role in (*_REQUIRED, *_OPTIONAL)
    }
    candidate["label"] = labels.get(candidate["label"], MISSING)
    candidate["source"], candidate["excluded"] = MISSING, ""
    reasons = [
        f"missing phenotype: no {columns[role]}"
        for role in ("site", "label")
        if candidate[role] == MISSING
    ]
    try:
        path = source.scan_path(row)
        candidate["source"] = path.relative_to(source.data_dir).as_posix()
        if not path.exists():
            raise Unusable(f"missing file: {candidate['source']}")
        if path.stat().st_size == 0:
            raise Unusable(f"empty file: {candidate['source']}")
        candidate["tr"] = _repetition_time(source, path, candidate)
    except Unusable as unusable:
        reasons.append(str(unusable))
    candidate["excluded"] = "; ".join(reasons)
    return candidate


def _repetition_time(source: Source, path, candidate: dict) -> str:
    """Seconds from the scan's own files, else from the table, else from the dataset's ``tr``."""
    tr = source.repetition_time(path)
    if tr is None and candidate["tr"] != MISSING:
        tr = candidate["tr"]
    if tr is None:
        tr = source.dataset.get("tr")
        tr = tr.get(candidate["site"]) if isinstance(tr, dict) else tr
    if tr is None:
        return MISSING
    try:
        valid = float(tr) > 0
    except (TypeError, ValueError):
        valid = False
    if not valid:
        raise Unusable(f"invalid repetition time: {tr}")
    return plain(tr)
