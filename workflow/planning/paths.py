"""Where files are; the rules and their input functions agree through this module."""

from workflow.planning.runs import Run

COHORT_FILES = ("participants.tsv", "inclusion.tsv", "series.h5", "fc.h5")
TABLE_FORMATS = ("csv", "md", "tex", "json")
FIGURE_FORMATS = ("pdf", "png")


class Paths:
    """Paths below the folder of results."""

    def __init__(self, results: str) -> None:
        self.results = results

    def cohort(self, cohort: str, file: str = "") -> str:
        """The folder of a cohort, or a file in it."""
        return f"{self.results}/cohorts/{cohort}" + (f"/{file}" if file else "")

    def split(self, cohort: str, protocol: str) -> str:
        """The folds of a cohort under a protocol."""
        return f"{self.results}/splits/{cohort}/{protocol}.json"

    def block_length(self, cohort: str, protocol: str) -> str:
        """The block length of every fold."""
        return f"{self.results}/blocklength/{cohort}/{protocol}.json"

    def run(self, run: Run) -> str:
        """The folder of a trained run."""
        return f"{self.results}/runs/{_folder(run)}"

    def diagnostics(self, run: Run) -> str:
        """The folder with the diagnostics of a run, whichever experiment asks for them."""
        return f"{self.results}/diagnostics/{_folder(run)}"

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

    @property
    def overview(self) -> str:
        """The page that shows everything."""
        return f"{self.results}/index.html"

    @property
    def remote(self) -> str:
        """The folder that another machine gets."""
        return f"{self.results}/remote"

    @property
    def run_config(self) -> str:
        """The resolved configuration."""
        return f"{self.results}/run_config.yaml"


def _folder(run: Run) -> str:
    return f"{run.cohort}/{run.protocol}/{run.variant}/seed-{run.seed}"
