"""Who is kept and why not: the one place with the rules of exclusion."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from brio_core.cohorts.duplicates import Pair, Sketches
from brio_core.cohorts.extraction import Outcome
from brio_core.cohorts.splits import MIN_SITES
from brio_core.system.errors import BrioError

_COUNTS = ("frames_before", "frames_after", "constant_rois")
COLUMNS = ("subject", "site", "label", "kept", "reason", *_COUNTS)


@dataclass(frozen=True)
class Rules:
    """``inclusion`` of a dataset's YAML; ``max_constant_rois`` is a fraction of the ROIs.

    ``duplicates`` says which of several copies of a scan are kept: the ``first`` in the table,
    ``none``, by default ``by-label`` the first if all have the same label and none otherwise, or
    all of them (``keep``), which are not looked for then. ``drop_regions`` says which regions the
    cohort goes without (brio_core/cohorts/dead_regions.py).
    ``select`` and ``quality`` say which values of a column of the source's table are accepted, and
    ``required`` which phenotypes must be known. These and ``max_mean_fd`` (mm) are applied before
    scans are read, the others after.
    """

    rois: int
    min_frames: int = 60
    max_constant_rois: float = 0.5
    min_subjects_per_class: int = 4
    duplicates: str = "by-label"
    drop_regions: str | Sequence[str] = "auto"
    max_mean_fd: float | None = None
    required: Sequence[str] = ()
    select: Mapping[str, Sequence] = field(default_factory=dict)
    quality: Mapping[str, Sequence] = field(default_factory=dict)

    @classmethod
    def of(cls, dataset: dict) -> "Rules":
        """Read them from the dataset's mapping."""
        return cls(rois=dataset["rois"]["expected"], **dataset.get("inclusion", {}))


# What stands before the colon for rows that were never meant: no fault of the subject.
NOT_SELECTED, NO_ROW = "not selected", "no row in the table"


def not_accepted(row: dict, accepted: Mapping[str, Sequence]) -> str:
    """``column is value`` for the first column whose value is not accepted, or an empty text."""
    for column, values in accepted.items():
        if row[column] not in map(str, values):
            return f"{column} is {row[column]}"
    return ""


def too_few_frames(frames: int, min_frames: int) -> str:
    """The reason against a scan of this many finite frames, or an empty text."""
    if frames < min_frames:
        return f"too few frames: {frames} of at least {min_frames}"
    return ""


def exclusion_reasons(
    candidates: list[dict], outcomes: list[Outcome], rules: Rules, sketches: Sketches
) -> dict[str, str]:
    """The reason per candidate, empty for those kept; ``sketches`` are those of the usable scans.

    Subjects are judged first, each by its own scan; then duplicates; then whole sites by the
    subjects they have left.
    """
    reasons = {
        candidate["subject"]: candidate["excluded"] or scan_reason(outcome, rules)
        for candidate, outcome in zip(candidates, outcomes)
    }
    if rules.duplicates != "keep":
        usable = {subject for subject, reason in reasons.items() if not reason}
        about = {candidate["subject"]: candidate for candidate in candidates}
        reasons |= _copies(sketches.pairs(usable), about, rules.duplicates)
    # All ROIs must be named like those of the first scan.
    named = [outcome for outcome in outcomes if outcome.names and not reasons[outcome.subject]]
    for outcome in named:
        if outcome.names != named[0].names:
            reasons[outcome.subject] = f"other ROI names: not those of {named[0].subject}"
    _judge_sites(candidates, reasons, rules)
    return reasons


def scan_reason(outcome: Outcome, rules: Rules) -> str:
    """What speaks against a scan by itself, or an empty text."""
    if outcome.reason:
        return outcome.reason
    if outcome.rois != rules.rois:
        hint = "; transposed?" if outcome.frames_before == rules.rois else ""
        return f"wrong number of ROIs: {outcome.rois} instead of {rules.rois}{hint}"
    if reason := too_few_frames(outcome.frames_after, rules.min_frames):
        return reason
    most = rules.max_constant_rois * rules.rois
    if outcome.constant_rois > most:
        return f"too many constant ROIs: {outcome.constant_rois} of {rules.rois}, at most {most:g}"
    return ""


def _copies(pairs: list[Pair], about: dict[str, dict], rule: str) -> dict[str, str]:
    """The reasons against copies of a scan; copies of copies belong together."""
    place = {subject: number for number, subject in enumerate(about)}
    earlier: dict[str, str] = {}

    def first_of(subject: str) -> str:
        while subject in earlier:
            subject = earlier[subject]
        return subject

    for pair in pairs:
        ends = {first_of(pair.first), first_of(pair.second)}
        if len(ends) == 2:
            early, late = sorted(ends, key=place.get)
            earlier[late] = early
    copies = {subject: first_of(subject) for pair in pairs for subject in pair[:2]}
    labels: dict[str, set[str]] = {}
    for subject, first in copies.items():
        labels.setdefault(first, set()).add(about[subject]["label"])
    reasons = {}
    for pair in sorted(pairs, key=lambda pair: -pair.correlation):
        for own, other in (pair[1::-1], pair[:2]):
            agree = len(labels[copies[own]]) == 1
            if own == copies[own] and (rule == "first" or (rule == "by-label" and agree)):
                continue
            kind = "duplicate scan" if agree else "duplicate scan with opposite labels"
            alike = f"series correlate {pair.correlation:.2f} at lag {pair.lag} with {other}"
            facts = f"({_facts(about[other])}); own {_facts(about[own])}"
            reasons.setdefault(own, f"{kind}: {alike} {facts}")
    return reasons


