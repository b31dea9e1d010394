"""What a run is called, and where files are; rules and their input functions agree through this."""

from typing import NamedTuple

TABLE_FORMATS = ("csv", "md", "tex", "json")
FIGURE_FORMATS = ("pdf", "png")


class Run(NamedTuple):
    """One training, which holds all folds of its protocol.

    The last three fields are reserved. A further one needs a default, and a run that has the
    default keeps its folder.
    """

    cohort: str
    protocol: str
    variant: str
    seed: int
    ring: int = 0
    draw: int = 0
    connectivity: str = "fisher-z"

    @property
    def folder(self) -> str:
        """Its folder below ``runs`` and ``diagnostics``."""
        defaults = self._field_defaults
        others = [name for name in defaults if getattr(self, name) != defaults[name]]
        suffix = "".join(f"-{name}-{getattr(self, name)}" for name in others)
        return f"{self.cohort}/{self.protocol}/{self.variant}/seed-{self.seed}{suffix}"


class Paths:
    """Paths below the folder of results."""

    def __init__(self, results: str) -> None:
        self.results = results
        self.overview = f"{results}/index.html"
        self.run_config = f"{results}/run_config.yaml"
        self.remote = f"{results}/remote"

    def cohort(self, cohort: str, file: str) -> str:
        """A file of a cohort."""
        return f"{self.results}/cohorts/{cohort}/{file}"

    def split(self, cohort: str, protocol: str) -> str:
        """The folds of a cohort under a protocol."""
        return f"{self.results}/splits/{cohort}/{protocol}.json"

    def block_length(self, cohort: str, protocol: str) -> str:
        """The block length of every fold."""
        return f"{self.results}/blocklength/{cohort}/{protocol}.json"

    def run(self, run: Run) -> str:
        """The folder of a trained run."""
        return f"{self.results}/runs/{run.folder}"

    def diagnostics(self, run: Run) -> str:
        """The folder with the diagnostics of a run, whichever experiment asks for them."""
        return f"{self.results}/diagnostics/{run.folder}"

    def summary(self, experiment: str, cohort: str, protocol: str, sites: bool = False) -> str:
        """The summary of an experiment's runs: one row per variant, or per variant and site."""
        suffix = "-sites" if sites else ""
        return f"{self.results}/summaries/{experiment}/{cohort}/{protocol}{suffix}.csv"

    def table(self, name: str, suffix: str) -> str:
        """A table in one of its formats."""
        return f"{self.results}/tables/{name}.{suffix}"

    def figure(self, name: str, suffix: str) -> str:
        """A figure in one of its formats."""
        return f"{self.results}/figures/{name}.{suffix}"
