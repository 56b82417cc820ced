"""A private Slurm on this machine, for tests: munge, MariaDB, slurmdbd, slurmctld and several slurmds, as root.

    python -m tests.slurm.cluster install            Debian packages, if they are missing
    python -m tests.slurm.cluster start FOLDER       prints the line that a shell needs
    python -m tests.slurm.cluster stop FOLDER

Every daemon, socket and file is its own, under the folder; a Slurm that the machine has is left alone. Node names
resolve (they are put into /etc/hosts), because ranks meet by them. Hundreds of nodes fit on one machine: a slurmd takes
some 6 MB and 25 ms to start.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil

PACKAGES = ("slurm-wlm", "slurmdbd", "munge", "mariadb-server")
NODES, CPUS, GPUS = 4, 8, 8
#: Lines of slurm.conf: one partition for jobs, one whose jobs push the others aside.
PARTITIONS = (
    "PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP OverSubscribe=NO PriorityTier=1 "
    "PreemptMode=REQUEUE",
    "PartitionName=urgent Nodes=ALL MaxTime=INFINITE State=UP OverSubscribe=NO PriorityTier=10",
)
_WAIT_S = 120.0
#: With more nodes than this, one that does not answer for long is busy, not dead: all share the cores of a machine.
_MANY = 16
_AT_ONCE = 8


def install() -> None:
    """Install what is missing of Slurm, once."""
    if all(shutil.which(name, path=_path()) for name in ("slurmctld", "slurmd", "slurmdbd", "munged", "mariadbd")):
        return
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    subprocess.run(["apt-get", "update", "-qq"], check=True, env=environment)
    command = ["apt-get", "install", "-y", "-qq", "--no-install-recommends", *PACKAGES]
    subprocess.run(command, check=True, env=environment, stdout=subprocess.DEVNULL)


def missing() -> str | None:
    """Why there can be no private Slurm here, as a sentence; None if there can."""
    if os.geteuid() != 0:
        return "a private Slurm needs root"
    if shutil.which("slurmctld", path=_path()) is None:
        return "Slurm is not installed: python -m tests.slurm.cluster install"
    return None


@contextlib.contextmanager
def private_cluster(**options) -> Iterator[Cluster]:
    """A cluster in a temporary folder; however this process is asked to end, nothing of it is left.

    Args:
        options: those of `Cluster`.
    """
    folder = Path(tempfile.mkdtemp(prefix="scaling-study-slurm-"))
    cluster = Cluster(folder, **options)
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()
        signal.signal(signal.SIGTERM, before)
        shutil.rmtree(folder, ignore_errors=True)


def _path() -> str:
    return f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"


class Cluster:
    """A private Slurm.

    Args:
        root: folder of everything.
        nodes: how many slurmds.
        cpus: that a node claims to have.
        gpus: fake ones, null devices, a node.
        partitions: their lines in slurm.conf.
    """

    def __init__(
        self,
        root: Path,
        nodes: int = NODES,
        cpus: int = CPUS,
        gpus: int = GPUS,
        partitions: Sequence[str] = PARTITIONS,
    ) -> None:
        self.root, self.nodes, self.cpus, self.gpus, self.partitions = root.resolve(), nodes, cpus, gpus, partitions
        self.names = [f"ssn{index}" for index in range(1, nodes + 1)]
        self.conf = self.root / "slurm.conf"
        self.port = 0

    @property
    def environment(self) -> dict[str, str]:
        """What commands need to find this Slurm."""
        return {**os.environ, "PATH": _path(), "SLURM_CONF": str(self.conf)}

    def run(self, *command: str, check: bool = True) -> str:
        """The output of one of Slurm's commands."""
        done = subprocess.run(command, env=self.environment, capture_output=True, text=True, check=False, timeout=60)
        if check and done.returncode:
            raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip() or done.stdout.strip()}")
        return done.stdout

    def start(self) -> None:
        """Start every daemon and wait until all nodes are idle."""
        with _one_at_a_time():  # until its ports are taken, they look free to another
            self.port = _free_ports(self.nodes + 3)
            self._start_daemons()
        self._until("all nodes are idle", self._all_idle)
        self.run("sacctmgr", "-i", "add", "account", "research", check=False)
        self.run("sacctmgr", "-i", "add", "user", "root", "account=research", check=False)
        self._until("root may submit jobs", lambda: self._succeeds("srun", "--immediate=5", "-n1", "true"))

    def _start_daemons(self) -> None:
        for folder in ("state", "spool", "log", "run", "dev", "munge", "db"):
            (self.root / folder).mkdir(parents=True, exist_ok=True)
        self.root.chmod(0o755)
        self._start_munge()
        self._start_database()
        self._write_configuration()
        self._start_daemon("slurmdbd")
        self._until("slurmdbd answers", lambda: self._succeeds("sacctmgr", "-n", "show", "cluster"))
        self.run("sacctmgr", "-i", "add", "cluster", "private", check=False)
        self._start_daemon("slurmctld", "-c", "-f", str(self.conf))
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            list(pool.map(self.start_node, self.names))

    def stop(self) -> None:
        """End every process that belongs to this folder: daemons, steps, ranks, and whoever asks this Slurm."""
        spared = {os.getpid(), *(parent.pid for parent in psutil.Process().parents())}  # they may name the folder
        while found := [pid for pid, line in _processes() if pid not in spared and self._owns(pid, line)]:
            for pid in found:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.05)  # one that was starting another

    def start_node(self, name: str) -> None:
        """Start one slurmd."""
        (self.root / "spool" / name).mkdir(exist_ok=True)
        self._start_daemon("slurmd", "-N", name, "-f", str(self.conf))

    def kill_node(self, name: str) -> None:
        """Kill one slurmd and all its steps, as if the node had lost its power."""
        log = f"{self.root}/log/slurmd-{name}.log"
        for pid, line in _processes():
            if line.startswith("slurm") and self._owns(pid, line) and log in _open_files(pid):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

    def stop_accounting(self) -> None:
        """End slurmdbd."""
        self._kill("slurmdbd", signal.SIGKILL)

    def start_accounting(self) -> None:
        """Start it again."""
        self._start_daemon("slurmdbd")
        self._until("slurmdbd answers", lambda: self._succeeds("sacctmgr", "-n", "show", "cluster"))

    # -- parts --------------------------------------------------------------------------------------------------

    def _start_munge(self) -> None:
        folder = self.root / "munge"
        key = folder / "key"
        if not key.exists():
            key.write_bytes(os.urandom(1024))
        for path in (folder, key):
            shutil.chown(path, "munge", "munge")
        key.chmod(0o400)
        folder.chmod(0o755)
        command = [
            "setpriv", "--reuid=munge", "--regid=munge", "--clear-groups", "munged", "--force", f"--key-file={key}",
            f"--socket={folder / 'socket'}", f"--pid-file={folder / 'pid'}", f"--log-file={folder / 'log'}",
            f"--seed-file={folder / 'seed'}",
        ]  # fmt: skip
        subprocess.run(command, env=self.environment, check=True, capture_output=True, timeout=30)

    def _start_database(self) -> None:
        folder, scratch = self.root / "db", self.root / "db-scratch"
        scratch.mkdir(exist_ok=True)
        environment = {**self.environment, "TMPDIR": str(scratch)}  # that of this process may not be mysql's to write
        for one in (folder, scratch):
            shutil.chown(one, "mysql")
        if not (folder / "mysql").exists():
            made = ["mariadb-install-db", "--user=mysql", f"--datadir={folder}", "--skip-test-db"]
            subprocess.run(made, env=environment, check=True, capture_output=True, timeout=120)
        command = [
            "mariadbd", "--no-defaults", "--user=mysql", f"--datadir={folder}", f"--socket={folder}/sock",
            f"--port={self.port}", "--bind-address=127.0.0.1", f"--pid-file={folder}/pid",
            "--innodb-buffer-pool-size=64M", "--innodb-lock-wait-timeout=900", f"--log-error={folder}/err.log",
        ]  # fmt: skip
        subprocess.Popen(
            command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip
        client = ("mariadb", "--no-defaults", f"--socket={folder}/sock", "-e")
        self._until("the data base answers", lambda: self._succeeds(*client, "select 1"))
        grants = "".join(
            f"create user if not exists 'slurm'@'{host}' identified by 'slurm';"
            f"grant all on slurm_acct_db.* to 'slurm'@'{host}';"
            for host in ("localhost", "127.0.0.1")
        )
        self.run(*client, f"create database if not exists slurm_acct_db; {grants}")

    def _write_configuration(self) -> None:
        host, root = socket.gethostname().split(".")[0], self.root
        _make_resolvable([host, *self.names])
        (root / "slurmdbd.conf").write_text(
            f"AuthType=auth/munge\nAuthInfo=socket={root}/munge/socket\nDbdHost=localhost\nDbdAddr=127.0.0.1\n"
            f"DbdPort={self.port + 1}\nSlurmUser=root\nStorageType=accounting_storage/mysql\nStorageHost=127.0.0.1\n"
            f"StoragePort={self.port}\nStorageUser=slurm\nStoragePass=slurm\nStorageLoc=slurm_acct_db\n"
            f"PidFile={root}/run/slurmdbd.pid\nLogFile={root}/log/slurmdbd.log\nDebugLevel=info\n"
        )
        (root / "slurmdbd.conf").chmod(0o600)
        devices = [root / "dev" / f"gpu{index}" for index in range(self.gpus)]
        for device in devices:
            if not device.exists():
                subprocess.run(["mknod", str(device), "c", "1", "3"], check=True)
        last = self.gpus - 1
        names = f"ssn[1-{self.nodes}]"
        (root / "gres.conf").write_text(f"NodeName={names} Name=gpu File={root}/dev/gpu[0-{last}]\n")
        (root / "cgroup.conf").write_text("CgroupAutomount=no\n")
        ports = f"[{self.port + 3}-{self.port + 2 + self.nodes}]"
        nodes = (
            f"NodeName={names} NodeHostname={host} NodeAddr=127.0.0.1 Port={ports} CPUs={self.cpus} "
            f"RealMemory=4000 Gres=gpu:{self.gpus} State=UNKNOWN\n"
        )
        settings = _SETTINGS.format(
            host=host, root=root, port1=self.port + 1, port2=self.port + 2, user="root",
            dead_s=300 if self.nodes > _MANY else 10, message_s=100 if self.nodes > _MANY else 30,
        )  # fmt: skip
        self.conf.write_text("\n".join([settings + nodes, *self.partitions, ""]))

    def _start_daemon(self, name: str, *arguments: str) -> None:
        subprocess.run([name, *arguments], env=self.environment, check=True, capture_output=True, timeout=60)

    def _all_idle(self) -> bool:
        return self.run("sinfo", "-h", "-t", "idle", "-o", "%D", check=False).strip() == str(self.nodes)

    def _succeeds(self, *command: str) -> bool:
        with contextlib.suppress(subprocess.TimeoutExpired):
            done = subprocess.run(command, env=self.environment, capture_output=True, check=False, timeout=20)
            return done.returncode == 0
        return False

    def _until(self, what: str, holds) -> None:
        deadline = time.monotonic() + _WAIT_S
        while not holds():
            if time.monotonic() > deadline:
                raise RuntimeError(f"{what}: not within {_WAIT_S:.0f} s; see {self.root}/log")
            time.sleep(0.1)

    def _owns(self, pid: int, line: str) -> bool:
        """Whether a process is of this Slurm; steps overwrite their environment, but stand in the folder of logs."""
        with contextlib.suppress(OSError):
            return any(
                str(self.root) in one for one in (line, _environment(pid), str(Path(f"/proc/{pid}/cwd").readlink()))
            )
        return False

    def _kill(self, name: str, how: signal.Signals) -> None:
        for pid, line in _processes():
            if Path(line.split(" ")[0]).name == name and self._owns(pid, line):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, how)


