"""Read a whole cohort as the workflow would, and write nothing."""

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from brio_core.cohorts import inclusion
from brio_core.cohorts.candidates import COLUMNS, find_candidates
from brio_core.cohorts.dead_regions import DeadRegions
from brio_core.cohorts.duplicates import Sketches
from brio_core.cohorts.extraction import Outcome, extract_batch
from brio_core.cohorts.readers.reader import open_reader
from brio_core.cohorts.splits import make_split, one_class_folds
from brio_core.cohorts.tables import LARGEST, MISSING, SEXES, covariate
from brio_core.system.errors import BrioError

# No scanner is so slow: a larger number of seconds must be milliseconds.
LONGEST_TR = 20.0
# Those of the experiment main, which every configuration runs unless it says otherwise.
PROTOCOLS = ("loso", "id")
# Who is left out, on a terminal, where the table is in a file.
SHOWN = 20


@dataclass
class Report:
    """What was found: ``errors`` stop a run, ``exclusions`` are subjects that it leaves out."""

    errors: list[str] = field(default_factory=list)
    exclusions: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    summary: str = ""
    rows: list[dict] = field(default_factory=list)

    def text(self, file: str | Path = "") -> str:
        """The inclusion table, the counts per site and reason, and every problem; errors last.

        Where ``file`` holds the table, that is named, and few of those who are left out.
        """
        parts, exclusions = [], self.exclusions
        if file:
            parts = [f"all {len(self.rows)} subjects are in {file}, with the reasons", self.summary]
            exclusions = exclusions[:SHOWN]
            if more := len(self.exclusions) - len(exclusions):
                exclusions.append(f"and {more} more")
        elif self.rows:
            parts = [aligned(inclusion.COLUMNS, self.rows), self.summary]
        for title, lines in (
            ("subjects that are left out", exclusions),
            ("to know", self.notes),
            ("errors, which stop a run", self.errors),
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
    report, rules = Report(), inclusion.Rules.of(dataset)
    try:
        reader = open_reader(dataset, data_dir)
    except BrioError as error:
        report.errors.append(str(error))
        return report
    try:
        candidates = find_candidates(reader)
        outcomes, sketches = [], Sketches(rules.rois)
        for subject, result in extract_batch(reader, candidates):
            outcomes.append(Outcome.of(subject, result))
            if not inclusion.scan_reason(outcomes[-1], rules):
                sketches.add(subject, result.series)
        names = next((outcome.names for outcome in outcomes if outcome.names), ())
        rois = reader.rois(names)
    except BrioError as error:
        report.errors.append(str(error))
        # The table may hide that the atlas is wrong too.
        try:
            reader.check()
        except BrioError as other:
            report.errors += [str(other)] if str(other) != str(error) else []
        return report
    cohort = dataset["cohort"]
    reasons = inclusion.exclusion_reasons(candidates, outcomes, rules, sketches)
    report.rows = inclusion.inclusion_rows(candidates, outcomes, reasons)
    report.summary = inclusion.summary(candidates, reasons, cohort)
    report.exclusions = [f"{subject}: {reason}" for subject, reason in reasons.items() if reason]
    kept = [candidate for candidate in candidates if not reasons[candidate["subject"]]]
    report.notes = list(_notes(kept))
    try:
        inclusion.check_enough(candidates, reasons, cohort)
        dead = {outcome.subject: outcome.dead for outcome in outcomes}
        regions = DeadRegions.of(kept, dead, rois.names, rules.drop_regions, cohort)
        report.notes += regions.notes()
    except BrioError as error:
        report.errors.append(str(error))
    else:
        _split(report, kept, cohort, split_seed)
    return report


def _split(report: Report, kept: list[dict], cohort: str, split_seed: int) -> None:
    """What the rule ``split`` would say."""
    import pandas as pd

    # The order of participants.tsv has a part in who is tested together.
    people = sorted(kept, key=lambda candidate: (candidate["site"], candidate["subject"]))
    table = pd.DataFrame(people).astype({"label": int})
    for protocol in PROTOCOLS:
        try:
            poor = one_class_folds(make_split(table, cohort, protocol, split_seed))
        except BrioError as error:
            report.errors.append(
                f"cohort {cohort} cannot be split for protocol {protocol}: {error}"
            )
        else:
            report.notes += [poor] if poor else []


def _notes(kept: list[dict]):
    """What is unknown about the kept subjects, what cannot be read, and who is left out."""
    import pandas as pd

    table = pd.DataFrame(kept, columns=COLUMNS)
    known = table != MISSING
    if unknown := sorted(set(table["site"][~known["tr"]])):
        yield (
            f"the repetition time of {', '.join(unknown)} is unknown, so block lengths are given "
            "in frames only; it can be entered under tr"
        )
    long = table[table["tr"].where(known["tr"], "nan").astype(float) > LONGEST_TR]
    if len(long):
        yield (
            f"the repetition time of {', '.join(sorted(set(long['site'])))} is above "
            f"{LONGEST_TR:g} s, e.g. {long['tr'].iloc[0]} of subject {long['subject'].iloc[0]}; "
            "is it in milliseconds?"
        )
    for column in ("age", "sex", "mean_fd"):
        if missing := int((~known[column]).sum()):
            yield f"{column} is unknown for {missing} of {len(table)} kept subjects"
    male, female = ([word for word, sex in SEXES.items() if sex == one] for one in (1.0, 0.0))
    codes = f"is neither male ({', '.join(male)}) nor female ({', '.join(female)})"
    # As training reads them.
    for column, what, unreadable in (
        *(
            (name, f"is no number from 0 to {most:g}", np.isnan(covariate(name, table[name])))
            for name, most in LARGEST.items()
        ),
        ("sex", codes, ~table["sex"].str.lower().isin(SEXES)),
    ):
        strange = table[known[column] & unreadable]
        if len(strange):
            yield (
                f"{column} of {len(strange)} of {len(table)} kept subjects {what}, e.g. "
                f"{strange[column].iloc[0]!r} of subject {strange['subject'].iloc[0]}: it counts "
                "as missing"
            )
    sites_of_group = table[known["group"]].groupby("group")["site"].transform("nunique")
    if spread := int((sites_of_group > 1).sum()):
        yield (
            f"{spread} of {len(table)} kept subjects share their group (columns.group) with "
            "another site; they do not train where that site validates or is tested"
        )


def aligned(columns: tuple[str, ...], rows: list[dict]) -> str:
    """A table whose columns stand below each other."""
    lines = [list(columns), *([str(row[column]) or "-" for column in columns] for row in rows)]
    widths = [max(len(line[index]) for line in lines) for index in range(len(columns))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths)).rstrip() for line in lines
    )