def _facts(candidate: dict) -> str:
    return f"label {candidate['label']}, mean FD {candidate['mean_fd']}"


def _judge_sites(candidates: list[dict], reasons: dict[str, str], rules: Rules) -> None:
    left = Counter((c["site"], c["label"]) for c in candidates if not reasons[c["subject"]])
    for site in sorted({site for site, _ in left}):
        negatives, positives = left[site, "0"], left[site, "1"]
        if min(negatives, positives) == 0:
            count = negatives + positives
            reason = f"site with one class: all {count} usable subjects of {site} are of one class"
        elif min(negatives, positives) < rules.min_subjects_per_class:
            reason = (
                f"site too small: {site} has {min(negatives, positives)} usable subjects in a "
                f"class, at least {rules.min_subjects_per_class} are needed"
            )
        else:
            continue
        for candidate in candidates:
            if candidate["site"] == site and not reasons[candidate["subject"]]:
                reasons[candidate["subject"]] = reason


def stop_if_bad(reasons: dict[str, str], cohort: str) -> None:
    """Under ``on_bad_subject: stop``, name the first subjects that would be excluded."""
    bad = [
        f"{subject}: {reason}"
        for subject, reason in reasons.items()
        if reason and _kind(reason) not in (NOT_SELECTED, NO_ROW)
    ]
    if bad:
        more = f"; and {len(bad) - 3} more" if len(bad) > 3 else ""
        raise BrioError(
            f"{len(bad)} of {len(reasons)} subjects of cohort {cohort} cannot be used "
            f"({'; '.join(bad[:3])}{more}); repair or remove them, or set on_bad_subject: exclude"
        )


def check_enough(candidates: list[dict], reasons: dict[str, str], cohort: str) -> None:
    """Raise if nothing, or too few sites, are left."""
    sites = sorted({c["site"] for c in candidates if not reasons[c["subject"]]})
    if len(sites) >= MIN_SITES:
        return
    why = _most_common(reasons)
    if not sites:
        raise BrioError(
            f"no subject of cohort {cohort} is left after exclusion{why}; "
            "check source and columns in its dataset file"
        )
    raise BrioError(
        f"cohort {cohort} has {len(sites)} usable site(s) ({', '.join(sites)}){why}, but leaving "
        f"one out takes at least {MIN_SITES}; add sites or relax its inclusion rules"
    )


def _most_common(reasons: dict[str, str]) -> str:
    bad = [(subject, reason) for subject, reason in reasons.items() if reason]
    if not bad:
        return ""
    kind, count = Counter(_kind(reason) for _, reason in bad).most_common(1)[0]
    subject, reason = next(pair for pair in bad if _kind(pair[1]) == kind)
    return f" (most common reason, {count} times: {subject}, {reason})"


def _kind(reason: str) -> str:
    return reason.split(":")[0]


def summary(candidates: list[dict], reasons: dict[str, str], cohort: str) -> str:
    """Counts per reason and per site, as lines for the log."""
    kept = [c for c in candidates if not reasons[c["subject"]]]
    lines = [f"cohort {cohort}: {len(kept)} of {len(candidates)} candidate subjects kept"]
    kinds = Counter(_kind(reason) for reason in reasons.values() if reason)
    lines += [f"  excluded, {kind}: {count}" for kind, count in kinds.most_common()]
    width = max(len(c["site"]) for c in candidates)
    for site in sorted({c["site"] for c in candidates}):
        labels = Counter(c["label"] for c in kept if c["site"] == site)
        here = sum(c["site"] == site for c in candidates)
        lines.append(
            f"  {site:<{width}}  {labels.total()} of {here} kept "
            f"({labels['1']} positive, {labels['0']} negative)"
        )
    return "\n".join(lines)


def inclusion_rows(
    candidates: list[dict], outcomes: list[Outcome], reasons: dict[str, str]
) -> list[dict]:
    """The rows of inclusion.tsv."""
    rows = []
    for candidate, outcome in zip(candidates, outcomes):
        reason = reasons[candidate["subject"]]
        row = {name: candidate[name] for name in ("subject", "site", "label")}
        row |= {"kept": "no" if reason else "yes", "reason": reason}
        for name in _COUNTS:
            count = getattr(outcome, name)
            row[name] = "n/a" if count < 0 else count
        rows.append(row)
    return rows
