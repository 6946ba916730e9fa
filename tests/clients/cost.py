"""Measures what metrics, traces and the audit log cost a list, a get and a create, in instructions of the whole server
(Valgrind's callgrind).

Instructions do not depend on the load of the machine. Each figure is the difference of two runs with different numbers of
requests over one connection, so that starting and stopping cancel out. The log is reduced to warnings: a line per request
would cost more than what is measured. `PLATFORM_SERVER` is the binary, by default a debug build; traces are measured if it
has the feature `otlp`. There is no collector: what is measured is the cost in the path of a request and of the attempts to
send.
"""

import http.client
import os
import pathlib
import random
import re
import shutil
import signal
import subprocess
import tempfile
import urllib.parse

from server import binary

MANY = int(os.environ.get("PLATFORM_COST_REQUESTS", "5000"))
FEW = MANY // 5
REPOS = 200
# Exports happen by time, and Valgrind makes a second some fifty times shorter for the server: the spans and metrics are
# sent when the server stops, as in one interval of a server at work.
RARE = {"OTEL_BSP_SCHEDULE_DELAY": "3600000", "OTEL_METRIC_EXPORT_INTERVAL": "3600000"}


class Run:
    """A server process on a data directory."""

    def __init__(self, program: pathlib.Path, data: pathlib.Path, *options: str, measured: bool = False):
        self.log = data.parent / "log"
        command = ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null"] if measured else []
        command += [program, "--listen", "127.0.0.1:0", "--data-dir", data, "--log", "warn", *options]
        with self.log.open("w") as errors:
            environment = {**os.environ, **RARE}
            self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True, env=environment)
        line = self.process.stdout.readline()
        assert line.startswith("Listening on "), self.log.read_text()
        self.connection = http.client.HTTPConnection(urllib.parse.urlparse(line.split()[2]).netloc, timeout=600)

    def call(self, method: str, path: str, token: str, body: str | None = None) -> bytes:
        """Makes a request that must succeed."""
        self.connection.request(method, path, body, {"Authorization": f"Bearer {token}"})
        reply = self.connection.getresponse()
        text = reply.read()
        assert reply.status == 200, text
        return text

    def stop(self) -> int:
        """Stops the server. Returns the number of instructions, if it was measured."""
        self.connection.close()
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(600) == 0, self.log.read_text()
        found = re.search(r"Collected : (\d+)", self.log.read_text())
        return int(found[1]) if found else 0


def variables(program: pathlib.Path, data: pathlib.Path) -> tuple[str, str]:
    """Returns the token of the operator and the first organization."""
    printed = subprocess.run([program, "env", "--data-dir", data], check=True, stdout=subprocess.PIPE, text=True).stdout
    token, organization = (re.search(rf"{name}=(\S+)", printed)[1] for name in ("TOKEN", "ORG_ID"))
    return token, organization


def main() -> None:
    if not shutil.which("valgrind"):
        print("NOT RUN: the cost of metrics was not measured, which needs valgrind")
        return
    program = binary()
    seed = random.Random(int(os.environ.get("PLATFORM_SEED", "1")))
    help_text = subprocess.run([program, "serve", "--help"], check=True, stdout=subprocess.PIPE, text=True).stdout
    configurations = {"off": [], "metrics": ["--metrics-listen", "127.0.0.1:0"]}
    audit_log = pathlib.Path(tempfile.gettempdir()) / f"audit-{os.getpid()}.log"
    configurations["audit log"] = ["--audit-log", str(audit_log)]
    if "--otlp-endpoint" in help_text:
        collector = ["--otlp-endpoint", "http://127.0.0.1:1", "--trace-ratio"]
        configurations |= {f"traces of {ratio}": [*collector, ratio] for ratio in ("0", "0.01")}
        configurations["metrics by OTLP"] = [*collector, "0", "--otlp-metrics"]
    with tempfile.TemporaryDirectory() as folder:
        data = pathlib.Path(folder) / "data"
        # Creates the keys and the repos, natively.
        first = Run(program, data)
        token, organization = variables(program, data)
        uids = []
        for number in range(REPOS):
            body = first.call("POST", f"/registry/v2/repos/{organization}", token, f'{{"name":"repo-{number:04}"}}')
            uids.append(re.search(rb'"uid":"([^"]+)"', body)[1].decode())
        first.stop()

        def instructions(options: list[str], requests: list[tuple[str, str, str | None]]) -> int:
            # Each run begins with the same data.
            copy = pathlib.Path(folder) / "copy" / "data"
            shutil.rmtree(copy.parent, ignore_errors=True)
            shutil.copytree(data, copy)
            run = Run(program, copy, *options, measured=True)
            token, _ = variables(program, copy)
            for method, path, body in requests:
                run.call(method, path, token, body)
            counted = run.stop()
            audit_log.unlink(missing_ok=True)
            return counted

        kinds = {
            "get": [("GET", f"/registry/v2/repos/{seed.choice(uids)}", None) for _ in range(MANY)],
            "list": [("GET", "/registry/v2/repos?page_size=50", None)] * MANY,
            "create": [
                ("POST", f"/registry/v2/repos/{organization}", f'{{"name":"new-{number:05}"}}') for number in range(MANY)
            ],
        }
        for kind, requests in kinds.items():
            base = None
            for name, options in configurations.items():
                few, many = (instructions(options, requests[:count]) for count in (FEW, MANY))
                each = (many - few) / (MANY - FEW)
                base = base or each
                print(f"{kind}, {name}: {each:,.0f} instructions, {each / base - 1:+.1%}", flush=True)


if __name__ == "__main__":
    main()
