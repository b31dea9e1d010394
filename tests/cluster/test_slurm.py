"""The profile for clusters, for real: a small workflow on SLURM, one node lost in the middle."""

import json
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
from slurm import Cluster, install
from tiny import CONFIG, ROOT, Lab, make_lab

pytestmark = pytest.mark.cluster
# Long enough to be interrupted, with a state saved every second.
LONG = {"seeds": [0, 1], "overrides": {"gcn": {**CONFIG["overrides"]["gcn"], "epochs": 600}}}
# `device: auto` makes gcn ask for a GPU; where there is none, the CPU must do.
ON_CLUSTER = {"device": "auto", "allow_cpu": True}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    install()
    cluster = Cluster(tmp_path_factory.mktemp("slurm"))
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()


def profile(folder: Path) -> Path:
    """The profile of the repository with the changes that its comments offer."""
    text = (ROOT / "profiles/slurm/profile.yaml").read_text()
    for line in ("slurm-status-command: squeue", "slurm-no-account: true"):
        assert f"\n# {line}\n" in text
        text = text.replace(f"\n# {line}\n", f"\n{line}\n")
    text = text.replace("    # checkpoint_seconds: 60\n", "    checkpoint_seconds: 1\n")
    folder.mkdir()
    (folder / "profile.yaml").write_text(text)
    return folder


def wait_for(condition, process: subprocess.Popen, what: str, seconds: float = 300):
    end = time.monotonic() + seconds
    while not (found := condition()):
        assert process.poll() is None, f"Snakemake ended before {what}"
        assert time.monotonic() < end, f"{what} did not happen within {seconds} s"
        time.sleep(0.2)
    return found


def steps(jobs: list[str]) -> str:
    """Processes in which SLURM still runs something of these jobs."""
    pattern = rf"slurmstepd: \[({'|'.join(jobs)})\."
    return subprocess.run(["pgrep", "-f", pattern], capture_output=True, text=True).stdout


def test_a_lost_node_changes_nothing(cluster, tmp_path):
    here = make_lab(tmp_path / "here", **LONG)
    done = here.snakemake("tiny", "--cores", "2")
    assert done.returncode == 0, done.stdout

    there = make_lab(tmp_path / "there", **LONG, **ON_CLUSTER)
    words = ["tiny", "--workflow-profile", profile(tmp_path / "profile")]
    words += ["--slurm-init-seconds-before-status-checks", "2", "--latency-wait", "10"]
    words += ["--slurm-keep-successful-logs"]
    said = tmp_path / "said.txt"
    with open(said, "w") as stream:
        process = subprocess.Popen(
            [sys.executable, "-m", "snakemake", *there.words(*words)],
            cwd=ROOT,
            env=there.environment(**cluster.variables),
            stdout=stream,
            stderr=subprocess.STDOUT,
        )
    try:
        cell = there.results / "runs/tiny/loso/gcn/seed-0"
        wait_for(lambda: list(cell.glob(".unfinished/*.pt")), process, "a saved state")
        queue = cluster.call("squeue", "-h", "-w", "gpu1", "-o", "%A").split()
        cluster.call("scontrol", "update", "nodename=gpu1", "state=down", "reason=test")
        wait_for(lambda: not steps(queue), process, "the end of the lost jobs")
        assert not (cell / "meta.json").exists(), "the cell was not interrupted"
        # A node that answers may have come back by itself.
        if "down" in cluster.call("sinfo", "-h", "-n", "gpu1", "-o", "%T"):
            cluster.call("scontrol", "update", "nodename=gpu1", "state=resume")
        process.wait(timeout=600)
    finally:
        process.kill()
        # What the lost node was running has nobody left who would end it.
        subprocess.run(["pkill", "-KILL", "-f", str(tmp_path)], check=False)
    text = said.read_text()
    assert process.returncode == 0, text + cluster.logs()

    check_requeue(cluster, there, queue)
    expected, found = here.checksums(), there.checksums()
    assert len(expected) == 10
    assert found == expected
    assert there.leftovers() == [] and there.locks() == []
    # That of the process which submits is the first.
    check_jobs(min((there.folder / ".snakemake" / "log").glob("*.log")).read_text())


def check_requeue(cluster: Cluster, lab: Lab, jobs: list[str]) -> None:
    """The jobs of the lost node ran again, and training went on where it was."""
    restarts = [cluster.call("scontrol", "show", "job", job) for job in jobs]
    assert jobs and all("Restarts=1" in text for text in restarts), restarts
    log = (lab.results / "logs/train/tiny/loso/gcn/seed-0+1.log").read_text()
    assert "continuing after epoch" in log
    meta = json.loads((lab.results / "runs/tiny/loso/gcn/seed-0/meta.json").read_text())
    assert meta["threads"] == 1


def check_jobs(text: str) -> None:
    """Light rules ran here; of the others, all seeds of a variant were one submission."""
    local = set(re.findall(r"^localrule (\w+):", text, re.M))
    assert local == {"candidates", "split", "table", "figure", "tiny"}
    submitted = set(re.findall(r"^(?:    )?(?:rule|checkpoint) (\w+):", text, re.M))
    assert submitted == {"extract", "assemble", "connect", "blocklength", "train", "summarise"}
    assert len(re.findall("has been submitted with SLURM jobid", text)) == 7, text


def test_gpus_are_asked_for(cluster, tmp_path):
    """A job sees the one GPU that SLURM gave it; a third job waits; too many are refused."""
    show = ["srun", "-p", "gpu", "--gpus=1", "sh", "-c", "echo $CUDA_VISIBLE_DEVICES; sleep 2"]
    environment = {**Lab(tmp_path).environment(), **cluster.variables}
    jobs = [subprocess.Popen(show, env=environment, stdout=subprocess.PIPE) for _ in range(3)]
    seen = [job.communicate(timeout=60)[0].decode().strip() for job in jobs]
    assert sorted(seen)[0] == "0" and set(seen) == {"0", "1"}
    with pytest.raises(RuntimeError, match="Requested node configuration is not available"):
        cluster.call("srun", "-p", "gpu", "--gpus=3", "true")
