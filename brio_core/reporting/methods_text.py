"""The methods section of a paper, written from what a run did, with BibTeX of what it cites."""

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from brio_core.cohorts import MATCHED
from brio_core.cohorts.subsets import DRAWN
from brio_core.reporting import results
from brio_core.reporting.cohorts import CohortTables
from brio_core.reporting.table import listed, plural
from brio_core.system.errors import BrioError

SOFTWARE = {"brio": "BRIO", "python": "Python", "torch": "PyTorch", "numpy": "NumPy"}
EVERY_RUN = "all"
# What is said in words, not as a hyperparameter of a row.
_SAID = ("connectivity", "shrinkage", "selection")


class Reference(NamedTuple):
    """An entry of a BibTeX file; ``about`` are its keywords: methods, cohorts, or ``all``."""

    key: str
    about: tuple[str, ...]
    text: str


def read_references(paths: Iterable[str | Path]) -> list[Reference]:
    """The entries of BibTeX files; of two with the same key the first counts."""
    found: dict[str, Reference] = {}
    for path in paths:
        try:
            text = Path(path).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise BrioError(f"{path} cannot be read: {error}; give BibTeX in UTF-8") from None
        for entry in re.split(r"^(?=@)", text, flags=re.M)[1:]:
            # Between entries there may be comments.
            entry = entry[: entry.rfind("\n}") + 2] if "\n}" in entry else entry.strip()
            key = re.match(r"@\w+\s*\{\s*([^\s,{}]+)\s*,", entry)
            if not key or entry.count("{") != entry.count("}"):
                start = entry.splitlines()[0]
                raise BrioError(f"{path}: the entry {start!r} is no BibTeX; correct its braces")
            words = re.search(r"^\s*keywords\s*=\s*[{\"]([^}\"]*)", entry, flags=re.M | re.I)
            about = tuple(re.split(r"\s*,\s*", words[1].strip())) if words else ()
            found.setdefault(key[1], Reference(key[1], about, entry))
    return list(found.values())


def methods_text(
    run: dict,
    runs: Sequence[dict],
    cohorts: Sequence[CohortTables],
    citations: dict[str, str],
    references: Sequence[Reference],
) -> tuple[str, str]:
    """Markdown about one run of the workflow with keys such as ``[@kipf2017gcn]``, and BibTeX.

    Parameters
    ----------
    run : the resolved configuration (run_config.yaml)
    runs : what :func:`brio_core.reporting.results.read_runs` gives
    citations : by method, what its file says about its origin
    references : what may be cited
    """
    cited: dict[str, Reference] = {}

    def cite(*about: str) -> str:
        own = [one for one in references if set(one.about) & set(about)]
        cited.update((one.key, one) for one in own)
        return f" [{'; '.join(f'@{one.key}' for one in own)}]" if own else ""

    known = {method: place for place, method in enumerate(results.METHODS)}
    was_run = {one["variant"] for one in runs}
    variants = [one for one in run["variants"].items() if one[0] in was_run]
    variants = dict(sorted(variants, key=lambda one: known.get(one[1]["method"], len(known))))
    parts = [
        *(_cohort(cohort, run["datasets"].get(cohort.name, {}), cite) for cohort in cohorts),
        _connectivity(variants),
        _evaluation(run["config"], runs),
        _software(runs, cite),
    ]
    shared = _shared(variants)
    if shared:
        parts.append(f"Networks had these hyperparameters unless stated: {_values(shared)}.")
    rows = [_row(name, variants, shared, runs, citations, cite) for name in variants]
    external = results.ordered(one["variant"] for one in runs if one["device"] == results.EXTERNAL)
    if external:
        rows.append(f"- Predictions of external code, evaluated alike: {', '.join(external)}.")
    text = "\n\n".join([*parts, "\n".join(rows)])
    return text, "\n\n".join(one.text for one in cited.values())


def _cohort(cohort: CohortTables, dataset: dict, cite) -> str:
    facts, (negative, positive) = cohort.statistics, results.class_names(dataset)
    title = results.cohort_title({cohort.name: dataset}, cohort.name)
    rules, rois = dataset.get("inclusion", {}), dataset.get("rois", {}).get("expected")
    excluded = len(cohort.inclusion) - len(cohort.participants)
    reasons = ", ".join(f"{kind} ({number:,})" for kind, number in cohort.reasons.items())
    sentences = [
        f"We analysed resting-state fMRI of {plural(facts['samples'], 'subject')} of {title}"
        f"{cite(cohort.name)}: {facts['patients']:,} {positive}, {facts['controls']:,} {negative}, "
        f"from {plural(facts['sites'], 'site')}.",
        f"Of {plural(len(cohort.inclusion), 'candidate')}, {excluded:,} were excluded"
        + (f": {reasons}." if excluded else "."),
    ]
    needed = [
        f"at least {rules['min_frames']} frames" if rules.get("min_frames") else "",
        f"at most {100 * rules['max_constant_rois']:g} % constant ROIs"
        if rules.get("max_constant_rois") is not None
        else "",
        f"a mean framewise displacement of at most {rules['max_mean_fd']:g} mm"
        if rules.get("max_mean_fd") is not None
        else "",
        f"a site with at least {rules['min_subjects_per_class']} subjects of each class"
        if rules.get("min_subjects_per_class")
        else "",
    ]
    if any(needed):
        sentences.append(f"Scans needed {listed([one for one in needed if one])}.")
    ends = "time_points_min", "time_points_max"
    least, most = (f"{facts[end]:.0f}" for end in ends)
    length = least if least == most else f"{least} to {most}"
    mean = f"mean {facts['time_points_mean']:.1f}, SD {facts['time_points_sd']:.1f}"
    of = f" of {rois} regions" if rois else ""
    return " ".join([*sentences, f"Series{of} had {length} frames ({mean})."])


