"""The slurm profile on a real SLURM, started here: what goes wrong on clusters, and how it ends.

Jobs are real ones; trouble comes before their own work, once each. Needs root, and of Debian's
packages slurm-wlm and munge. Controller and node are on the loopback, in a folder; nothing of them
is left when they stop. What a cluster takes minutes for is set to seconds.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import loaded
import pytest
from test_workflow import BIN, checkout, environment, kill

from fedrepro.core.checkpoint_and_model_files import read_models
from fedrepro.planning.config_files import Config, Granularity, load_exhibits
from fedrepro.planning.plan import Plan
from fedrepro.planning.scenarios_runs_and_jobs import folders_of

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
MinJobAge=3600
NodeName={host} NodeAddr=127.0.0.1 CPUs=8 RealMemory=64000 State=UNKNOWN
PartitionName=main Nodes={host} Default=YES State=UP
AccountingStorageType=accounting_storage/none
"""


def lacking() -> str:
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
        for process in reversed(self.running.values()):
            process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(20)
        for pid, *_ in self.processes():
            kill(pid)
        until(lambda: not list(self.processes()))

    def start_node(self) -> None:
        self.start("slurmd", "-D", "-f", str(self.config))
        up = ("idle", "mixed", "allocated")
        asked = ("sinfo", "--noheader", "--format", "%T")
        until(lambda: self.ask(*asked, check=False).strip() in up)

    def lose_node(self) -> None:
        self.running.pop("slurmd").kill()
        for pid, words, env in self.processes():
            if b"slurmstepd" in words or b"SLURM_JOB_ID=" in env:
                kill(pid)
        self.ask("scontrol", "update", f"nodename={self.host}", "state=down", "reason=dead")

    def start(self, name: str, *words: str) -> None:
        with (self.folder / f"{name}.out").open("ab") as said:
            self.running[name] = subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", name, *words],
                stdout=said, stderr=said, env=self.env, cwd=self.folder,
            )  # fmt: skip

    def ask(self, *words: str, check: bool = True) -> str:
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


pytestmark = [
    pytest.mark.workflow,
    pytest.mark.nightly,
    pytest.mark.skipif(bool(lacking()), reason=f"no SLURM of its own: {lacking()}"),
]
pytest.importorskip("snakemake_executor_plugin_slurm")

# Snakemake that looks at its jobs every second: the plugin looks less and less often
EAGER = """
from snakemake.cli import main
from snakemake_executor_plugin_slurm import Executor
Executor.next_seconds_between_status_checks = property(lambda self: 1, lambda self, seconds: None)
main()
"""
# in place of `fedrepro`: trouble for this stage and client, unless it was met before
TROUBLED = """#!/bin/sh
stage=$(echo "$2" | sed -n 's/.*"stage": "\\([a-z]*\\)".*/\\1/p')
client=$(echo "$2" | sed -n 's/.*"clients": .\\([0-9]*\\),.*/\\1/p')
for trouble in {folder}/$stage$client.*; do
  met={folder}/met/${{trouble##*/}}
  [ -e "$trouble" ] && mkdir "$met" 2> {folder}/error || continue
  echo "$SLURM_JOB_ID" > "$met/part" && mv "$met/part" "$met/job"
  sh "$trouble"
  exit 1
done
exec {own} "$@"
"""
SRUN = """#!/bin/sh
SLURM_CONF={config} exec {own} "$@"
"""
BUSY = 400  # seconds that a step may take where much else runs


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with tempfile.TemporaryDirectory(prefix="slurm-") as folder, Cluster(Path(folder)) as made:
        yield made
    assert not list(made.processes())


