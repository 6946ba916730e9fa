"""Starts servers through connection poolers from Debian, between them and a private PostgreSQL.

- PgBouncer refuses the settings of sessions, unless it is told to drop them; then the server refuses PgBouncer. In both
  modes of pooling, the server does not start, and says why.
- pgpool-II passes the settings on. Clients change repos through it while PostgreSQL crashes, and nothing that was
  acknowledged is lost.

`PLATFORM_LOAD_SECONDS` is the duration of the load (default 10).
"""

import contextlib
import os
import pathlib
import shutil
import subprocess
import tempfile
import threading
import time

import cluster
import database
import retries
from fleet import KEY, status, wait_until
from load import CLIENTS, Client, listed
from server import Server, binary, running

PATH = f"{os.environ['PATH']}:/usr/sbin"

PGBOUNCER = """[databases]
* = host=127.0.0.1 port={port}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {pooler}
unix_socket_dir =
auth_type = trust
auth_file = {folder}/users
pool_mode = {mode}
{ignore}
"""

PGPOOL = """
backend_clustering_mode = 'streaming_replication'
sr_check_period = 0
load_balance_mode = off
listen_addresses = '127.0.0.1'
port = {pooler}
pcp_port = {pcp}
unix_socket_directories = '{folder}'
pcp_socket_dir = '{folder}'
pid_file_name = '{folder}/pgpool.pid'
logdir = '{folder}'
work_dir = '{folder}'
backend_hostname0 = '127.0.0.1'
backend_port0 = {port}
backend_flag0 = 'ALWAYS_PRIMARY|DISALLOW_TO_FAILOVER'
num_init_children = 40
failover_on_backend_error = off
"""


@contextlib.contextmanager
def pooler(program: str, package: str, name: str, text: str, options: list[str], **values: object):
    """Runs a pooler with its configuration. Gives its port."""
    if not shutil.which(program, path=PATH):
        database.install(package)
    port, pcp = cluster.free_ports(2)
    with tempfile.TemporaryDirectory(prefix="platform-pooler") as folder:
        if database.as_postgres():
            shutil.chown(folder, "postgres")
        file = pathlib.Path(folder) / name
        values = {"pooler": port, "pcp": pcp, "folder": folder, **values}
        file.write_text(text.format(**values))
        (file.parent / "users").write_text('"platform" ""\n')
        with (pathlib.Path(folder) / "log").open("w") as log:
            command = [*database.as_postgres(), shutil.which(program, path=PATH), *options, file]
            process = subprocess.Popen(command, cwd=folder, stdout=log, stderr=log)
            try:
                ready = ["psql", "-h", "127.0.0.1", "-p", str(port), "-U", "platform", "-c", "select 1", "postgres"]
                ready[0] = database.programs() / "psql"

                def answers() -> bool:
                    if process.poll() is not None:
                        raise SystemExit(f"{program}: {(pathlib.Path(folder) / 'log').read_text()}")
                    return subprocess.run(ready, capture_output=True).returncode == 0

                wait_until(answers, program)
                yield port
            finally:
                process.terminate()
                process.wait(timeout=30)


def command(*arguments: str) -> subprocess.CompletedProcess:
    return subprocess.run([binary(), *arguments], capture_output=True, text=True, timeout=60)


def refused(port: int, reason: str) -> None:
    """Starts a server, which must end with a reason."""
    with tempfile.TemporaryDirectory() as folder:
        store = ("--store", f"postgres://platform@127.0.0.1:{port}/platform")
        for arguments in (["migrate", *store], ["serve", "--listen", "127.0.0.1:0", "--data-dir", folder, *store]):
            done = command(*arguments)
            assert done.returncode == 1 and reason in done.stderr, (arguments, done.returncode, done.stderr)


def bouncer(cluster: database.Cluster) -> None:
    for mode in ("session", "transaction"):
        for ignore, reason in (
            ("", "unsupported startup parameter: options"),
            ("ignore_startup_parameters = options", "connect without the pooler"),
        ):
            values = {"mode": mode, "ignore": ignore, "port": cluster.port}
            with pooler("pgbouncer", "pgbouncer", "pgbouncer.ini", PGBOUNCER, [], **values) as port:
                refused(port, reason)
            print(f"PgBouncer, pooling by {mode}, {ignore or 'no parameter ignored'}: refused, {reason}")


def pgpool(cluster: database.Cluster) -> None:
    with pooler("pgpool", "pgpool2", "pgpool.conf", PGPOOL, ["-n", "-f"], port=cluster.port) as port:
        store = ("--store", f"postgres://platform@127.0.0.1:{port}/platform")
        migrated = command("migrate", *store)
        assert migrated.returncode == 0, migrated.stderr
        listen = f"127.0.0.1:{database.free_port()}"
        with running(*store, "--listen", listen, "--public-url", f"http://{listen}") as server:
            seconds = float(os.environ.get("PLATFORM_LOAD_SECONDS", "10"))
            until = time.monotonic() + seconds
            clients = [Client(server, number, until) for number in range(CLIENTS)]
            for client in clients:
                client.start()
            crash = threading.Timer(seconds / 2, lambda: (cluster.stop(), cluster.start()))
            crash.start()
            for client in clients:
                client.join()
            crash.join()
            faults = [f"client {client.number}: {client.fault!r}" for client in clients if client.fault]
            assert not faults, faults
            wait_until(lambda: status(f"{server.url}/readyz") == 200, "the server is ready")
            compare(server, clients)
    print(f"pgpool-II: {sum(client.requests for client in clients)} requests through a crash of PostgreSQL, nothing is lost")


def compare(server: Server, clients: list[Client]) -> None:
    expected = {name: repo for client in clients for name, repo in client.expected.items()}
    found, total = listed(server)
    assert expected and found == expected and total == len(expected), (found, expected)


def main() -> None:
    # Clients repeat requests by the rule of a fleet.
    retries.REPEATED = os.devnull
    retries.repeat_with_requests()
    os.environ["PLATFORM_KEY_ENCRYPTION_KEY"] = KEY
    with database.cluster() as cluster:
        database.create_database(cluster.port, "platform")
        bouncer(cluster)
        pgpool(cluster)


if __name__ == "__main__":
    main()
