"""Seeds of a variant are trained, and then diagnosed, in one job: it starts once.

A rule of Snakemake makes a fixed list of files. The rules ``train`` and ``diagnose`` make those of
one seed, and here they learn to make those of several: a job's wildcard ``seed`` is then 0+1+2.
"""

import os
from collections import defaultdict
from collections.abc import Iterable
from functools import cached_property

from snakemake.io import IOFile
from snakemake.iocontainers import OutputFiles

from workflow.planning.configuration import Configuration
from workflow.planning.outputs import diagnosed_runs
from workflow.planning.paths import Run, runs_of
from workflow.planning.records import Unrecorded
from workflow.planning.runs import experiment_runs
from workflow.planning.sources import has_gpu

# More in one job would make a name that no disk takes.
MOST = 20


class SeedsTogether:
    """The seeds of the jobs of a rule: those that the targets need and that are in one state."""

    def __init__(self, rule: str, workflow, configuration: Configuration, unrecorded: Unrecorded):
        self._workflow = workflow
        self._configuration = configuration
        self._paths = configuration.paths
        self._unrecorded = unrecorded
        self._rule = workflow.get_rule(rule)
        self._match = self._rule.get_wildcards
        self._rule.get_wildcards = self._get_wildcards
        self._rule.expand_output = self._expand_output

    def runs(self, experiments: list[str]) -> Iterable[Run]:
        """The runs of experiments that the rule is needed for."""
        raise NotImplementedError

    def state(self, run: Run) -> tuple:
        """What is there of a run.

        Jobs hold runs of one state, so nothing is done in vain. Who has three seeds and asks for
        five gets two.
        """
        raise NotImplementedError

    def job_of(self, run: Run) -> str:
        """The seeds of the job of a run, as its wildcard names them."""
        if run not in self._jobs:
            self._share(run)
        return self._jobs[run]

    def _recorded(self, file: str) -> tuple:
        """The parameters that a file was made with, if it is known."""
        return tuple(self._workflow.persistence.params(IOFile(file)) or ())

    def _get_wildcards(self, requested_output, wildcards_dict=None) -> dict:
        """The wildcards of the job that makes a file."""
        found = self._match(requested_output, wildcards_dict)
        run, *others = runs_of(**found)
        return found if others else found | {"seed": self.job_of(run)}

    def _expand_output(self, wildcards: dict) -> tuple:
        """The files of a job, and the pattern of the rule that each is of."""
        patterns = self._rule.output
        pairs = [
            (pattern.apply_wildcards({**wildcards, "seed": run.numbers}), pattern)
            for run in runs_of(**wildcards)
            for pattern in patterns
        ]
        files = OutputFiles(file for file, _ in pairs)
        files._take_names(patterns._get_names())
        return files, dict(pairs)

    @cached_property
    def _jobs(self) -> dict[Run, str]:
        """The seeds of the job of every run, as far as they are known.

        A job of a cluster is told which seeds it has, and does not look for itself.
        """
        records, usual = self._workflow.persistence, self._workflow.persistence.input_changed
        # Which other seeds a job had is no reason to do it again.
        records.input_changed = lambda job, file=None: (
            () if job.rule is self._rule else usual(job, file)
        )
        specs = self._workflow.dag_settings.target_jobs
        told = [spec.wildcards_dict for spec in specs if spec.rulename == self._rule.name]
        return {run: one["seed"] for one in told for run in runs_of(**one)}

    def _share(self, run: Run) -> None:
        """Share the seeds that are wanted of a variant out to jobs."""
        wanted = self._wanted.get(run._replace(seed=0), [])
        states = defaultdict(list)
        for one in wanted if run in wanted else [run]:
            states[self.state(one)].append(one)
        most = self._most(run.variant)
        for runs in states.values():
            for first in range(0, len(runs), most):
                job = runs[first : first + most]
                seeds = "+".join([*(str(one.seed) for one in job[:-1]), job[-1].numbers])
                self._jobs.update(dict.fromkeys(job, seeds))

    @cached_property
    def _wanted(self) -> dict[Run, list[Run]]:
        """Runs that differ by their seeds only, of the experiments that the targets name.

        Who asks for files, or for work to be done elsewhere, gets one seed in a job.
        """
        targets = self._workflow.dag_settings.targets
        if "remote" in targets or not all(map(self._workflow.is_rule, targets)):
            return {}
        known, active = self._configuration.experiments, self._configuration.config["experiments"]
        names = [name for name in targets if name in known]
        names = [*names, *active] if len(names) < max(1, len(targets)) else names
        wanted = defaultdict(list)
        for run in dict.fromkeys(self.runs(names)):
            wanted[run._replace(seed=0)].append(run)
        return wanted

    def _most(self, variant: str) -> int:
        """Seeds of a job. On processors there should be two jobs for each of them."""
        on_gpu = self._configuration.device_of(variant) != "cpu" and has_gpu()
        if on_gpu or not self._workflow.local_exec:
            return MOST
        runs, cores = sum(map(len, self._wanted.values())), self._workflow.resource_settings.cores
        return min(MOST, max(1, runs // (2 * (cores or 1))))


class Trained(SeedsTogether):
    """Seeds that are trained together."""

    def runs(self, experiments: list[str]) -> Iterable[Run]:
        """All runs."""
        return (run for one in experiments for run in experiment_runs(self._configuration, one))

    def state(self, run: Run) -> tuple:
        """Which files are there, and by which parameters.

        Models may be missing; where they are wanted a rule asks for them.
        """
        folder = self._paths.run(run)
        names = map(os.path.basename, self._rule.output)
        there = [os.path.exists(f"{folder}/{name}") for name in names]
        self._unrecorded.lost(folder, "predictions.csv", "history.csv")
        return self._unrecorded.train(run), *there, *self._recorded(f"{folder}/meta.json")


class Diagnosed(SeedsTogether):
    """Seeds that are diagnosed together: no more than were trained together."""

    def __init__(self, trained: Trained, *others) -> None:
        super().__init__(*others)
        self._trained = trained

    def runs(self, experiments: list[str]) -> Iterable[Run]:
        """Runs whose diagnostics a table or figure shows."""
        return diagnosed_runs(self._configuration, experiments)

    def state(self, run: Run) -> tuple:
        """Whether the folder is there, by which parameters, and together with which runs.

        With a run that was trained later, it would look too old.
        """
        folder = self._paths.diagnostics(run)
        there = self._unrecorded.diagnose(run), os.path.exists(folder)
        together = self._workflow.persistence.input(IOFile(folder)) or ()
        return self._trained.job_of(run), *there, *self._recorded(folder), *together
