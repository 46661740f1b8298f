"""A Slurm cluster of one node on the loopback interface: a controller, a node daemon and munge, as root, without systemd and
without accounting. `python tests/slurm/one_node.py start|stop FOLDER` runs one by hand.

A requeued job waits until the credential of its last start has expired: ten seconds here, two minutes where nothing is set. The
other limits are longer than Slurm's own, so that a machine that has other work passes them: a job that takes 10 s to start counts
as lost, and a message as unanswered.

Its GPUs are device nodes that lead nowhere: Slurm counts them out and sets CUDA_VISIBLE_DEVICES, and torch finds none."""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

ETC = Path("/etc/slurm")
"""Where Slurm's commands look. The executor of a job step takes all of SLURM_* out of the environment, SLURM_CONF too."""
GPUS = 2
CONTROLLER, NODE = 16817, 16818
"""Ports."""

LONGEST = 300
"""Seconds of a command, and until the node takes jobs."""

CONF = """\
ClusterName=one
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={controller}
SlurmdPort={node}
CommunicationParameters=NoCtldInAddrAny,NoInAddrAny
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge/munge.socket,cred_expire=10
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/log/slurmctld.log
SlurmdLogFile={folder}/log/slurmd.log
MailProg=/bin/true
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
SchedulerParameters=sched_interval=1,bf_interval=1,batch_sched_delay=1,preempt_send_user_signal
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
SwitchType=switch/none
MpiDefault=none
ReturnToService=2
MinJobAge=7200
KillWait=30
MessageTimeout=60
TCPTimeout=30
BatchStartTimeout=120
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/linux
GresTypes=gpu
NodeName={host} NodeAddr=127.0.0.1 CPUs={cpus} Boards=1 SocketsPerBoard=1 CoresPerSocket={cpus} ThreadsPerCore=1 \
RealMemory={memory} Gres=gpu:{gpus} State=UNKNOWN
PartitionName=main Nodes={host} Default=YES MaxTime=INFINITE State=UP PriorityTier=1 GraceTime=120
PartitionName=urgent Nodes={host} MaxTime=INFINITE State=UP PriorityTier=10 PreemptMode=OFF
"""


class OneNode:
    """The cluster, and what is asked of it."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.host = folder, socket.gethostname().split(".")[0]

    def start(self) -> None:
        """Start all three daemons and wait until the node takes jobs. Raises RuntimeError when something of Slurm is there."""
        if ETC.is_symlink() or (ETC / "slurm.conf").exists():
            raise RuntimeError(f"{ETC}: a Slurm is configured here; this cluster would take its place")
        for name in ("state", "spool", "log", "munge"):
            (self.folder / name).mkdir(parents=True, exist_ok=True)
        self._start_munge()
        pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2**20
        values = {"host": self.host, "folder": self.folder, "cpus": os.cpu_count(), "memory": pages - 512, "gpus": GPUS}
        (self.folder / "slurm.conf").write_text(CONF.format(**values, controller=CONTROLLER, node=NODE))
        (self.folder / "gres.conf").write_text("".join(self._gpu(number) for number in range(GPUS)))
        ETC.mkdir(exist_ok=True)
        for name in ("slurm.conf", "gres.conf"):
            (ETC / name).symlink_to(self.folder / name)
        run("slurmctld", "-f", str(self.folder / "slurm.conf"))
        run("slurmd", "-f", str(self.folder / "slurm.conf"), "-N", self.host)
        self.wait("idle")

    def _start_munge(self) -> None:
        place = self.folder / "munge"
        key = place / "munge.key"
        key.write_bytes(os.urandom(1024))
        key.chmod(0o600)
        files = {"key-file": key, "socket": place / "munge.socket", "pid-file": self.folder / "munged.pid"}
        files |= {"log-file": place / "munged.log", "seed-file": place / "munged.seed"}
        run("munged", "--force", "--num-threads=2", *(f"--{name}={file}" for name, file in files.items()))

    def _gpu(self, number: int) -> str:
        device = self.folder / f"gpu{number}"
        with contextlib.suppress(FileExistsError):
            os.mknod(device, 0o666 | 0o020000, os.makedev(1, 3))  # as /dev/null: Slurm wants a file that is a device
        return f"NodeName={self.host} Name=gpu File={device}\n"

    def stop(self) -> None:
        """Stop what was started, by process id, and take the configuration out of Slurm's place."""
        for name in ("slurmd", "slurmctld", "munged"):
            _stop(self.folder / f"{name}.pid")
        for name in ("slurm.conf", "gres.conf"):
            if (link := ETC / name).is_symlink() and link.readlink().is_relative_to(self.folder):
                link.unlink()
        with contextlib.suppress(OSError):
            ETC.rmdir()

    def wait(self, state: str, seconds: float = LONGEST) -> None:
        """Until the node is in this state. Raises TimeoutError."""
        end = time.monotonic() + seconds
        while (now := self.state()) != state:
            if time.monotonic() > end:
                raise TimeoutError(f"the node is {now!r} and not {state!r}; see {self.folder / 'log'}")
            time.sleep(0.2)

    def state(self) -> str:
        """Of the node, such as idle or drained."""
        found = subprocess.run(["sinfo", "-h", "-o", "%T", "-p", "main"], capture_output=True, text=True, check=False)
        return found.stdout.strip()

    def newest(self) -> int:
        """The number of the last job; 0 before there is one."""
        return max((int(job["JobId"]) for job in self.jobs()), default=0)

    def jobs(self, after: int = 0) -> list[dict[str, str]]:
        """What Slurm knows of every job whose number is greater, in their order: its fields by name."""
        found = run("scontrol", "show", "job", "-o").splitlines()
        jobs = [dict(part.split("=", 1) for part in line.split() if "=" in part) for line in found if line.startswith("JobId")]
        return sorted((job for job in jobs if int(job["JobId"]) > after), key=lambda job: int(job["JobId"]))


def run(*command: str) -> str:
    """Standard output of a command that must work."""
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=LONGEST).stdout


def installed() -> list[str]:
    """What is missing of Slurm and munge."""
    return [name for name in ("slurmctld", "slurmd", "munged", "sbatch", "scontrol") if not shutil.which(name)]


def _stop(file: Path) -> None:
    if not file.exists():
        return
    pid = int(file.read_text())
    for sign, seconds in ((signal.SIGTERM, 20.0), (signal.SIGKILL, 5.0)):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            try:
                os.kill(pid, sign)
            except ProcessLookupError:
                return
            time.sleep(0.2)


if __name__ == "__main__":
    what, where = sys.argv[1:]
    getattr(OneNode(Path(where).resolve()), {"start": "start", "stop": "stop"}[what])()
