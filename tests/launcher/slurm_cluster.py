"""A private Slurm cluster on this machine: nodes with GPUs that are not there, and nodes that only exist on paper.

Every port, path and key belongs to the cluster alone, and it listens on the loopback interface only. Needs root and
Debian's slurmctld, slurmd, slurm-client and munge (tried with 22.05); no systemd, no cgroups.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import signal
import socket
import stat
import subprocess
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

TOOLS = ("slurmctld", "slurmd", "sbatch", "scontrol", "sinfo", "munged")
GPUS, CPUS, MEMORY_MB = 8, 96, 1_000_000
START_S, CLIENT_S, STOP_S = 60.0, 30.0, 20.0
PAPER_NODES = 160
"""Nodes without a daemon of each GPU type: jobs can be checked against them, not run."""

CONFIGURATION = """ClusterName=private
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge/socket
CredType=cred/munge
SlurmctldPort={port}
SlurmdPort={node_port}
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool/%n
SlurmctldPidFile={folder}/run/slurmctld.pid
SlurmdPidFile={folder}/run/slurmd.%n.pid
SlurmctldLogFile={folder}/log/slurmctld.log
SlurmdLogFile={folder}/log/slurmd.%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
CommunicationParameters=NoInAddrAny,NoCtldInAddrAny
MpiDefault=none
ReturnToService=2
SlurmdParameters=config_overrides
SchedulerType=sched/backfill
SchedulerParameters=bf_interval=1,sched_interval=1
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
GresTypes=gpu
JobAcctGatherType=jobacct_gather/none
JobCompType=jobcomp/none
AccountingStorageType=accounting_storage/none
MinJobAge=3600
EnforcePartLimits=ALL
JobRequeue=1
KillWait=3
InactiveLimit=0
SuspendProgram=/bin/true
ResumeProgram=/bin/true
SuspendTime=86400
"""


def missing_tools() -> list[str]:
    """What has to be installed before a cluster can start."""
    return [
        tool for tool in TOOLS if shutil.which(tool, path=f"{os.environ['PATH']}:/usr/sbin:/sbin") is None
    ]


@dataclass(frozen=True, slots=True)
class Cluster:
    """A running cluster."""

    folder: Path
    nodes: int

    def environment(self, **more: str) -> dict[str, str]:
        """What clients need in their environment."""
        return os.environ | {"SLURM_CONF": str(self.folder / "slurm.conf")} | more

    def run(self, *words: str, cwd: Path | None = None, **more: str) -> str:
        """What a client prints.

        Raises:
            subprocess.CalledProcessError: it fails; its complaint is in ``stderr``.
        """
        done = subprocess.run(
            words,
            cwd=cwd,
            env=self.environment(**more),
            text=True,
            capture_output=True,
            timeout=CLIENT_S,
            check=True,
        )
        return done.stdout

    def job(self, job: str) -> dict[str, str]:
        """The fields of a job."""
        text = self.run("scontrol", "show", "job", "--oneliner", job)
        return dict(word.split("=", 1) for word in text.split() if "=" in word)


def _free_ports(count: int) -> int:
    """The first of some consecutive ports that nobody uses on the loopback interface."""
    for first in range(26800 + os.getpid() % 1000, 32000, count):
        with contextlib.ExitStack() as stack:
            try:
                for port in range(first, first + count):
                    one = stack.enter_context(socket.socket())
                    one.bind(("127.0.0.1", port))
            except OSError:
                continue
            return first
    raise OSError("no free ports")


def _configure(folder: Path, nodes: int, paper: Mapping[str, int]) -> None:
    host = socket.gethostname().split(".")[0]
    port = _free_ports(nodes + 2)
    text = CONFIGURATION.format(host=host, folder=folder, port=port, node_port=port + 1)
    shape = f"CPUs={CPUS} Sockets=2 CoresPerSocket={CPUS // 2} ThreadsPerCore=1 RealMemory={MEMORY_MB}"
    text += (
        f"NodeName=n[1-{nodes}] NodeHostname={host} NodeAddr=127.0.0.1 Port={port + 2}-{port + 1 + nodes} {shape} "
        f"Gres=gpu:h100:{GPUS} State=UNKNOWN\n"
        f"PartitionName=train Nodes=n[1-{nodes}] Default=YES MaxTime=60-00:00:00 State=UP\n"
    )
    for kind, gpus in paper.items():
        text += f"NodeName={kind}-[1-{PAPER_NODES}] {shape} Gres=gpu:{kind}:{gpus} State=CLOUD\n"
    names = ",".join(f"{kind}-[1-{PAPER_NODES}]" for kind in paper)
    text += f"PartitionName=paper Nodes={names} MaxTime=400-00:00:00 State=UP\n"
    (folder / "slurm.conf").write_text(text, encoding="utf-8")
    devices = folder / "devices"
    devices.mkdir()
    for number in range(GPUS):  # Slurm counts device files: null devices stand for GPUs
        os.mknod(devices / f"gpu{number}", 0o666 | stat.S_IFCHR, os.makedev(1, 3))
    line = f"NodeName=n[1-{nodes}] Name=gpu Type=h100 File={devices}/gpu[0-{GPUS - 1}]\n"
    (folder / "gres.conf").write_text(line, encoding="utf-8")
    (folder / "cgroup.conf").write_text("CgroupAutomount=no\n", encoding="utf-8")


def _start_munge(folder: Path) -> None:
    munge = folder / "munge"
    munge.mkdir()
    (munge / "key").write_bytes(secrets.token_bytes(1024))
    for path in (munge, munge / "key"):
        shutil.chown(path, "munge", "munge")
    (munge / "key").chmod(0o400)
    munge.chmod(0o711)
    files = [f"--{name}={munge / file}" for name, file in (
        ("key-file", "key"), ("socket", "socket"), ("pid-file", "pid"), ("log-file", "log"), ("seed-file", "seed"),
    )]  # fmt: skip
    as_munge = ["setpriv", "--reuid=munge", "--regid=munge", "--clear-groups"]
    subprocess.run([*as_munge, "/usr/sbin/munged", "--force", *files], check=True, timeout=CLIENT_S)


@contextlib.contextmanager
def cluster(folder: Path, nodes: int, paper: Mapping[str, int]) -> Iterator[Cluster]:
    """A cluster that runs until the block ends.

    Args:
        folder: its own, not there or empty.
        nodes: that can run jobs, with 8 GPUs each.
        paper: GPU types of nodes that only exist on paper, with the GPUs of one node.
    """
    for name in ("state", "spool", "log", "run"):
        (folder / name).mkdir(parents=True)
    for part in (folder, *folder.parents):  # munge's own user has to reach its files
        if part != Path("/") and part.stat().st_uid == os.getuid():
            part.chmod(part.stat().st_mode | 0o011)
    found = Cluster(folder, nodes)
    try:
        _start_munge(folder)
        _configure(folder, nodes, paper)
        found.run("/usr/sbin/slurmctld", "-f", str(folder / "slurm.conf"))
        for number in range(1, nodes + 1):
            found.run("/usr/sbin/slurmd", "-f", str(folder / "slurm.conf"), "-N", f"n{number}")
        _wait_until_idle(found)
        yield found
    finally:
        _stop(folder)


def _wait_until_idle(found: Cluster) -> None:
    end = time.monotonic() + START_S
    while time.monotonic() < end:
        with contextlib.suppress(subprocess.SubprocessError):
            idle = found.run(
                "sinfo", "--noheader", "--partition=train", "--states=idle", "--format=%D"
            ).split()
            if idle == [str(found.nodes)]:
                return
        time.sleep(0.3)
    raise TimeoutError((found.folder / "log" / "slurmctld.log").read_text(encoding="utf-8")[-2000:])


def _stop(folder: Path) -> None:
    """End what this cluster started, by its process ids."""
    pids = []
    for file in [*folder.glob("run/*.pid"), folder / "munge" / "pid"]:
        with contextlib.suppress(OSError, ValueError):
            pids.append(int(file.read_text(encoding="utf-8")))
    for signum in (signal.SIGTERM, signal.SIGKILL):
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signum)
        end = time.monotonic() + STOP_S
        while time.monotonic() < end and any(Path(f"/proc/{pid}").exists() for pid in pids):
            time.sleep(0.2)
        if not any(Path(f"/proc/{pid}").exists() for pid in pids):
            return