class Site:
    def __init__(self, folder: Path, cluster: Cluster) -> None:
        self.folder, self.cluster = checkout(folder), cluster
        self.trouble = folder.with_name(f"{folder.name}-trouble")
        first = self.trouble / "bin"  # on the path
        first.mkdir(parents=True)
        (first / "fedrepro").write_text(TROUBLED.format(folder=self.trouble, own=BIN / "fedrepro"))
        # the plugin takes the variable from the environment, as if it were one of a job
        (first / "srun").write_text(SRUN.format(config=cluster.config, own=shutil.which("srun")))
        for made in first.iterdir():
            made.chmod(0o755)
        (self.trouble / "met").mkdir()
        own = environment(SLURM_CONF=str(cluster.config))
        self.env = {**own, "PATH": os.pathsep.join((str(first), str(BIN), own["PATH"]))}

    def job(self, name: str) -> str:
        place = self.trouble / f"met/{name}/job"
        until(place.exists, BUSY)
        return place.read_text().strip()

    def start(self, *targets: str) -> subprocess.Popen[str]:
        said = (self.folder / "said").open("a")
        words = ["--profile", "profiles/slurm", "--latency-wait", "5"]
        words += ["--seconds-between-status-checks", "1", "--max-status-checks-per-second", "1"]
        words += ["--slurm-init-seconds-before-status-checks", "1"]
        return subprocess.Popen(
            [sys.executable, "-c", EAGER, *words, "--", *targets],
            cwd=self.folder, env=self.env, stdout=said, stderr=said, text=True,
        )  # fmt: skip


def attempts(cluster: Cluster, rule: str) -> list[list[str]]:
    rows = cluster.jobs("T", "l", "m", "k")
    return [row[1:4] for row in rows if row[4].startswith(f"rule_{rule}_wildcards")]


def test_jobs_that_meet_trouble_are_tried_again(cluster, tmp_path):
    """Without accounts: a login that ends, a node that dies, jobs cancelled or timed out."""
    site = Site(tmp_path / "clone", cluster)
    small = Granularity(clients_per_job=1, trials_per_job=1)  # as the profile has it
    plan = Plan(Config(granularity=small), load_exhibits(of=["pfnm/figure-2b"]), "tiny")
    runs = plan.exhibit("pfnm/figure-2b").trials
    scenario = next(r.scenario for r in runs if r.stage == "aggregate" and r.scenario.clients == 4)
    targets = folders_of(plan.local(scenario, range(1)))
    for name in ("prepare.login", "prepare.node", "train0.cancelled", "train1.late"):
        (site.trouble / name).write_text("exec sleep 600")

    first = site.start(*targets)
    left = site.job("prepare.login")
    first.kill()
    first.wait()
    assert cluster.state(left) == "RUNNING"
    unlocked = loaded.snakemake(site.folder, ["--unlock"], site.env)
    assert unlocked.returncode == 0, unlocked.stderr

    second = site.start(*targets)
    lost = site.job("prepare.node")
    assert cluster.state(left) == "CANCELLED"
    cluster.lose_node()
    until(lambda: cluster.state(lost) == "PENDING")
    cluster.start_node()
    cancelled, late = map(site.job, ("train0.cancelled", "train1.late"))
    cluster.ask("scancel", cancelled)
    cluster.ask("scontrol", "update", f"jobid={late}", "endtime=now+1")
    status, said = second.wait(BUSY), (site.folder / "said").read_text()

    assert status == 0, said[-6000:]
    assert "fedrepro: an earlier run in this folder left jobs with SLURM (1)" in said
    assert [row[0] for row in attempts(cluster, "prepare")] == ["CANCELLED", "COMPLETED"]
    assert [*map(cluster.state, (cancelled, late, lost))] == ["CANCELLED", "TIMEOUT", "COMPLETED"]
    trained = attempts(cluster, "train")
    assert [row[2] for row in trained[:4]] == ["3000M"] * 4
    assert trained[4:] == [["COMPLETED", "8:00:00", "6000M"]] * 2
    assert " Restarts=1 " in cluster.ask("scontrol", "--oneliner", "show", "job", lost)
    read_models([site.folder / target for target in targets], [0])