def _connectivity(variants: dict) -> str:
    used: dict[str, list[str]] = {}
    for one in variants.values():
        values = one["hyperparameters"]
        if (kind := values.get("connectivity")) is not None:
            words = results.CONNECTIVITY.get(kind, kind).format(values.get("shrinkage"))
            used.setdefault(words, []).append(one["label"])
    most = max(used, key=lambda words: len(used[words]), default="")
    others = [f"for {listed(used[words])}, {words}" for words in used if words != most]
    if not most:
        return "The methods read standardised ROI series or covariates."
    return f"Functional connectivity was {'; '.join([most, *others])}."


def _evaluation(config: dict, runs: Sequence[dict]) -> str:
    protocols = results.ordered(one["protocol"] for one in runs)
    sentences = []
    if "loso" in protocols:
        seeds = config.get("split_seeds", [0])
        rings = f"a ring of sites drawn with seed {seeds[0]}"
        if any(one.get("ring") for one in runs):
            rings = f"rings of sites drawn with seeds {listed(map(str, seeds))}"
        sentences.append(
            "Each site was tested once, by models that never saw it (leave one site out). The next "
            f"two on {rings} served for validation and the rest for training."
        )
    if "id" in protocols:
        sentences.append(
            "For sites seen in training we used ten folds, stratified by site and class."
        )
    more = [
        (_matching(results.PERMUTED, protocols), ("permutation", "of labels")),
        (_matching(DRAWN, protocols), ("draw", "of fewer training subjects")),
        (protocols.count(MATCHED), ("protocol", "with motion matched between classes")),
    ]
    more = [f"{plural(n, *first)} {rest}" for n, (*first, rest) in more if n]
    if more:
        sentences.append(f"Checks: {listed(more)}.")
    sentences.append(
        "The epoch or penalty with the highest mean AUC over validation sites was kept; validation "
        "log-loss decided ties. The score is the mean over sites of the AUC at a site, with "
        "Student's 95 % interval over sites. The Wilcoxon signed-rank test over sites, with Holm's "
        "correction, compared methods. A difference was called equivalent to none if its interval "
        f"lay within {100 * config['margin']:g} points of AUC."
    )
    return " ".join(sentences)


def _matching(pattern: re.Pattern, protocols: list[str]) -> int:
    return sum(pattern.fullmatch(one) is not None for one in protocols)


def _software(runs: Sequence[dict], cite) -> str:
    ours = [one for one in runs if one["device"] != results.EXTERNAL]
    used = [
        f"{name} {' and '.join(versions)}"
        for key, name in SOFTWARE.items()
        if (versions := results.ordered((one["versions"] or {}).get(key) or "" for one in ours))
        != [""]
    ]
    machines = listed(results.ordered(str(one["device"] or "unknown hardware") for one in ours))
    return (
        f"All methods were trained with the implementations of BRIO ({', '.join(used)}) in a "
        f"Snakemake workflow{cite(EVERY_RUN)} on {machines}."
    )


def _shared(variants: dict) -> dict:
    """Hyperparameters that all methods with epochs have, with the value that most of them have."""
    networks = [
        one["hyperparameters"]
        for name, one in variants.items()
        if name == one["method"] and "epochs" in one["hyperparameters"]
    ]
    if len(networks) < 2:
        return {}
    values = {key: [one.get(key) for one in networks] for key in networks[0] if key not in _SAID}
    return {key: max(own, key=own.count) for key, own in values.items() if None not in own}


def _row(name: str, variants: dict, shared: dict, runs, citations: dict, cite) -> str:
    own = variants[name]
    method, values = own["method"], own["hyperparameters"]
    usual = variants.get(method, {}).get("hyperparameters", {}) if name != method else shared
    omit = _SAID if name == method else ()
    changed = {k: v for k, v in values.items() if k not in omit and usual.get(k, ...) != v}
    seeds = sorted({one["seed"] for one in runs if one["variant"] == name})
    if name == method:
        origin = citations.get(method, "").rstrip(".")
        head = f"- {own['label']}{cite(method)}" + (f": {origin}" if origin else "")
        what = f"Hyperparameters: {_values(changed)}" if changed else "No further hyperparameters"
    else:
        label = variants.get(method, own)["label"]
        head = f"- {own['label']}: {label} but {_values(changed) or 'for the choice in folds'}"
        what = ""
    if values.get("selection") == "sources" and name == method:
        what += ". All source sites trained, and each in turn was left out to choose the penalty"
    if own.get("search"):
        what += f". Every fold chose by validation among {_values(own['search'])}"
    parts = [head, what, f"{'Seeds' if len(seeds) > 1 else 'Seed'} {listed(map(str, seeds))}"]
    return ". ".join(one.removeprefix(". ") for one in parts if one) + "."


def _values(values: dict) -> str:
    return ", ".join(f"{key} = {_value(value)}" for key, value in values.items())


def _value(value: object) -> str:
    if isinstance(value, dict):
        return f"({_values(value)})"
    if isinstance(value, list | tuple):
        return "/".join(map(_value, value))
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:g}" if isinstance(value, float) else str(value)
