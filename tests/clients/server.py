"""Starts a platform-server for the duration of a check, or a fleet of them on PostgreSQL (fleet.py)."""

import contextlib
import json
import os
import pathlib
import shlex
import subprocess
import tempfile
import urllib.request
from dataclasses import dataclass

import retries

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent

retries.repeat_with_urllib()


@dataclass
class Server:
    """A running server: its URL, data directory, first organization, operator token and log file."""

    url: str
    data: pathlib.Path
    organization: str
    token: str
    log: pathlib.Path

    def call(self, method: str, path: str, body: object = None) -> dict:
        """Calls the API as the operator. Returns the JSON response; raises HTTPError on failure."""
        request = urllib.request.Request(
            self.url + path,
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Authorization": f"Bearer {self.token}"},
        )
        with urllib.request.urlopen(request, timeout=30) as reply:
            # Deletes answer without a body.
            return json.loads(reply.read() or b"{}")


def operations(document: dict) -> int:
    """Counts the operations of a document. Entries of a path that are not operations, such as parameters, are lists."""
    return sum(isinstance(one, dict) for methods in document["paths"].values() for one in methods.values())


def binary() -> pathlib.Path:
    """Returns the server binary: `PLATFORM_SERVER`, or a new debug build."""
    path = os.environ.get("PLATFORM_SERVER")
    if path:
        return pathlib.Path(path).resolve()
    return built("platform-server")


def built(name: str) -> pathlib.Path:
    """Builds a program of the workspace, unless it is next to `PLATFORM_SERVER`.

    Builds all programs with the features of `cargo test --workspace`, so that after the tests little more than linking is
    left. A build of one package has other features of its dependencies, which would be compiled again.
    """
    given = pathlib.Path(os.environ.get("PLATFORM_SERVER", "")).resolve().parent / name
    if "PLATFORM_SERVER" in os.environ and given.exists():
        return given
    subprocess.run(["cargo", "build", "--workspace", "--bins", "--examples", "--locked"], cwd=ROOT, check=True)
    return pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")).resolve() / "debug" / name


@contextlib.contextmanager
def running(*more: str):
    """Starts a server on a free port, with additional options, and stops it at the end. The default store is memory."""
    if "PLATFORM_FLEET" in os.environ:
        import fleet

        with fleet.servers(*more) as server:
            yield server
        return
    program = binary()
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        log, data = folder / "log", folder / "data"
        options = ["--data-dir", str(data), *more]
        if "--listen" not in more:
            options += ["--listen", "127.0.0.1:0"]
        if "--store" not in more:
            options += ["--store", "memory"]
        with log.open("w") as errors:
            process = subprocess.Popen([program, *options], stdout=subprocess.PIPE, stderr=errors, text=True)
            try:
                line = process.stdout.readline()
                if not line.startswith("Listening on "):
                    raise SystemExit(f"the server does not start: {line}{log.read_text()}")
                store = more[more.index("--store") :][:2] if "--store" in more else ()
                env = subprocess.run(
                    [program, "env", "--data-dir", str(data), *store], stdout=subprocess.PIPE, text=True, check=True
                )
                words = shlex.split(env.stdout)
                values = dict(word.split("=", 1) for word in words if "=" in word)
                yield Server(line.split()[2], data, values["ORG_ID"], values["TOKEN"], log)
            finally:
                process.terminate()
                process.wait(timeout=30)


def read_audit_log(path: pathlib.Path) -> str:
    """Returns the text of an audit log, which has a file each for changes, sign-ins and failed requests."""
    return "".join(pathlib.Path(f"{path}{part}").read_text() for part in ("", ".sign-ins", ".failed"))
