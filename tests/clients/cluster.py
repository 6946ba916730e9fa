"""Starts three PostgreSQL nodes with Patroni and etcd on this machine, and makes them fail."""

import contextlib
import glob
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

from server import ROOT

# Pinned for reproducible runs.
PACKAGES = ("patroni[etcd3]==4.1.5", "psycopg[binary]==3.3.9")
FOLDER = ROOT / "target" / "clients-failover"
PASSWORD = "failover"

# With a primary that is known to be dead after `ttl`, and replaced at once if only its processes have died. `ttl` must be
# at least `loop_wait` and twice `retry_timeout`.
SETTINGS = {
    "ttl": 8,
    "loop_wait": 1,
    "retry_timeout": 3,
    "primary_start_timeout": 0,
    "maximum_lag_on_failover": 1 << 30,
    "synchronous_mode": True,
    "synchronous_mode_strict": True,
    "postgresql": {
        "use_pg_rewind": True,
        "parameters": {
            # No test cuts the power: the files survive the end of all processes.
            "fsync": "off",
            "wal_level": "replica",
            "hot_standby": "on",
            "wal_keep_size": "256MB",
            "max_wal_size": "256MB",
            "max_connections": 150,
            "shared_buffers": "64MB",
            "wal_sender_timeout": "5s",
            "wal_receiver_timeout": "5s",
            "jit": "off",
        },
    },
}


class Missing(Exception):
    """Something that cannot be installed on this machine."""


def free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]


def apt(*packages: str) -> None:
    options = {"check": True, "env": {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}, "stdout": subprocess.DEVNULL}
    try:
        subprocess.run(["apt-get", "update", "-qq"], **options)
        subprocess.run(["apt-get", "install", "-y", "-qq", "--no-install-recommends", *packages], **options)
    except (OSError, subprocess.CalledProcessError) as error:
        raise Missing(f"{' '.join(packages)}: {error}") from error


def postgres_programs() -> pathlib.Path:
    """Returns the folder of the programs of PostgreSQL."""

    def found() -> list[str]:
        return sorted(glob.glob("/usr/lib/postgresql/*/bin"), key=lambda name: int(name.split("/")[4]))

    if shutil.which("initdb"):
        return pathlib.Path(shutil.which("initdb")).resolve().parent
    if not found():
        apt("postgresql")
    return pathlib.Path(found()[-1])


def account() -> dict[str, object]:
    """Returns the user of the nodes, as options of a process: PostgreSQL does not run as root."""
    return {"user": "postgres", "group": "postgres", "extra_groups": []} if os.getuid() == 0 else {}


def interpreter() -> str:
    """Returns a Python that the nodes' user can run: that of root may be in its home."""
    for python in (sys.executable, "/usr/bin/python3"):
        with contextlib.suppress(OSError):
            options = {"cwd": "/", "capture_output": True, **account()}
            if subprocess.run([python, "-c", "import venv, ensurepip"], **options).returncode == 0:
                return python
    raise Missing("a Python with venv that the user postgres can run")


def install() -> tuple[pathlib.Path, pathlib.Path, pathlib.Path]:
    """Returns Patroni, etcd and the folder of PostgreSQL's programs, and installs what is missing."""
    # With the server comes its user.
    postgres = postgres_programs()
    stamp = FOLDER / "packages"
    if not stamp.exists() or stamp.read_text() != str(PACKAGES):
        try:
            subprocess.run([interpreter(), "-m", "venv", "--clear", FOLDER], check=True)
            subprocess.run([FOLDER / "bin" / "python", "-m", "pip", "install", "--quiet", *PACKAGES], check=True)
        except subprocess.CalledProcessError as error:
            raise Missing(f"Patroni: {error}") from error
        stamp.write_text(str(PACKAGES))
    if not shutil.which("etcd"):
        apt("etcd-server")
        # The test starts its own.
        subprocess.run(["systemctl", "disable", "--now", "etcd"], check=False, capture_output=True)
    return FOLDER / "bin" / "patroni", pathlib.Path(shutil.which("etcd")), postgres


def children(parents: set[int]) -> set[int]:
    """Returns the child processes of processes."""
    found = set()
    for stat in glob.glob("/proc/[0-9]*/stat"):
        with contextlib.suppress(OSError):
            fields = pathlib.Path(stat).read_text().rsplit(") ", 1)[1].split()
            if int(fields[1]) in parents:
                found.add(int(stat.split("/")[2]))
    return found


def send(pids: set[int], number: int) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