_SETTINGS = """ClusterName=private
SlurmctldHost={host}(127.0.0.1)
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={root}/munge/socket,cred_expire=5
MpiDefault=none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerType=sched/backfill
SchedulerParameters=batch_sched_delay=0,sched_interval=1,bf_interval=1,sched_min_interval=0
PriorityType=priority/basic
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
JobAcctGatherType=jobacct_gather/linux
JobAcctGatherFrequency=0
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=127.0.0.1
AccountingStoragePort={port1}
AccountingStoragePass={root}/munge/socket
AccountingStorageTRES=gres/gpu
AccountingStorageEnforce=limits,qos
EnforcePartLimits=ALL
ReturnToService=2
JobRequeue=1
KillWait=5
MinJobAge=300
InactiveLimit=0
Waittime=0
SlurmctldTimeout=30
SlurmdTimeout={dead_s}
UnkillableStepTimeout=30
MessageTimeout={message_s}
TCPTimeout=10
PropagateResourceLimits=NONE
SlurmctldPort={port2}
SlurmctldPidFile={root}/run/slurmctld.pid
SlurmdPidFile={root}/run/slurmd-%n.pid
SlurmdSpoolDir={root}/spool/%n
StateSaveLocation={root}/state
SlurmctldLogFile={root}/log/slurmctld.log
SlurmdLogFile={root}/log/slurmd-%n.log
SlurmctldDebug=info
SlurmdDebug=info
SlurmdParameters=config_overrides
GresTypes=gpu
"""


