"""Tables and figures: what the catalogue and the experiments say, and of which files they are."""

import json
import shlex
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property, lru_cache
from pathlib import Path

from brio_core.reporting.catalogue import KINDS, REFERENCE, catalogue
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


class Item:
    """A table or figure of an experiment, or a table of all active experiments together.

    ``entry`` is what the experiment's file says. Title and caption that it leaves out are those of
    the catalogue or of the experiment.
    """

    def __init__(
        self, configuration: Configuration, kind: str, entry: dict, experiment: str = ""
    ) -> None:
        self.kind = kind
        self.name = entry["name"]
        self.experiment = experiment
        self.output = catalogue(kind)[entry[kind.removesuffix("s")]]
        about = configuration.experiments.get(experiment, {})
        words = {
            key: getattr(self.output, key) or about.get(key, "") for key in ("title", "caption")
        }
        self.entry = words | entry
        self._configuration = configuration

    @property
    def takes_diagnostics(self) -> bool:
        """Whether it shows diagnostics of runs."""
        return "diagnostics" in self.output.files

    @cached_property
    def runs(self) -> list[Run]:
        """The runs that it is made of."""
        runs = self._chosen(experiment_runs(self._configuration, self.experiment))
        if self.takes_diagnostics and self._configuration.config["untrained"] == "skip":
            folders = {run: Path(self._configuration.paths.diagnostics(run)) for run in runs}
            runs = [run for run in runs if (folders[run] / "meta.json").exists()]
        return runs

    @cached_property
    def planned_runs(self) -> list[Run]:
        """The same with the skipped ones, which a table shows as not run."""
        return self._chosen(wanted_runs(self._configuration, self.experiment))

    def _chosen(self, runs: Iterable[Run]) -> list[Run]:
        for key in ("cohort", "protocol", "variant"):
            if (names := self.entry.get(f"{key}s")) is not None:
                runs = [run for run in runs if getattr(run, key) in names]
        if self.takes_diagnostics:
            # Those of the first ring say what there is to say.
            chosen = (run for run in runs if not run.ring)
            runs = [run for run in chosen if self._configuration.method_of(run.variant)["diagnose"]]
        return list(runs)

    @property
    def planned(self) -> dict:
        """What belongs into a table: its (cohort, protocol) pairs and its variants."""
        variants = []
        for variant in dict.fromkeys(run.variant for run in self.planned_runs):
            method = self._configuration.method_of(variant)
            change = self._configuration.variants[variant][1]
            words = {"method": method["method"], "label": change["label"], "group": method["group"]}
            variants.append({"variant": variant, **words, "change": change["hyperparameters"]})
        pairs = list(dict.fromkeys(run[:2] for run in self.planned_runs))
        return {"pairs": pairs, "variants": variants}

    @property
    def made_of(self) -> dict[str, list[str]]:
        """The files that it is made of, by option; for ``runs`` their folders."""
        if not self.experiment:
            return whole_run_inputs(self._configuration, *self.output.files)
        pairs = [run[:2] for run in self.runs]
        summaries = [(self.experiment, *pair) for pair in pairs]
        cohorts = [cohort for cohort, _ in pairs]
        options = self.output.files
        return _inputs(self._configuration, options, self.runs, pairs, summaries, cohorts)

    @property
    def inputs(self) -> dict[str, list[str]]:
        """The same as inputs of a rule; of a run the file that is written last stands for all."""
        found = self.made_of
        if "runs" in found:
            found["runs"] = [f"{run}/meta.json" for run in found["runs"]]
        return {option: files for option, files in found.items() if option not in NO_INPUT}

    @property
    def command(self) -> str:
        """What ``scripts/table.py`` or ``figure.py`` is told, but where to write."""
        words = [self.output.name]
        for option, files in self.made_of.items():
            words += [f"--{option.replace('_', '-')}", *files]
        keys = ("title", "caption", *self.output.options)
        own = {key: self.entry[key] for key in keys if key in self.entry}
        if "reference" in self.output.options:
            own["reference"] = self.reference
        if "margin" in self.output.options:
            own["margin"] = self._configuration.config["margin"]
        cohorts = self._configuration.datasets
        if self.experiment:
            cohorts = dict.fromkeys(run.cohort for run in self.planned_runs)
            if self.kind == "tables":
                words += ["--planned", as_json(self.planned)]
        datasets = {cohort: about(self._configuration, cohort) for cohort in cohorts}
        return shlex.join([*words, "--entry", as_json(own), "--datasets", as_json(datasets)])

    @property
    def reference(self) -> str:
        """The variant that a table compares the others with: the first of these that it shows.

        Its own, that of the configuration, BRIO, the first linear row, the first variant.
        """
        method_of = self._configuration.method_of
        variants = list(dict.fromkeys(run.variant for run in self.runs))
        linear = [one for one in variants if method_of(one)["group"] == "Linear"]
        stated = (self.entry.get("reference"), self._configuration.config["reference"])
        stated = [canonical_variant(self._configuration, one) for one in stated if one]
        return next(one for one in (*stated, REFERENCE, *linear, *variants) if one in variants)

    @property
    def heading(self) -> dict:
        """What Snakemake's report says of it, without what it would take for HTML."""
        words = {"experiment": self.experiment} if self.experiment else {}
        return json.loads(as_json(words | self.entry).replace("\\u003c", "‹"))


