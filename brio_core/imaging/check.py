"""Read a whole cohort as the workflow would, and write nothing."""

from dataclasses import dataclass, field
from pathlib import Path

from brio_core.errors import BrioError
from brio_core.imaging import inclusion
from brio_core.imaging.batch import extract_batch
from brio_core.imaging.candidates import find_candidates
from brio_core.imaging.parts import outcome_of
from brio_core.imaging.sources import open_source
from brio_core.imaging.tables import MISSING


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


def check_cohort(dataset: dict, data_dir: str | Path) -> Report:
    """Read the table and every scan of a cohort; a scan is forgotten as soon as it is judged."""
    report = Report()
    try:
        source = open_source(dataset, data_dir)
    except BrioError as error:
        report.errors.append(str(error))
        return report
    try:
        candidates = find_candidates(source)
        results = extract_batch(source, list(enumerate(candidates)))
        outcomes = [outcome_of(subject, result) for _, subject, result in results]
        names = next((outcome.names for outcome in outcomes if outcome.names), ())
        source.rois(names)
    except BrioError as error:
        report.errors.append(str(error))
        # The table may hide that the atlas is wrong too.
        try:
            source.check()
        except BrioError as other:
            report.errors += [str(other)] if str(other) != str(error) else []
        return report
    cohort = dataset["cohort"]
    reasons = inclusion.exclusion_reasons(candidates, outcomes, inclusion.Rules.of(dataset))
    report.rows = inclusion.inclusion_rows(candidates, outcomes, reasons)
    report.summary = inclusion.summary(candidates, reasons, cohort)
    report.exclusions = [f"{subject}: {reason}" for subject, reason in reasons.items() if reason]
    report.notes = list(_notes(candidates, reasons))
    try:
        inclusion.check_enough(candidates, reasons, cohort)
    except BrioError as error:
        report.errors.append(str(error))
    return report


def _notes(candidates: list[dict], reasons: dict[str, str]):
    kept = [candidate for candidate in candidates if not reasons[candidate["subject"]]]
    unknown = sorted({c["site"] for c in kept if c["tr"] == MISSING})
    if unknown:
        yield (
            f"the repetition time of {', '.join(unknown)} is unknown, so block lengths are given "
            "in frames only; it can be entered under tr"
        )
    for column in ("age", "sex", "mean_fd"):
        missing = sum(candidate[column] == MISSING for candidate in kept)
        if missing:
            yield f"{column} is unknown for {missing} of {len(kept)} kept subjects"


def aligned(columns: tuple[str, ...], rows: list[dict]) -> str:
    """A table whose columns stand below each other."""
    lines = [list(columns), *([str(row[column]) or "-" for column in columns] for row in rows)]
    widths = [max(len(line[index]) for line in lines) for index in range(len(columns))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths)).rstrip() for line in lines
    )
