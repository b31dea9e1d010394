"""Tables and figures: what the catalogue and the experiments say, and of which files they are."""

import json
import shlex
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path

from brio_core.reporting.catalogue import KINDS, REFERENCE, Output, catalogue
from workflow.planning.configuration import Configuration
from workflow.planning.files import shown
from workflow.planning.paths import Run
from workflow.planning.runs import active_runs, canonical_variant, experiment_runs, wanted_runs

# Tables of all active experiments together.
WHOLE_RUN = {
    "claims": {"table": "claims"},
    "paper_vs_ours": {"table": "paper_vs_ours"},
    "settings": {"table": "settings", "title": "Open choices: BRIO and all methods"},
    "settings-others": {
        "table": "settings",
        "title": "Open choices: other methods",
        "other_methods": True,
    },
}
# Files that are written or known before the first job; rules follow their content, not the files.
NO_INPUT = ("config", "methods")


@lru_cache
def item(configuration: Configuration, kind: str, name: str) -> dict:
    """A table or figure, with what it takes over from the catalogue and from its experiment."""
    if kind == "tables" and name in WHOLE_RUN:
        return _completed({"name": name, **WHOLE_RUN[name]}, kind, {})
    for experiment, content in configuration.experiments.items():
        for entry in _entries(configuration, experiment, kind):
            if entry["name"] == name:
                return {"experiment": experiment, **_completed(entry, kind, content)}
    raise KeyError(f"no experiment has the {kind[:-1]} {name!r}")


def _completed(entry: dict, kind: str, experiment: dict) -> dict:
    """An entry with title and caption: its own, the catalogue's or the experiment's."""
    output = catalogue(kind)[entry[kind[:-1]]]
    taken = {key: getattr(output, key) or experiment.get(key, "") for key in ("title", "caption")}
    return {**taken, **entry}


def _entries(configuration: Configuration, experiment: str, kind: str) -> Iterator[dict]:
    """The tables or figures in an experiment's file; one that is made per cohort is several."""
    content = configuration.experiments[experiment]
    for entry in content["outputs"][kind]:
        if not entry.get("per_cohort"):
            yield entry
            continue
        title = _completed(entry, kind, content)["title"]
        for cohort, dataset in configuration.datasets.items():
            name = f"{entry['name']}-{cohort}"
            own_title = f"{title}: {dataset.get('title', cohort)}"
            yield {**entry, "name": name, "title": own_title, "cohorts": [cohort]}


def output_of(configuration: Configuration, kind: str, name: str) -> Output:
    """What the catalogue says about a table or figure."""
    return catalogue(kind)[item(configuration, kind, name)[kind[:-1]]]


def takes_diagnostics(configuration: Configuration, kind: str, name: str) -> bool:
    """Whether a table or figure shows diagnostics of runs."""
    return "diagnostics" in output_of(configuration, kind, name).files


@lru_cache
def item_runs(
    configuration: Configuration, kind: str, name: str, with_skipped: bool = False
) -> tuple[Run, ...]:
    """The runs that a table or figure is made of; a table shows the skipped ones as not run."""
    entry = item(configuration, kind, name)
    chosen = wanted_runs if with_skipped else experiment_runs
    runs = chosen(configuration, entry["experiment"])
    for key in ("cohort", "protocol", "variant"):
        if (names := entry.get(f"{key}s")) is not None:
            runs = [run for run in runs if getattr(run, key) in names]
    if takes_diagnostics(configuration, kind, name):
        # Those of the first ring say what there is to say.
        chosen = (run for run in runs if not run.ring)
        runs = [run for run in chosen if configuration.method_of(run.variant)["diagnose"]]
        if configuration.config["untrained"] == "skip" and not with_skipped:
            folders = {run: Path(configuration.paths.diagnostics(run)) for run in runs}
            runs = [run for run in runs if (folders[run] / "meta.json").exists()]
    return tuple(runs)


def planned(configuration: Configuration, kind: str, name: str) -> dict:
    """What belongs into a table: its (cohort, protocol) pairs and its variants."""
    runs = item_runs(configuration, kind, name, with_skipped=True)
    variants = []
    for variant in dict.fromkeys(run.variant for run in runs):
        method, change = configuration.method_of(variant), configuration.variants[variant][1]
        words = {"method": method["method"], "label": change["label"], "group": method["group"]}
        variants.append({"variant": variant, **words, "change": change["hyperparameters"]})
    return {"pairs": list(dict.fromkeys(run[:2] for run in runs)), "variants": variants}


