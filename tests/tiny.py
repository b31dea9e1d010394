"""A lab's own folder with a cohort so small that the whole workflow runs on it in a minute."""

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import yaml

from tests.forked import Forked, quick_python, run_snakemake

ROOT = Path(__file__).resolve().parents[1]
# The part of `make soak` that runs: tests then do more, at other random moments in each part.
SOAK = os.environ.get("BRIO_SOAK")
SITES, PER_CLASS, ROIS, FRAMES = 5, 4, 8, 40
DATASET = {
    "cohort": "tiny",
    "title": "Tiny </script><script>alert(1)</script> cohort",
    "source": {"kind": "series", "folder": "tiny", "pattern": "series/{subject}.tsv"},
    "columns": {"subject": "participant_id", "site": "site", "label": "diagnosis"},
    "label": {"positive": "patient", "negative": "control"},
    "rois": {"expected": ROIS},
    "inclusion": {"min_frames": 30, "min_subjects_per_class": 3},
    "extract_batches": 1,
}
EXPERIMENT = {
    "title": "Tiny",
    "caption": "A few runs.",
    "runs": [{"protocols": ["loso"]}],
    "outputs": {
        "tables": [{"name": "tiny"}],
        "figures": [{"name": "tiny", "figure": "auc_by_site"}],
    },
}
CONFIG = {
    "cohorts": ["tiny"],
    "methods": ["gcn", "linear-correlation"],
    "experiments": ["tiny"],
    "seeds": [0],
    "device": "cpu",
    "overrides": {"gcn": {"epochs": 5, "patience": 0, "hidden": 8, "precision": "float32"}},
}


def cpu_seconds() -> float:
    """Of this process and of all programs that it has waited for."""
    return sum(os.times()[:4]) + Forked.cpu_seconds


class Lab:
    """The folder, and Snakemake in it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.config = folder / "config" / "tiny.yaml"
        self.results = folder / "results"

    def words(self, *words: object) -> list[str]:
        """What stands behind ``snakemake``."""
        here = ["--snakefile", ROOT / "Snakefile", "--directory", self.folder]
        config = ["--configfile", self.config]
        return list(map(str, [*words, *here, *config]))

    def environment(self, **variables: str) -> dict[str, str]:
        """Rules call ``python``, which must be this one."""
        merged = os.environ | {"OMP_NUM_THREADS": "1"} | variables
        merged["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{merged['PATH']}"
        return merged

    def snakemake(self, *words: object, **variables: str) -> subprocess.CompletedProcess:
        """Run Snakemake; the text of both streams is in ``stdout``."""
        environment = self.environment(**variables)
        if "PATH" not in variables:
            environment["PATH"] = f"{quick_python()}{os.pathsep}{environment['PATH']}"
        return run_snakemake(self.words(*words), ROOT, environment)

    def configure(self, **changes: object) -> None:
        """Write the configuration with some keys changed."""
        self.config.write_text(yaml.safe_dump({**CONFIG, **changes}))

    def checksums(self) -> dict[str, str]:
        """Predictions, histories and tables, which must not depend on where or when they are made.

        The page of settings and the list of finished cells say when and where on purpose.
        """
        wanted = [
            *self.results.glob("runs/**/predictions.csv"),
            *self.results.glob("runs/**/history.csv"),
            *self.results.glob("tables/*"),
        ]
        return {
            str(path.relative_to(self.results)): hashlib.sha256(path.read_bytes()).hexdigest()
            for path in sorted(wanted)
        }

    def leftovers(self) -> list[str]:
        """Temporary files and unfinished work below the results."""
        found = [*self.results.rglob("*.partial"), *self.results.rglob(".unfinished")]
        return [str(path.relative_to(self.results)) for path in found]

    def locks(self) -> list[Path]:
        """Locks that a run of Snakemake has left."""
        return list((self.folder / ".snakemake" / "locks").glob("*"))


def make_lab(
    folder: Path, sites: int = SITES, per_class: int = PER_CLASS, **changes: object
) -> Lab:
    """Data and configuration in an empty folder; the same every time."""
    data = folder / "data" / "tiny"
    (data / "series").mkdir(parents=True)
    generator = np.random.default_rng(0)
    lines = ["participant_id\tsite\tdiagnosis\tage"]
    for site in range(sites):
        for number in range(2 * per_class):
            subject, patient = f"s{site}{number}", number % 2
            bold = generator.standard_normal((FRAMES + site, ROIS))
            bold[:, 1] += 0.8 * patient * bold[:, 0]
            np.savetxt(data / "series" / f"{subject}.tsv", bold, "%.6f", "\t")
            lines.append(f"{subject}\tsite{site}\t{('control', 'patient')[patient]}\t{20 + number}")
    (data / "participants.tsv").write_text("\n".join(lines) + "\n")
    for kind, name, content in (
        ("datasets", "tiny", DATASET),
        ("experiments", "tiny", EXPERIMENT),
    ):
        path = folder / "config" / kind / f"{name}.yaml"
        path.parent.mkdir(parents=True)
        path.write_text(yaml.safe_dump(content))
    lab = Lab(folder)
    lab.configure(**changes)
    return lab