class Node:
    """A machine: PostgreSQL, Patroni and a member of etcd."""

    def __init__(self, cluster: "Cluster", name: str, port: int, rest: int, etcd: int, peer: int):
        self.cluster, self.name, self.port, self.rest, self.etcd, self.peer = cluster, name, port, rest, etcd, peer
        self.folder = cluster.folder / name
        self.folder.mkdir()
        self.disk = self.folder / "disk"
        self.disk.mkdir()
        self.processes: dict[str, subprocess.Popen] = {}

    def own_disk(self, megabytes: int) -> bool:
        """Gives the node a small disk; false if that is not possible on this machine."""
        options = f"size={megabytes}m,mode=0777"
        done = subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", self.disk], capture_output=True)
        return done.returncode == 0

    @property
    def data(self) -> pathlib.Path:
        return self.disk / "data"

    def run(self, name: str, *command: object, **environment: str) -> None:
        log = (self.folder / f"{name}.log").open("a")
        self.processes[name] = subprocess.Popen(
            [str(word) for word in command],
            stdout=log,
            stderr=log,
            stdin=subprocess.DEVNULL,
            cwd=self.folder,
            env={**os.environ, **environment},
            start_new_session=True,
            **self.cluster.user,
        )
        log.close()

    def start(self) -> None:
        """Starts what does not run."""
        for name, start in (("etcd", self.start_etcd), ("patroni", self.start_patroni)):
            if name not in self.processes or self.processes[name].poll() is not None:
                start()

    def start_etcd(self) -> None:
        peers = ",".join(f"{node.name}=http://127.0.0.1:{node.peer}" for node in self.cluster.nodes)
        client, peer = f"http://127.0.0.1:{self.etcd}", f"http://127.0.0.1:{self.peer}"
        self.run(
            "etcd", self.cluster.etcd, "--name", self.name, "--data-dir", self.cluster.fast / self.name,
            "--listen-client-urls", client, "--advertise-client-urls", client,
            "--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer,
            "--initial-cluster", peers, "--initial-cluster-state", "new",
            "--heartbeat-interval", "100", "--election-timeout", "1000", "--log-level", "error",
            ETCD_UNSUPPORTED_ARCH=os.uname().machine,
        )  # fmt: skip

    def start_patroni(self) -> None:
        user = {"username": "postgres", "password": PASSWORD}
        configuration = {
            "scope": "platform",
            "name": self.name,
            "restapi": {"listen": f"127.0.0.1:{self.rest}", "connect_address": f"127.0.0.1:{self.rest}"},
            "etcd3": {"hosts": [f"127.0.0.1:{node.etcd}" for node in self.cluster.nodes]},
            "bootstrap": {"dcs": SETTINGS, "initdb": [{"encoding": "UTF8"}, {"locale": "C"}, "data-checksums"]},
            "postgresql": {
                "listen": f"127.0.0.1:{self.port}",
                "connect_address": f"127.0.0.1:{self.port}",
                "data_dir": str(self.data),
                "bin_dir": str(self.cluster.programs),
                "pgpass": str(self.folder / "pgpass"),
                "authentication": {
                    "superuser": user,
                    "replication": {"username": "replicator", "password": PASSWORD},
                },
                "pg_hba": ["host all all 127.0.0.1/32 md5", "host replication all 127.0.0.1/32 md5"],
                "parameters": {"unix_socket_directories": str(self.folder)},
                "remove_data_directory_on_rewind_failure": True,
                "remove_data_directory_on_diverged_timelines": True,
            },
            "watchdog": {"mode": "off"},
            "log": {"level": "INFO"},
        }
        # YAML includes JSON.
        (self.folder / "patroni.yml").write_text(json.dumps(configuration, indent=1))
        self.run("patroni", self.cluster.patroni, self.folder / "patroni.yml")

    def postgres(self) -> set[int]:
        """Returns the processes of PostgreSQL."""
        try:
            postmaster = int((self.data / "postmaster.pid").read_text().split("\n", 1)[0])
            if "postgres" not in pathlib.Path(f"/proc/{postmaster}/comm").read_text():
                return set()
        except (OSError, ValueError):
            return set()
        return {postmaster} | children({postmaster})

    def everything(self) -> set[int]:
        own = {process.pid for process in self.processes.values() if process.poll() is None}
        own |= children(own)
        return own | children(own) | self.postgres()

    def crash(self) -> None:
        """Kills PostgreSQL, and not what watches it."""
        send(self.postgres(), signal.SIGKILL)

    def kill(self) -> None:
        """Kills everything, as when the machine is gone."""
        postgres = self.postgres()
        # Nothing may notice that something else is gone.
        send(self.everything(), signal.SIGSTOP)
        send(self.everything() | postgres, signal.SIGKILL)
        for process in self.processes.values():
            process.wait()

    def freeze(self) -> None:
        """Stops everything where it is, as a machine that is paused. Its system still accepts connections."""
        send(self.everything(), signal.SIGSTOP)

    def thaw(self) -> None:
        send(self.everything(), signal.SIGCONT)

    def patroni_call(self, path: str, body: object = None) -> object:
        data = None if body is None else json.dumps(body).encode()
        url = f"http://127.0.0.1:{self.rest}{path}"
        request = urllib.request.Request(url, data, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=2 if body is None else 30) as reply:
            text = reply.read().decode()
        return json.loads(text) if text.startswith("{") else text


