"""Every table and figure that an experiment can ask for.

Each has a file of its own in ``tables`` or ``figures`` with a literal ``OUTPUT``. It is read here
without importing the file, so that planning, the check of experiments and the manual need neither
pandas nor matplotlib. The keys of ``OUTPUT`` are the fields of :class:`Output`.
"""

import ast
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
KINDS = ("tables", "figures")
# The method that the paper is about; others are compared with it unless said otherwise.
REFERENCE = "brio"
# What an output may be made of: the kind of file, and what it holds.
FILES = {
    "summaries": ("CSV", "summaries of experiments"),
    "sites": ("CSV", "scores per fold"),
    "runs": ("DIR", "run folders"),
    "diagnostics": ("DIR", "folders of diagnostics, one per run"),
    "block_lengths": ("JSON", "block lengths of the folds"),
    "inclusion": ("TSV", "inclusion.tsv of every cohort"),
    "participants": ("TSV", "participants.tsv of every cohort"),
    "regions": ("TSV", "regions.tsv of every cohort"),
    "profiles": ("TSV", "site profiles of the cohorts"),
    "config": ("YAML", "run_config.yaml"),
    "methods": ("YAML", "files of the methods"),
}
BEFORE_TRAINING = {"inclusion", "participants", "regions", "profiles", "block_lengths"}
"""Files that exist before anything is trained."""


# Sections of the overview page in its order; one that is not listed comes before "permuted".
SECTIONS = {
    "results": "Results",
    "comparison": "Are differences significant?",
    "permuted": "Check: permuted labels",
    "paper": "Comparison with the paper",
    "cohort": "Cohorts and who is in them",
    "method": "The method in one picture",
    "training": "Training",
    "diagnostics": "Diagnostics",
    "efficiency": "Cost",
    "settings": "Choices that the paper leaves open",
}


class Output(NamedTuple):
    """A table or figure. Title and caption are those of the experiment if empty."""

    kind: str
    name: str
    file: str
    files: tuple[str, ...] = ()
    """What it is made of, keys of :data:`FILES`."""
    page: str = "results"
    """Its section of the overview page."""
    title: str = ""
    caption: str = ""
    options: tuple[str, ...] = ()
    """Further keys that its entry in an experiment may have."""
    reads: tuple[str, ...] = ()
    """Patterns of files of the repository that it reads; a change of one makes it again."""
    shows_subjects: bool = False
    """Whether it marks single subjects; documents, which are for everybody, leave it out."""

    @property
    def category(self) -> str:
        """Its section as a category of Snakemake's report, which sorts these by their names."""
        place = list(SECTIONS).index(self.page if self.page in SECTIONS else "permuted")
        return f"{place + 1:02} {SECTIONS.get(self.page, self.page)}"

    @property
    def before_training(self) -> bool:
        """Whether it shows the data and waits for no training."""
        return bool(self.files) and BEFORE_TRAINING.issuperset(self.files)

    @property
    def code(self) -> tuple[str, ...]:
        """The files whose code makes it."""
        read = [path for pattern in self.reads for path in sorted(ROOT.glob(pattern))]
        program = f"scripts/{self.kind.removesuffix('s')}.py"
        return (program, self.file, *(str(path.relative_to(ROOT)) for path in read))


@lru_cache
def catalogue(kind: str) -> dict[str, Output]:
    """All ``tables`` or ``figures``, by the name of their file."""
    folder = Path(__file__).parent / kind
    paths = [path for path in sorted(folder.glob("*.py")) if path.stem != "__init__"]
    return {path.stem: _read(kind, path) for path in paths}


def _read(kind: str, path: Path) -> Output:
    for node in ast.parse(path.read_bytes(), str(path)).body:
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "OUTPUT":
            found = ast.literal_eval(node.value)
            values = {key: tuple(v) if isinstance(v, list) else v for key, v in found.items()}
            return Output(kind, path.stem, str(path.relative_to(ROOT)), **values)
    raise ValueError(f"{path} has no OUTPUT, from which the catalogue would know it; write one")
