"""What a run is called, and where files are; rules and their input functions agree through this."""

from typing import NamedTuple

FORMATS = {"tables": ("csv", "md", "tex", "json"), "figures": ("pdf", "png", "svg")}


class Run(NamedTuple):
    """One training, which holds all folds of its protocol.

    ``ring`` numbers the rings of validation sites, from the first of ``split_seeds`` on; the first
    is not in its name. A draw of training subjects is a protocol: its split says who trains, and
    everything that carries a split's checksum carries the draw.
    """

    cohort: str
    protocol: str
    variant: str
    seed: int
    ring: int = 0

    @property
    def folder(self) -> str:
        """Its folder below ``runs`` and ``diagnostics``."""
        return f"{self.cohort}/{self.protocol}/{self.variant}/seed-{self.numbers}"

    @property
    def numbers(self) -> str:
        """Seed and ring, as the wildcard ``seed`` has them."""
        return f"{self.seed}{_end(self.ring)}"

    @property
    def identity(self) -> dict[str, str | int]:
        """What tells it from other runs, without what has its default."""
        defaults, values = self._field_defaults, self._asdict()
        return {name: value for name, value in values.items() if defaults.get(name) != value}


def runs_of(cohort: str, protocol: str, variant: str, seed: str) -> list[Run]:
    """The runs of a job, by its wildcards; ``seed`` may be 0+1+2, or 0+1+2-ring-1."""
    seeds, ring = seed.partition("-ring-")[0], ring_of(seed)
    return [Run(cohort, protocol, variant, int(one), ring) for one in seeds.split("+")]


def ring_of(name: str) -> int:
    """The number of the ring of validation sites that the name of a split or a run ends with."""
    return int(name.partition("-ring-")[2] or 0)


def _end(ring: int) -> str:
    return f"-ring-{ring}" if ring else ""


class Paths:
    """Paths below the folder of results."""

    def __init__(self, results: str) -> None:
        self.results = results
        self.overview = f"{results}/index.html"
        self.run_config = f"{results}/run_config.yaml"
        self.methods_text = f"{results}/methods.md"
        self.remote = f"{results}/remote"

    def cohort(self, cohort: str, file: str) -> str:
        """A file of a cohort."""
        return f"{self.results}/cohorts/{cohort}/{file}"

    def split(self, cohort: str, protocol: str, ring: int = 0) -> str:
        """The folds of a protocol."""
        return f"{self.results}/splits/{cohort}/{protocol}{_end(ring)}.json"

    def block_length(self, cohort: str, protocol: str, ring: int = 0) -> str:
        """The block length of every fold."""
        return f"{self.results}/blocklength/{cohort}/{protocol}{_end(ring)}.json"

    def run(self, run: Run) -> str:
        """The folder of a trained run."""
        return f"{self.results}/runs/{run.folder}"

    def diagnostics(self, run: Run) -> str:
        """The folder with the diagnostics of a run, whichever experiment asks for them."""
        return f"{self.results}/diagnostics/{run.folder}"

    def model(self, cohort: str, variant: str) -> str:
        """The bundle of a variant that was trained on all sites."""
        return f"{self.results}/models/{cohort}/{variant}.brio"

    def summary(self, experiment: str, cohort: str, protocol: str, end: str = ".csv") -> str:
        """The summary of an experiment's runs, or a file beside it with another ``end``."""
        return f"{self.results}/summaries/{experiment}/{cohort}/{protocol}{end}"

    def outputs(self, kind: str, names: list[str], *formats: str) -> list[str]:
        """The files of some ``tables`` or ``figures``, in all formats or the given."""
        folder = f"{self.results}/{kind}"
        return [f"{folder}/{name}.{end}" for name in names for end in formats or FORMATS[kind]]