class Cluster:
    """Three nodes."""

    def __init__(self, folder: pathlib.Path, fast: pathlib.Path, megabytes: int):
        self.patroni, self.etcd, self.programs = install()
        self.folder, self.fast = folder, fast
        self.user = account()
        ports = free_ports(12)
        self.nodes: list[Node] = []
        for at in range(3):
            self.nodes.append(Node(self, f"node{at + 1}", *ports[at * 4 : at * 4 + 4]))
        self.has_small_disks = all([node.own_disk(megabytes) for node in self.nodes])
        for path in (folder, fast):
            if self.user:
                for one in (path, *path.rglob("*")):
                    shutil.chown(one, "postgres", "postgres")
            path.chmod(0o755)

    def start(self) -> None:
        for node in self.nodes:
            node.start_etcd()
        for node in self.nodes:
            node.start_patroni()
        self.wait_healthy(180)

    def members(self) -> list[dict]:
        """Returns what a node knows of all; the first that answers."""
        for node in self.nodes:
            with contextlib.suppress(OSError, ValueError):
                return node.patroni_call("/cluster")["members"]
        return []

    def leader(self, wait: float = 60, other_than: Node | None = None) -> Node:
        until = time.monotonic() + wait
        while time.monotonic() < until:
            for member in self.members():
                node = next(one for one in self.nodes if one.name == member["name"])
                if member["role"] == "leader" and member.get("state") == "running" and node is not other_than:
                    return node
            time.sleep(0.1)
        raise SystemExit(f"no leader: {self.members()}\n{self.logs()}")

    def wait_healthy(self, wait: float = 180) -> None:
        """Waits until all nodes run, and one is a synchronous standby."""
        until = time.monotonic() + wait
        while time.monotonic() < until:
            members = self.members()
            roles = sorted(member["role"] for member in members if member.get("state") in ("running", "streaming"))
            if roles == ["leader", "replica", "sync_standby"]:
                return
            time.sleep(0.2)
        raise SystemExit(f"the cluster does not recover: {self.members()}\n{self.logs()}")

    def switch_over(self) -> None:
        members = {member["role"]: member["name"] for member in self.members()}
        body = {"leader": members["leader"], "candidate": members["sync_standby"]}
        self.leader().patroni_call("/switchover", body)

    def sql(self, node: Node, statement: str) -> str:
        done = subprocess.run(
            [self.programs / "psql", "-XAtq", "-h", "127.0.0.1", "-p", str(node.port), "-U", "postgres", "-c", statement],
            env={**os.environ, "PGPASSWORD": PASSWORD, "PGCONNECT_TIMEOUT": "3"},
            capture_output=True,
            text=True,
            timeout=30,
        )
        return done.stdout.strip()

    def logs(self) -> str:
        """Returns the last lines of all logs."""
        texts = []
        for log in sorted(self.folder.rglob("*.log")):
            lines = log.read_text(errors="replace").splitlines()
            texts.append("\n".join([f"--- {log.parent.name}/{log.name}", *lines[-15:]]))
        return "\n".join(texts)

    def stop(self) -> None:
        for node in self.nodes:
            node.kill()
        for node in self.nodes:
            if self.has_small_disks:
                subprocess.run(["umount", "-l", node.disk], check=False)


@contextlib.contextmanager
def running(megabytes: int):
    """Starts a cluster whose nodes have disks of a size, and removes it at the end."""
    memory = pathlib.Path("/dev/shm")
    with (
        tempfile.TemporaryDirectory(prefix="platform-failover") as folder,
        # etcd would wait for the disk.
        tempfile.TemporaryDirectory(prefix="platform-failover", dir=memory if memory.is_dir() else None) as fast,
    ):
        cluster = Cluster(pathlib.Path(folder), pathlib.Path(fast), megabytes)
        try:
            cluster.start()
            yield cluster
        finally:
            cluster.stop()


def version(program: pathlib.Path, argument: str = "--version") -> str:
    text = subprocess.run([program, argument], capture_output=True, text=True).stdout
    return re.search(r"\d+\.\d+(\.\d+)?", text).group()
