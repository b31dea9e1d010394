"""The jobs of a tiny lab, each as the command that Snakemake would run."""

import re
import shlex
import time
from dataclasses import dataclass

from tiny import CONFIG, Lab

from tests.forked import Forked

# Training must last long enough to be killed on the way.
EPOCHS = {"overrides": {"gcn": {**CONFIG["overrides"]["gcn"], "epochs": 60}}}


@dataclass(frozen=True)
class Stage:
    """One job: its command as Snakemake would run it, its log and the files that it writes."""

    name: str
    command: str
    log: str
    outputs: tuple[str, ...]

    def start(self, lab: Lab, **how: object) -> Forked:
        """Start its program as Snakemake's shell would."""
        words = shlex.split(self.command)
        assert words[-3:] == [">", self.log, "2>&1"], self.command
        program = words[words.index("-u") + 1 : -3]
        return Forked(program, lab.folder, lab.environment(), lab.folder / self.log, **how)

    def run(self, lab: Lab, **how: object) -> tuple[int, str]:
        """Run it to the end: exit code, and what it said."""
        log = lab.folder / self.log
        log.unlink(missing_ok=True)
        return self.start(lab, **how).wait(), log.read_text()

    def wait_until_it_writes(self, process: Forked, lab: Lab, limit: float) -> None:
        """Wait for the first new file in the folders of the outputs, or for the end."""
        folders = {(lab.folder / name).parent for name in self.outputs}
        files = lambda: {path for folder in folders for path in folder.rglob("*")}  # noqa: E731
        before, end = files(), time.monotonic() + limit
        while process.poll() is None and time.monotonic() < end and files() <= before:
            time.sleep(0.001)

    def remove_outputs(self, lab: Lab) -> None:
        for name in self.outputs:
            (lab.folder / name).unlink(missing_ok=True)

    def contents(self, lab: Lab) -> dict[str, bytes]:
        """The outputs that are there; meta.json says when it was written and is left out."""
        paths = {name: lab.folder / name for name in self.outputs if "meta.json" not in name}
        return {name: path.read_bytes() for name, path in paths.items() if path.exists()}


def stages_of(lab: Lab) -> dict[str, Stage]:
    """All jobs of the lab by rule and, for training, method."""
    words = ["--forceall", "-n", "--printshellcmds", "--cores", "1"]
    plan = lab.snakemake("tiny", *words)
    assert plan.returncode == 0, plan.stdout
    found = {}
    for block in re.split(r"^\[.*\]$", plan.stdout, flags=re.M)[1:]:
        command = re.search(r"^Shell command: (PYTHONPATH=.*)$", block, re.M)
        if not command:
            continue
        rule = re.search(r"^(?:local)?rule (\w+):", block, re.M)[1]
        variant = re.search(r"variant=([\w-]+)", block)
        name = f"{rule}-{variant[1]}" if variant else rule
        outputs = re.search(r"^    output: (.*)$", block, re.M)[1].split(", ")
        log = re.search(r"^    log: (\S+)", block, re.M)[1]
        text = command[1].replace("--checkpoint-seconds 60", "--checkpoint-seconds 0.2")
        found[name] = Stage(name, text, log, tuple(outputs))
    return found
