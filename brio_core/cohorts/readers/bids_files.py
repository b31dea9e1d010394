"""Which files of a BIDS-derivatives folder are the scans of a subject."""

from collections import Counter
from pathlib import Path

from brio_core.cohorts.source import Unusable


def entities(path: Path) -> dict[str, str]:
    """``sub-01_task-rest_run-1_bold.nii.gz`` as a mapping; the last word is the ``suffix``."""
    *pairs, last = path.name.split("_")
    found = dict(pair.split("-", 1) for pair in pairs if "-" in pair)
    return found | {"suffix": last.split(".")[0], "ending": "." + last.partition(".")[2]}


def matching(folder: Path, session: str | None, wanted: dict[str, str], endings) -> list[Path]:
    """Files of a subject's folder with these entities, in the order of sessions and runs.

    An entity that a file lacks does not match, except for ``space``: series of an atlas need not
    name one. Numbers match with and without leading zeros.
    """
    places = [folder / f"ses-{session}"] if session else [folder, *sorted(folder.glob("ses-*"))]
    found = []
    for place in places:
        if not (place / "func").is_dir():
            continue
        for path in (place / "func").iterdir():
            own = entities(path)
            if own["ending"] in endings and all(_same(own, *pair) for pair in wanted.items()):
                found.append(path)
    return sorted(found, key=lambda path: (_session(path), _run(path), path.name))


def _same(own: dict[str, str], key: str, value: str) -> bool:
    if key == "space" and key not in own:
        return own["suffix"] == "timeseries"
    return key in own and _number(own[key]) == _number(value)


def _number(text: str) -> str:
    return text.lstrip("0") if text.isdecimal() else text


def _session(path: Path) -> str:
    return entities(path).get("ses", "")


def _run(path: Path) -> tuple[int, str]:
    run = entities(path).get("run", "")
    return (int(run), "") if run.isdecimal() else (0, run)


def check_unique(paths: list[Path]) -> None:
    """Raise if the files are not the runs of one session, each once."""
    sessions = sorted({_session(path) for path in paths})
    if len(sessions) > 1:
        raise Unusable(f"several sessions: {', '.join(sessions)}; choose one with source.session")
    run, count = Counter(_run(path) for path in paths).most_common(1)[0]
    if count > 1:
        first, second, *_ = (path.name for path in paths if _run(path) == run)
        raise Unusable(
            f"ambiguous scan: {first} and {second}; tell them apart with source.entities"
        )
