"""A SLURM of one's own for tests: controller and node on the loopback, in a folder, and no other.

Its daemons run as root with a key of their own, and nothing of them is left when it stops. What a
cluster takes minutes for is set to seconds here: how soon requeued jobs start again, or killed ones
die. Memory is counted every second, and a job that has too much is killed.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

NEEDED = ("slurmctld", "slurmd", "sbatch", "munged", "setpriv")  # slurm-wlm, munge

SLURM = """
ClusterName=fedrepro
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={controller}
SlurmdPort={node}
CommunicationParameters=NoCtldInAddrAny,NoInAddrAny
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge,cred_expire=5
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
SlurmdParameters=config_overrides
SchedulerParameters=sched_interval=1,bf_interval=1
ReturnToService=2
KillWait=1
JobAcctGatherType=jobacct_gather/linux
JobAcctGatherFrequency=task=1
JobAcctGatherParams=OverMemoryKill
NodeName={host} NodeAddr=127.0.0.1 CPUs=8 RealMemory=64000 State=UNKNOWN
PartitionName=main Nodes={host} Default=YES State=UP
AccountingStorageType=accounting_storage/none
"""


def lacking() -> str:
    """Why there can be no such cluster here; empty if there can."""
    if os.geteuid() != 0:
        return "only root can start a SLURM"
    missing = [name for name in NEEDED if shutil.which(name) is None]
    return f"{', '.join(missing)} not installed" if missing else ""


class Cluster:
    """Started by `with Cluster(folder) as cluster`. The folder has a short path, for sockets."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.host = folder, socket.gethostname().partition(".")[0]
        self.config = folder / "slurm.conf"
        self.env = {**os.environ, "SLURM_CONF": str(self.config)}
        controller, node = free_ports(2)
        self.config.write_text(
            SLURM.format(host=self.host, folder=folder, controller=controller, node=node).lstrip()
        )
        self.running: dict[str, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> Cluster:
        for name in ("state", "spool"):
            (self.folder / name).mkdir()
        key = self.folder / "key"
        key.touch(0o600)
        key.write_bytes(secrets.token_bytes(64))
        own = {"key-file": "key", "socket": "munge", "pid-file": "pid", "seed-file": "seed"}
        words = [f"--{name}={self.folder / file}" for name, file in own.items()]
        try:
            self.start("munged", "--foreground", "--force", *words)
            until((self.folder / "munge").exists)
            self.start("slurmctld", "-D", "-f", str(self.config))
            self.start_node()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(OSError, subprocess.SubprocessError):
            self.ask("scancel", "--user", "root", "--full", check=False)
        for name in ("slurmd", "slurmctld", "munged"):
            self.stop(name)
        for pid, *_ in self.processes():
            kill(pid)
        until(lambda: not list(self.processes()))

    def start_node(self) -> None:
        self.start("slurmd", "-D", "-f", str(self.config))
        up = ("idle", "mixed", "allocated")
        asked = ("sinfo", "--noheader", "--format", "%T")
        until(lambda: self.ask(*asked, check=False).strip() in up)

    def lose_node(self) -> None:
        """The node dies with all that runs on it, and SLURM is told so."""
        self.running.pop("slurmd").kill()
        for pid, words, env in self.processes():
            if b"slurmstepd" in words or b"SLURM_JOB_ID=" in env:
                kill(pid)
        self.ask("scontrol", "update", f"nodename={self.host}", "state=down", "reason=dead")

    def start(self, name: str, *words: str) -> None:
        """A daemon that does not outlive this process."""
        with (self.folder / f"{name}.out").open("ab") as said:
            self.running[name] = subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", name, *words],
                stdout=said, stderr=said, env=self.env, cwd=self.folder,
            )  # fmt: skip

    def stop(self, name: str) -> None:
        process = self.running.pop(name, None)
        if process is None:
            return
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def ask(self, *words: str, check: bool = True) -> str:
        """What a command prints."""
        done = subprocess.run(words, env=self.env, capture_output=True, text=True, timeout=60)
        assert not check or done.returncode == 0, done.stderr
        return done.stdout

    def jobs(self, *fields: str) -> list[list[str]]:
        """These fields (letters of squeue's format) of all jobs, by their number."""
        asked = "|".join(f"%{letter}" for letter in ("A", *fields))
        lines = self.ask("squeue", "--states=all", "--noheader", "--format", asked).splitlines()
        return sorted((line.strip().split("|") for line in lines), key=lambda row: int(row[0]))

    def state(self, job: str) -> str:
        return next(row[1] for row in self.jobs("T") if row[0] == job)

    def processes(self) -> Iterator[tuple[int, bytes, bytes]]:
        """All that knows of this cluster: its daemons, its jobs, what submits them."""
        for place in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                env = (place / "environ").read_bytes()
                if f"SLURM_CONF={self.config}\0".encode() in env and place.name != str(os.getpid()):
                    yield int(place.name), (place / "cmdline").read_bytes(), env


def kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def until(true: Callable[[], bool], seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "it did not come to that"
        time.sleep(0.1)


def free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        opened = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in opened:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in opened]