@lru_cache
def active_pairs(configuration: Configuration, changed: bool = True) -> list[tuple]:
    """(experiment, cohort, protocol) of the active experiments.

    Without ``changed`` ones there are neither permuted labels nor fewer subjects.
    """
    active = configuration.config["experiments"]
    runs = [(name, run) for name in active for run in experiment_runs(configuration, name)]
    pairs = dict.fromkeys((name, run.cohort, run.protocol) for name, run in runs)
    return [pair for pair in pairs if changed or pair[2] in ("loso", "id")]


def whole_run_tables(configuration: Configuration) -> list[str]:
    """Tables of the whole run; with permuted labels alone there is nothing to compare."""
    compared = active_pairs(configuration, changed=False)
    return [name for name in WHOLE_RUN if compared or name not in ("claims", "paper_vs_ours")]


def used_methods(configuration: Configuration) -> list[Path]:
    """Files of the methods of the active experiments."""
    runs = active_runs(configuration)
    names = dict.fromkeys(configuration.variants[run.variant][0] for run in runs)
    return [configuration.find("methods", name) for name in names]


def output_inputs(configuration: Configuration, kind: str, name: str) -> dict[str, list[str]]:
    """The files that a table or figure is made of, by option; for ``runs`` their folders."""
    options = output_of(configuration, kind, name).files
    if kind == "tables" and name in WHOLE_RUN:
        return whole_run_inputs(configuration, *options)
    runs = item_runs(configuration, kind, name)
    experiment = item(configuration, kind, name)["experiment"]
    pairs = [run[:2] for run in runs]
    summaries = [(experiment, *pair) for pair in pairs]
    return _inputs(configuration, options, runs, pairs, summaries, [run.cohort for run in runs])


def whole_run_inputs(configuration: Configuration, *options: str) -> dict[str, list[str]]:
    """The same for what is made of all active experiments."""
    summaries = active_pairs(configuration, changed=False)
    pairs = [pair for _, *pair in summaries if pair[1] == "loso"]
    cohorts = [cohort for _, cohort, _ in active_pairs(configuration)]
    active = configuration.config["experiments"]
    runs = diagnosed_runs(configuration, active) if "diagnostics" in options else ()
    return _inputs(configuration, options, runs, pairs, summaries, cohorts)


def diagnosed_runs(configuration: Configuration, experiments: Sequence[str]) -> list[Run]:
    """The runs whose diagnostics the tables and figures of some experiments show."""
    return list(dict.fromkeys(
        run
        for kind in KINDS
        for name in output_names(configuration, kind, experiments)
        if takes_diagnostics(configuration, kind, name)
        for run in item_runs(configuration, kind, name)
    ))  # fmt: skip


def _inputs(
    configuration: Configuration, options: Sequence[str], runs, pairs, summaries, cohorts
) -> dict[str, list[str]]:
    paths = configuration.paths
    made = {
        "inclusion": lambda: [paths.cohort(cohort, "inclusion.tsv") for cohort in cohorts],
        "participants": lambda: [paths.cohort(cohort, "participants.tsv") for cohort in cohorts],
        "regions": lambda: [paths.cohort(cohort, "regions.tsv") for cohort in cohorts],
        "profiles": lambda: [paths.cohort(cohort, "site_profile.tsv") for cohort in cohorts],
        "block_lengths": lambda: [paths.block_length(*pair) for pair in pairs],
        "runs": lambda: [paths.run(run) for run in runs],
        "diagnostics": lambda: [paths.diagnostics(run) for run in runs],
        "summaries": lambda: [paths.summary(*one) for one in summaries],
        "sites": lambda: [paths.summary(*one, "-sites.csv") for one in summaries],
        "config": lambda: [paths.run_config],
        "methods": lambda: [shown(path) for path in used_methods(configuration)],
    }
    return {option: list(dict.fromkeys(made[option]())) for option in options}


def input_files(configuration: Configuration, kind: str, name: str) -> dict[str, list[str]]:
    """The same as inputs of a rule; of a run the file that is written last stands for all."""
    found = output_inputs(configuration, kind, name)
    if "runs" in found:
        found["runs"] = [f"{run}/meta.json" for run in found["runs"]]
    return {option: files for option, files in found.items() if option not in NO_INPUT}


