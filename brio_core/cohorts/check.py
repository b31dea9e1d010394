"""Read a whole cohort as the workflow would, and write nothing."""

from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

from brio_core.cohorts import inclusion
from brio_core.cohorts.candidates import find_candidates
from brio_core.cohorts.extraction import Outcome, extract_batch
from brio_core.cohorts.readers.reader import open_reader
from brio_core.cohorts.splits import make_split
from brio_core.cohorts.tables import MISSING
from brio_core.system.errors import BrioError

NUMBERS = ("age", "mean_fd")
# What training understands, in small or capital letters (brio_core/cohorts/cohort.py).
MALE, FEMALE = ("1", "m", "male"), ("0", "2", "f", "female")
# No scanner is so slow: a larger number of seconds must be milliseconds.
LONGEST_TR = 20.0
# Those of the experiment main, which every configuration runs unless it says otherwise.
PROTOCOLS = ("loso", "id")


@dataclass
class Report:
    """What was found: ``errors`` stop a run, ``exclusions`` are subjects that it leaves out."""

    errors: list[str] = field(default_factory=list)
    exclusions: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    summary: str = ""
    rows: list[dict] = field(default_factory=list)

    def text(self) -> str:
        """The inclusion table, the counts per site and reason, and every problem."""
        parts = []
        if self.rows:
            parts += [aligned(inclusion.COLUMNS, self.rows), self.summary]
        for title, lines in (
            ("errors, which stop a run", self.errors),
            ("subjects that are left out", self.exclusions),
            ("to know", self.notes),
        ):
            if lines:
                parts.append("\n".join([f"{title}:", *(f"  {line}" for line in lines)]))
        if not (self.errors or self.exclusions):
            parts.append("no problems")
        return "\n\n".join(parts)


def check_cohort(dataset: dict, data_dir: str | Path, split_seed: int = 0) -> Report:
    """Read the table and every scan of a cohort; a scan is forgotten as soon as it is judged.

    The kept subjects are then split as the workflow would.
    """
    report = Report()
    try:
        reader = open_reader(dataset, data_dir)
    except BrioError as error:
        report.errors.append(str(error))
        return report
    try:
        candidates = find_candidates(reader)
        results = extract_batch(reader, list(enumerate(candidates)))
        outcomes = [Outcome.of(subject, result) for _, subject, result in results]
        names = next((outcome.names for outcome in outcomes if outcome.names), ())
        reader.rois(names)
    except BrioError as error:
        report.errors.append(str(error))
        # The table may hide that the atlas is wrong too.
        try:
            reader.check()
        except BrioError as other:
            report.errors += [str(other)] if str(other) != str(error) else []
        return report
    cohort = dataset["cohort"]
    reasons = inclusion.exclusion_reasons(candidates, outcomes, inclusion.Rules.of(dataset))
    report.rows = inclusion.inclusion_rows(candidates, outcomes, reasons)
    report.summary = inclusion.summary(candidates, reasons, cohort)
    report.exclusions = [f"{subject}: {reason}" for subject, reason in reasons.items() if reason]
    kept = [candidate for candidate in candidates if not reasons[candidate["subject"]]]
    report.notes = list(_notes(kept))
    try:
        inclusion.check_enough(candidates, reasons, cohort)
    except BrioError as error:
        report.errors.append(str(error))
    else:
        report.errors += _split_errors(kept, cohort, split_seed)
    return report


def _split_errors(kept: list[dict], cohort: str, split_seed: int):
    """What the rule ``split`` would say."""
    import pandas as pd

    # The order of participants.tsv has a part in who is tested together.
    people = sorted(kept, key=lambda candidate: (candidate["site"], candidate["subject"]))
    table = pd.DataFrame(people).astype({"label": int})
    for protocol in PROTOCOLS:
        try:
            make_split(table, cohort, protocol, split_seed)
        except BrioError as error:
            yield f"cohort {cohort} cannot be split for protocol {protocol}: {error}"


def _notes(kept: list[dict]):
    yield from _repetition_time_notes(kept)
    for column in ("age", "sex", "mean_fd"):
        missing = sum(candidate[column] == MISSING for candidate in kept)
        if missing:
            yield f"{column} is unknown for {missing} of {len(kept)} kept subjects"
    yield from _unreadable_notes(kept)
    yield from _group_notes(kept)


def _repetition_time_notes(kept: list[dict]):
    unknown = sorted({c["site"] for c in kept if c["tr"] == MISSING})
    if unknown:
        yield (
            f"the repetition time of {', '.join(unknown)} is unknown, so block lengths are given "
            "in frames only; it can be entered under tr"
        )
    long = [c for c in kept if c["tr"] != MISSING and float(c["tr"]) > LONGEST_TR]
    if long:
        yield (
            f"the repetition time of {', '.join(sorted({c['site'] for c in long}))} is above "
            f"{LONGEST_TR:g} s, e.g. {long[0]['tr']} of subject {long[0]['subject']}; is it in "
            "milliseconds?"
        )


def _unreadable_notes(kept: list[dict]):
    """Covariates that are there, but that training counts as missing."""
    import pandas as pd

    known = {column: [c for c in kept if c[column] != MISSING] for column in (*NUMBERS, "sex")}
    for column in NUMBERS:
        # Not float(): training reads numbers with pandas, which takes fewer spellings.
        values = pd.to_numeric(pd.Series([c[column] for c in known[column]]), errors="coerce")
        strange = [c for c, bad in zip(known[column], values.isna()) if bad]
        yield from _counts_as_missing(column, strange, "is no number", len(kept))
    strange = [c for c in known["sex"] if c["sex"].lower() not in (*MALE, *FEMALE)]
    codes = f"is neither male ({', '.join(MALE)}) nor female ({', '.join(FEMALE)})"
    yield from _counts_as_missing("sex", strange, codes, len(kept))


def _counts_as_missing(column: str, strange: list[dict], what: str, total: int):
    if strange:
        yield (
            f"{column} of {len(strange)} of {total} kept subjects {what}, e.g. "
            f"{strange[0][column]!r} of subject {strange[0]['subject']}: it counts as missing"
        )


def _group_notes(kept: list[dict]):
    sites = defaultdict(set)
    for candidate in kept:
        sites[candidate["group"]].add(candidate["site"])
    spread = sum(c["group"] != MISSING and len(sites[c["group"]]) > 1 for c in kept)
    if spread:
        yield (
            f"{spread} of {len(kept)} kept subjects share their group (columns.group) with "
            "another site; they do not train where that site validates or is tested"
        )


def aligned(columns: tuple[str, ...], rows: list[dict]) -> str:
    """A table whose columns stand below each other."""
    lines = [list(columns), *([str(row[column]) or "-" for column in columns] for row in rows)]
    widths = [max(len(line[index]) for line in lines) for index in range(len(columns))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths)).rstrip() for line in lines
    )