def _free_ports(count: int) -> int:
    """The first of so many neighbouring ports that nobody listens on."""
    for first in range(21000, 60000, count + 3):
        with contextlib.ExitStack() as stack:
            try:
                for port in range(first, first + count):
                    listener = stack.enter_context(socket.socket())
                    listener.bind(("127.0.0.1", port))
            except OSError:
                continue
            return first
    raise RuntimeError("no free ports")


@contextlib.contextmanager
def _one_at_a_time() -> Iterator[None]:
    """Of all processes of this machine that start a cluster."""
    with Path("/run/lock/scaling-study-slurm.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _make_resolvable(names: list[str]) -> None:
    hosts = Path("/etc/hosts")
    known = hosts.read_text().split()
    missing = [name for name in names if name not in known]
    if missing:
        with hosts.open("a") as file:
            file.write("".join(f"127.0.0.1 {name}\n" for name in missing))


def _processes() -> list[tuple[int, str]]:
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            line = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
            if line:
                found.append((int(folder.name), line))
    return found


def _environment(pid: int) -> str:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/environ").read_bytes().decode(errors="replace")
    return ""


def _open_files(pid: int) -> list[str]:
    found = []
    for path in Path(f"/proc/{pid}/fd").glob("*"):
        with contextlib.suppress(OSError):
            found.append(str(path.readlink()))
    return found


def main(arguments: list[str]) -> None:
    """Install, start or stop."""
    if arguments[:1] == ["install"]:
        install()
    elif arguments[:1] == ["start"] and len(arguments) == 2:
        cluster = Cluster(Path(arguments[1]))
        cluster.start()
        print(f"export SLURM_CONF={cluster.conf}")
    elif arguments[:1] == ["stop"] and len(arguments) == 2:
        Cluster(Path(arguments[1])).stop()
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main(sys.argv[1:])