def command_options(configuration: Configuration, kind: str, name: str) -> str:
    """What ``scripts/table.py`` or ``figure.py`` is told, but where to write."""
    output, entry = output_of(configuration, kind, name), item(configuration, kind, name)
    words = [output.name]
    for option, files in output_inputs(configuration, kind, name).items():
        words += [f"--{option.replace('_', '-')}", *files]
    own = {key: entry[key] for key in ("title", "caption", *output.options) if key in entry}
    if "reference" in output.options:
        own["reference"] = reference(configuration, kind, name)
    if "margin" in output.options:
        own["margin"] = configuration.config["margin"]
    cohorts = list(configuration.datasets)
    if "experiment" in entry:
        runs = item_runs(configuration, kind, name, with_skipped=True)
        cohorts = list(dict.fromkeys(run.cohort for run in runs))
        if kind == "tables":
            words += ["--planned", as_json(planned(configuration, kind, name))]
    datasets = {cohort: about(configuration, cohort) for cohort in cohorts}
    return shlex.join([*words, "--entry", as_json(own), "--datasets", as_json(datasets)])


def reference(configuration: Configuration, kind: str, name: str) -> str:
    """The variant that a table compares the others with: the first of these that it shows.

    Its own, that of the configuration, BRIO, the first linear row, the first variant.
    """
    variants = list(dict.fromkeys(run.variant for run in item_runs(configuration, kind, name)))
    linear = [one for one in variants if configuration.method_of(one)["group"] == "Linear"]
    stated = (item(configuration, kind, name).get("reference"), configuration.config["reference"])
    stated = [canonical_variant(configuration, one) for one in stated if one]
    return next(one for one in (*stated, REFERENCE, *linear, *variants) if one in variants)


def about(configuration: Configuration, cohort: str) -> dict:
    """What tables, figures and the overview say about a cohort."""
    keys = ("title", "task", "label", "rois")
    return {key: value for key, value in configuration.datasets[cohort].items() if key in keys}


def as_json(value: object) -> str:
    """Resolved configuration as one argument of a command line.

    Snakemake's report has it within a script, which a '<' could end.
    """
    return json.dumps(value, sort_keys=True, ensure_ascii=False).replace("<", "\\u003c")


def report_item(configuration: Configuration, kind: str, name: str) -> dict:
    """What Snakemake's report says of a table or figure, without what it would take for HTML."""
    return json.loads(as_json(item(configuration, kind, name)).replace("\\u003c", "‹"))


def output_names(configuration: Configuration, kind: str, experiments: Sequence[str]) -> list[str]:
    """Names of the tables or figures of some experiments that have something to show."""
    return [
        entry["name"]
        for experiment in experiments
        for entry in _entries(configuration, experiment, kind)
        if item_runs(configuration, kind, entry["name"])
    ]


def experiments_with_results(configuration: Configuration) -> list[str]:
    """Experiments with a table or figure to show, and runs that none before them has.

    Diagnostics of the same runs are shown by one experiment only.
    """
    found: list[str] = []
    seen: set[Run] = set()
    for name in configuration.config["experiments"]:
        own = set(experiment_runs(configuration, name)) - seen
        shows = own or diagnosed_runs(configuration, (name,))
        if shows and any(output_names(configuration, kind, (name,)) for kind in KINDS):
            found.append(name)
            seen |= own
    return found


def known_names(configuration: Configuration, kind: str) -> list[str]:
    """Names of all tables or figures, whether or not they have something to show."""
    names = [
        entry["name"]
        for experiment in configuration.experiments
        for entry in _entries(configuration, experiment, kind)
    ]
    return [*WHOLE_RUN, *names] if kind == "tables" else names


def output_files(
    configuration: Configuration, kind: str, experiments: Sequence[str], *formats: str
) -> list[str]:
    """The files of the tables or figures of some experiments, in all formats or the given."""
    names = output_names(configuration, kind, experiments)
    return configuration.paths.outputs(kind, names, *formats)


def data_files(configuration: Configuration) -> list[str]:
    """The tables and figures that show the data and wait for no training."""
    found = []
    for kind in KINDS:
        names = output_names(configuration, kind, configuration.config["experiments"])
        before = [one for one in names if output_of(configuration, kind, one).before_training]
        found += configuration.paths.outputs(kind, before)
    return found
