"""The dataset file and the configuration of a new cohort: what its files tell, what a user adds."""

import os
import re
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from glob import escape
from pathlib import Path
from string import Formatter
from typing import Any

from brio_core.cohorts.readers.series import SERIES_ENDINGS, series_scan
from brio_core.cohorts.scan import Unusable
from brio_core.cohorts.tables import MISSING, read_table
from brio_core.system.errors import BrioError

# Usual names of columns, in small letters.
COLUMNS = {
    "subject": ("participant_id", "subject", "subject_id", "sub_id", "id"),
    "site": ("site", "site_id", "center", "centre", "scanner"),
    "label": ("diagnosis", "dx", "dx_group", "label", "class", "patient", "group"),
    "age": ("age", "age_at_scan"),
    "sex": ("sex", "gender"),
    "mean_fd": ("mean_fd", "meanfd", "func_mean_fd"),
    "group": ("family", "family_id", "person"),
}
NEEDED = ("subject", "site", "label")
POSITIVE = ("patient", "patients", "case", "asd", "mdd", "yes", "true")
IMAGES = "sub-*/**/func/*_desc-preproc_bold.nii*"
TABLES = ("participants.tsv", "participants.csv", "participants.xlsx")
# Subjects whose files are looked for.
LOOKED_AT = 5
METHODS = ("linear-logarithm", "linear-correlation", "linear-confounds")


@dataclass(frozen=True)
class Answers:
    """What the options say; else what is asked, or, where nobody can be asked, what files tell."""

    given: dict[str, Any]
    ask: Callable[[str], str] | None = None

    def __call__(self, option: str, what: str, guess: Any = None) -> str:
        """One answer; ``guess`` is what the files tell, None if they do not."""
        answer = self.given.get(option.replace("-", "_"))
        if answer is None and self.ask:
            # Nothing, or an end of input, takes the guess.
            with suppress(EOFError):
                shown = "" if guess is None else f" [{guess}]"
                answer = self.ask(f"{what}{shown}: ").strip() or None
        answer = guess if answer is None else answer
        if answer is None:
            raise BrioError(f"the files do not tell {what}; say it with --{option}")
        return str(answer)


def describe(name: str, data_dir: Path, answers: Answers) -> dict:
    """The content of the dataset file of a cohort in the folder ``data_dir``/``name``."""
    folder = answers("folder", f"the folder of the cohort below {data_dir}", name)
    folder = _below(data_dir, folder, "folder")
    root = data_dir / folder
    if not root.is_dir():
        raise BrioError(f"the folder {root} does not exist; put the data there, or name --folder")
    tables = (one for one in TABLES if (root / one).is_file())
    participants = answers(
        "participants", f"the table of subjects below {root}", next(tables, None)
    )
    participants = _below(root, participants, "participants")
    table = read_table(root / participants)
    columns = {role: _column(role, table, answers) for role in COLUMNS}
    columns = {role: column for role, column in columns.items() if column}
    positive, negative = _classes(table[columns["label"]], columns["label"], answers)
    source, rois = _source(root, table, columns, answers)
    if not rois.isdecimal():
        raise BrioError(f"the number of ROIs is {rois!r}, but must be a whole number; see --rois")
    if participants != TABLES[0]:
        source["participants"] = participants
    return {
        "cohort": name,
        "source": {"kind": source.pop("kind"), "folder": folder, **source},
        "columns": columns,
        "label": {"positive": positive, "negative": negative},
        "rois": {"expected": int(rois)},
    }


def _below(folder: Path, path: str, option: str) -> str:
    """A path as seen from a folder, which a dataset file needs; links are not followed."""
    relative = os.path.relpath(folder / path, folder)
    if relative.split(os.sep)[0] == os.pardir:
        raise BrioError(f"--{option} {path} is outside {folder}; move or link the data there")
    return relative


def _column(role: str, table: Any, answers: Answers) -> str | None:
    names = {column.lower(): column for column in table.columns}
    found = (names[one] for one in COLUMNS[role] if one in names)
    guess = next(found, None)
    if role in NEEDED:
        column = answers(role, f"the column with the {role}", guess)
    else:
        column = answers.given.get(role) or guess
    if column and column not in table.columns:
        raise BrioError(
            f"the table of subjects has no column {column!r}; it has {', '.join(table.columns)}"
        )
    return column


def _classes(column: Any, name: str, answers: Answers) -> tuple[str, str]:
    values = sorted(set(column) - {MISSING})
    two = values if len(values) == 2 else []
    # Beside 0, 1 is the patient; beside 2 it may be either.
    likely = ["1"] if two == ["0", "1"] else [one for one in two if one.lower() in POSITIVE]
    guess = likely[0] if len(likely) == 1 else None
    positive = answers("positive", f"the value of {name} for class 1", guess)
    others = [one for one in two if one != positive]
    negative = answers("negative", f"the value of {name} for class 0", *others[:1])
    for value in (positive, negative):
        if value not in values:
            few = ", ".join(map(repr, values[:6])) + (" and others" if len(values) > 6 else "")
            raise BrioError(f"no subject has {value!r} in column {name!r}; it has {few}")
    return positive, negative