@lru_cache
def items(configuration: Configuration, kind: str) -> dict[str, Item]:
    """All ``tables`` or ``figures`` by name, whether or not they have something to show."""
    whole_run = WHOLE_RUN if kind == "tables" else {}
    found = {
        name: Item(configuration, kind, {"name": name, **entry})
        for name, entry in whole_run.items()
    }
    for experiment, content in configuration.experiments.items():
        for entry in content["outputs"][kind]:
            item = Item(configuration, kind, entry, experiment)
            for one in _per_cohort(configuration, item) if entry.get("per_cohort") else [item]:
                found.setdefault(one.name, one)
    return found


def _per_cohort(configuration: Configuration, item: Item) -> Iterator[Item]:
    """A table or figure that is made per cohort is several."""
    for cohort, dataset in configuration.datasets.items():
        title = f"{item.entry['title']}: {dataset.get('title', cohort)}"
        own = {"name": f"{item.name}-{cohort}", "title": title, "cohorts": [cohort]}
        yield Item(configuration, item.kind, item.entry | own, item.experiment)


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


def whole_run_inputs(configuration: Configuration, *options: str) -> dict[str, list[str]]:
    """The files that something of all active experiments is made of, by option."""
    summaries = active_pairs(configuration, changed=False)
    pairs = [pair for _, *pair in summaries if pair[1] == "loso"]
    cohorts = [cohort for _, cohort, _ in active_pairs(configuration)]
    active = configuration.config["experiments"]
    runs = diagnosed_runs(configuration, active) if "diagnostics" in options else ()
    return _inputs(configuration, options, runs, pairs, summaries, cohorts)


def diagnosed_runs(configuration: Configuration, experiments: Sequence[str]) -> list[Run]:
    """The runs whose diagnostics the tables and figures of some experiments show."""
    shown_items = (one for kind in KINDS for one in shown_by(configuration, kind, experiments))
    runs = (run for item in shown_items if item.takes_diagnostics for run in item.runs)
    return list(dict.fromkeys(runs))


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


def about(configuration: Configuration, cohort: str) -> dict:
    """What tables, figures and the overview say about a cohort."""
    keys = ("title", "task", "label", "rois")
    return {key: value for key, value in configuration.datasets[cohort].items() if key in keys}


def as_json(value: object) -> str:
    """Resolved configuration as one argument of a command line.

    Snakemake's report has it within a script, which a '<' could end.
    """
    return json.dumps(value, sort_keys=True, ensure_ascii=False).replace("<", "\\u003c")


def shown_by(configuration: Configuration, kind: str, experiments: Sequence[str]) -> list[Item]:
    """The tables or figures of some experiments that have something to show."""
    found = items(configuration, kind).values()
    return [one for name in experiments for one in found if one.experiment == name and one.runs]


def experiments_with_results(configuration: Configuration) -> list[str]:
    """Experiments with a table or figure to show, and runs that none before them has.

    Diagnostics of the same runs are shown by one experiment only.
    """
    found: list[str] = []
    seen: set[Run] = set()
    for name in configuration.config["experiments"]:
        own = set(experiment_runs(configuration, name)) - seen
        shows = own or diagnosed_runs(configuration, (name,))
        if shows and any(shown_by(configuration, kind, (name,)) for kind in KINDS):
            found.append(name)
            seen |= own
    return found


def output_files(
    configuration: Configuration, kind: str, experiments: Sequence[str], *formats: str
) -> list[str]:
    """The files of the tables or figures of some experiments, in all formats or the given."""
    names = [one.name for one in shown_by(configuration, kind, experiments)]
    return configuration.paths.outputs(kind, names, *formats)


def data_files(configuration: Configuration) -> list[str]:
    """The tables and figures that show the data and wait for no training."""
    found = []
    for kind in KINDS:
        shown_items = shown_by(configuration, kind, configuration.config["experiments"])
        names = [one.name for one in shown_items if one.output.before_training]
        found += configuration.paths.outputs(kind, names)
    return found
