"""Debian's SLURM on this machine: a controller, two nodes, and a third with two fake GPUs.

Everything lies in one folder and /etc stays as it is. The plugin's job steps lose SLURM_CONF, so
`srun` is wrapped by a script that sets it again. A lost job waits until its credential has expired:
cred_expire shortens SLURM's two minutes.
"""

import os
import shutil
import subprocess
import time
from pathlib import Path

PACKAGES = ("slurm-wlm", "slurmctld", "slurmd", "munge")
PROGRAMS = ("slurmctld", "slurmd", "munged", "sbatch", "srun", "squeue")
NODES = ("cpu1", "cpu2", "gpu1")
CONTROLLER_PORT, NODE_PORTS = 16817, (17001, 17002, 17003)
CONF = """\
ClusterName=fake
SlurmctldHost=localhost(127.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge/socket,cred_expire=20
CryptoType=crypto/munge
SlurmctldPort={controller}
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool.%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
JobCompType=jobcomp/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
SchedulerType=sched/backfill
SchedulerParameters=bf_interval=2,sched_interval=2,sched_min_interval=200000,batch_sched_delay=0
SlurmdParameters=config_overrides
ReturnToService=2
MpiDefault=none
SwitchType=switch/none
MinJobAge=600
KillWait=5
SlurmctldTimeout=30
SlurmdTimeout=60
InactiveLimit=0
GresTypes=gpu
NodeName=cpu[1-2] NodeHostname=localhost NodeAddr=127.0.0.1 Port=[{first}-{second}] CPUs=4 \
RealMemory=24000 State=UNKNOWN
NodeName=gpu1 NodeHostname=localhost NodeAddr=127.0.0.1 Port={third} CPUs=4 RealMemory=48000 \
Gres=gpu:2 State=UNKNOWN
PartitionName=cpu Nodes=cpu[1-2] Default=YES MaxTime=12:00:00 DefMemPerCPU=500 State=UP
PartitionName=gpu Nodes=gpu1 MaxTime=24:00:00 DefMemPerCPU=500 State=UP
"""


def install() -> None:
    """Install what is absent; raises where that is impossible."""
    # Debian keeps daemons in /usr/sbin, which a user's PATH may lack.
    os.environ["PATH"] += os.pathsep + "/usr/sbin"
    if all(map(shutil.which, PROGRAMS)):
        return
    if not shutil.which("apt-get") or os.geteuid() != 0:
        raise RuntimeError(
            f"SLURM is not installed and only root on Debian can install it: {', '.join(PACKAGES)}"
        )
    quiet = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    for words in (["update"], ["install", "-y", "--no-install-recommends", *PACKAGES]):
        command = ["apt-get", "-qq", "-o", "DPkg::Lock::Timeout=120", *words]
        done = subprocess.run(command, env=quiet, text=True, capture_output=True, check=False)
        if done.returncode:
            raise RuntimeError(f"{' '.join(command)} failed:\n{done.stdout}{done.stderr}")
    absent = [name for name in PROGRAMS if not shutil.which(name)]
    if absent:
        raise RuntimeError(f"{', '.join(absent)} cannot be found after the installation of SLURM")


class Cluster:
    """The running daemons."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.bin = folder / "bin"
        self.variables = {
            "SLURM_CONF": str(folder / "slurm.conf"),
            "PATH": f"{self.bin}{os.pathsep}{os.environ['PATH']}",
        }

    def call(self, *command: object) -> str:
        """What a command of SLURM says."""
        done = subprocess.run(
            list(map(str, command)),
            env=os.environ | self.variables,
            text=True,
            capture_output=True,
            check=False,
        )
        if done.returncode:
            raise RuntimeError(f"{command} failed: {done.stdout}{done.stderr}\n{self.logs()}")
        return done.stdout

    def logs(self) -> str:
        """The last lines of all daemons."""
        texts = [
            f"== {path.name}\n{path.read_text()[-1500:]}" for path in self.folder.glob("*.log")
        ]
        return "\n".join(texts)

    def start(self) -> None:
        """Write the configuration, start the daemons, and wait for idle nodes."""
        ports = dict(zip(("first", "second", "third"), NODE_PORTS))
        for name in ("state", "dev", "munge", "bin", *(f"spool.{node}" for node in NODES)):
            (self.folder / name).mkdir(mode=0o755)
        conf = CONF.format(folder=self.folder, controller=CONTROLLER_PORT, **ports)
        (self.folder / "slurm.conf").write_text(conf)
        # Only character devices get a number in CUDA_VISIBLE_DEVICES; these two swallow like null.
        for number in (0, 1):
            os.mknod(self.folder / "dev" / f"fakegpu{number}", 0o20666, os.makedev(1, 3))
        gres = f"NodeName=gpu1 Name=gpu File={self.folder}/dev/fakegpu[0-1]\n"
        (self.folder / "gres.conf").write_text(gres)
        wrapper = self.bin / "srun"
        conf_path = self.variables["SLURM_CONF"]
        wrapper.write_text(f'#!/bin/sh\nSLURM_CONF={conf_path} exec {shutil.which("srun")} "$@"\n')
        wrapper.chmod(0o755)
        self._start_munge()
        self.call("slurmctld")
        for node in NODES:
            self.call("slurmd", "-N", node)
        self._wait(lambda: self.call("sinfo", "-h", "-N", "-o", "%T").split() == ["idle"] * 3)

    def _start_munge(self) -> None:
        munge = self.folder / "munge"
        key = munge / "key"
        key.write_bytes(os.urandom(128))
        key.chmod(0o600)
        files = [f"--{name}-file={munge}/{name}" for name in ("key", "pid", "log", "seed")]
        # --force: the folder is root's own instead of the munge user's.
        self.call("munged", "--force", f"--socket={munge}/socket", *files)
        socket = ["munge", "-n", "-S", munge / "socket"]
        self._wait(lambda: subprocess.run(socket, capture_output=True).returncode == 0)

    def _wait(self, ready, seconds: float = 30) -> None:
        end = time.monotonic() + seconds
        while not ready():
            if time.monotonic() > end:
                raise RuntimeError(f"SLURM did not get ready\n{self.logs()}")
            time.sleep(0.2)

    def stop(self) -> None:
        """End all jobs, and the daemons that were started here."""
        if (self.folder / "slurmctld.pid").is_file():
            self.call("scancel", "--user=root")
            self._wait(lambda: not self.call("squeue", "-h", "-t", "running,completing"))
        pids = [*self.folder.glob("slurm*.pid"), self.folder / "munge" / "pid"]
        for path in pids:
            if path.is_file():
                subprocess.run(["kill", path.read_text().strip()], check=False)