def _source(root: Path, table: Any, columns: dict, answers: Answers) -> tuple[dict, str]:
    """The section ``source``, and the number of regions."""
    image = next(iter(sorted(root.glob(f"derivatives/*/{IMAGES}"))), None)
    kind = answers("kind", "the kind of source, series or bids", "bids" if image else "series")
    if kind == "bids":
        return _images(root, image, answers)
    subjects = table[[columns["subject"], columns["site"]]].itertuples(index=False)
    pattern = answers(
        "pattern",
        "the file of a subject, such as series/{subject}.tsv",
        find_pattern(root, [tuple(row) for row in subjects][:LOOKED_AT]),
    )
    pattern = _below(root, pattern, "pattern")
    files = sorted(root.glob(_as_glob(pattern)))
    guess, problem = _n_rois([file for file in files if not file.name.startswith(".")])
    why = f" ({problem or f'no file below {root} fits {pattern}'})" if guess is None else ""
    rois = answers("rois", f"the number of ROIs{why}", guess)
    return {"kind": "series", "pattern": pattern}, rois


def _as_glob(pattern: str) -> str:
    try:
        parts = [(text, field) for text, field, *_ in Formatter().parse(pattern)]
    except ValueError:
        parts = []
    fields = {field for _, field in parts if field is not None}
    if "subject" not in fields or not fields <= {"subject", "site"}:
        raise BrioError(
            f"--pattern {pattern} must have {{subject}}, may have {{site}}, and nothing else in "
            "braces; correct it"
        )
    return "".join(escape(text) + ("*" if field else "") for text, field in parts)


def find_pattern(root: Path, subjects: Iterable[tuple[str, str]]) -> str | None:
    """Names of files below a folder in which ids stand, with {subject} and {site} for them."""
    found: Counter = Counter()
    files = [path.relative_to(root).as_posix() for path in sorted(root.rglob("*"))]
    files = [one for one in files if one.lower().endswith(SERIES_ENDINGS) and one not in TABLES]
    for subject, site in subjects:
        # An id within a longer word is another subject's.
        word = re.compile(rf"(?<![A-Za-z0-9]){re.escape(subject)}(?![A-Za-z0-9])")
        for file in files:
            if word.search(file):
                parts = ["{site}" if part == site else part for part in file.split("/")]
                found[word.sub("{subject}", "/".join(parts))] += 1
    return max(found, key=lambda pattern: (found[pattern], -len(pattern))) if found else None


def _n_rois(files: list[Path]) -> tuple[int | None, str]:
    """The ROIs of the first file that can be read, or why the very first cannot."""
    problems = []
    for file in files[:LOOKED_AT]:
        try:
            return series_scan(file).series.shape[1], ""
        except Unusable as unusable:
            problems.append(str(unusable))
    return None, problems[0] if problems else ""


def _images(root: Path, image: Path | None, answers: Answers) -> tuple[dict, str]:
    parts = image.relative_to(root).parts if image else ()
    place = next((at for at, part in enumerate(parts) if part.startswith("sub-")), 0)
    entities = dict(re.findall(r"(?:^|_)([a-z]+)-([A-Za-z0-9]+)", image.name)) if image else {}
    source = {
        "kind": "bids",
        "derivatives": answers(
            "derivatives", f"the folder of images below {root}", "/".join(parts[:place]) or None
        ),
        "task": answers("task", "the task of the scans", entities.get("task")),
        "space": answers("space", "the space of the images", entities.get("space")),
    }
    labels = [path.relative_to(root).as_posix() for path in root.glob("atlas/*.nii*")]
    guess = labels[0] if len(labels) == 1 else None
    atlas = answers("atlas", f"the label image of the atlas below {root}", guess)
    source["atlas"] = {"image": atlas}
    names = re.sub(r"\.nii(\.gz)?$", ".tsv", atlas)
    if (root / names).is_file():
        source["atlas"]["names"] = names
    return source, answers("rois", "the number of ROIs", _n_labels(root / atlas))


def _n_labels(path: Path) -> int | None:
    import nibabel
    import numpy as np

    try:
        return int((np.unique(np.asarray(nibabel.load(path).dataobj)) > 0).sum())
    except (OSError, ValueError, nibabel.filebasedimages.ImageFileError):
        return None


def as_yaml(content: dict) -> str:
    """One line per key."""
    import yaml

    flow = {"default_flow_style": True, "sort_keys": False, "width": 10_000, "allow_unicode": True}
    lines = (yaml.safe_dump({key: value}, **flow).strip()[1:-1] for key, value in content.items())
    return "\n".join(lines) + "\n"


def configuration(dataset: dict, data_dir: Path, methods: Iterable[str]) -> dict:
    """What to run on the cohort: by default linear models, which need no GPU."""
    config = {"cohorts": [dataset["cohort"]], "methods": list(methods)}
    config |= {"results": f"results/{dataset['cohort']}"}
    return config | ({} if data_dir == Path("data") else {"data_dir": str(data_dir)})
