"""A private PostgreSQL cluster and free ports, for checks that need no more than one node."""

import contextlib
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import tempfile

# As the Rust tests: without syncs, a private cluster survives the end of its processes but not that of the machine.
SETTINGS = "fsync=off\nmax_connections=200\nshared_buffers=64MB\njit=off\n"


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def programs() -> pathlib.Path:
    """Returns the directory of the newest installed server, and installs one if there is none."""
    if not (found := list(pathlib.Path("/usr/lib/postgresql").glob("*/bin/initdb"))):
        if path := shutil.which("initdb"):
            return pathlib.Path(path).resolve().parent
        install("postgresql")
        found = list(pathlib.Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    return max(found, key=lambda path: float(path.parts[-3])).parent


def install(*packages: str) -> None:
    """Installs Debian packages without starting their services."""
    env = {**os.environ, "DEBIAN_FRONTEND": "noninteractive", "RUNLEVEL": "1"}
    subprocess.run(["apt-get", "update", "-qq"], check=True)
    subprocess.run(["apt-get", "install", "-y", "-qq", "--no-install-recommends", *packages], check=True, env=env)


def as_postgres() -> list[str]:
    """Returns the beginning of a command that must not run as root."""
    return ["runuser", "-u", "postgres", "--"] if os.geteuid() == 0 else []


class Cluster:
    """A running cluster: its port on 127.0.0.1, and its folder."""

    def __init__(self, folder: str):
        self.folder, self.port = pathlib.Path(folder), free_port()
        self.data = self.folder / "data"

    def run(self, program: str, *arguments: object) -> None:
        command = [*as_postgres(), programs() / program, "-D", self.data, *arguments]
        done = subprocess.run(command, cwd=self.folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if done.returncode:
            raise SystemExit(f"{program}: {done.stdout}")

    def start(self) -> None:
        self.run("pg_ctl", "-w", "-l", f"{self.folder}/log", "start")

    def stop(self) -> None:
        """Ends the processes as a crash does."""
        self.run("pg_ctl", "-w", "-m", "immediate", "stop")


@contextlib.contextmanager
def cluster():
    """Runs a cluster with the superuser `platform`, without passwords."""
    # The cluster is in a session of its own, so nothing else would stop it.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped"))
    with tempfile.TemporaryDirectory(prefix="platform-clients") as folder:
        if as_postgres():
            shutil.chown(folder, "postgres")
        made = Cluster(folder)
        made.run("initdb", "-U", "platform", "--auth=trust", "--no-sync", "--locale=C", "--encoding=UTF8")
        settings = f"{SETTINGS}port={made.port}\nlisten_addresses='127.0.0.1'\nunix_socket_directories='{folder}'\n"
        with (made.data / "postgresql.auto.conf").open("a") as file:
            file.write(settings)
        made.start()
        try:
            yield made
        finally:
            made.stop()


@contextlib.contextmanager
def running():
    """Runs a cluster, and gives its port."""
    with cluster() as made:
        yield made.port


def create_database(port: int, name: str) -> None:
    command = [programs() / "createdb", "-h", "127.0.0.1", "-p", str(port), "-U", "platform", name]
    subprocess.run(command, check=True)
