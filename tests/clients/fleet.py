"""Passes the checks of this folder with servers on one PostgreSQL behind a balancer, of which one is killed every 10 s.

    run.py fleet        runs document, events, load, grpc, terraform-calls, operations and signin

A check runs as it does with one server: `server.running` gives it the URL of HAProxy, with the configuration of
deploy/compose. All clients repeat requests by the same rule (retries.py); what they repeated is printed. The servers must
not answer 5xx, must not end by themselves, and `platform-server check` must find nothing afterwards.

Sign-ins in progress are in the memory of one server, to which HAProxy sends them, so `signin` never kills that one.

`PLATFORM_FLEET_CHECKS` chooses the checks. Each is repeated for `PLATFORM_FLEET_SECONDS` and until
`PLATFORM_FLEET_KILLS` servers were killed during it (default: once). `PLATFORM_FLEET_PERIOD` is the time between two
kills (default: 10 s). With `PLATFORM_FLEET_SIGNAL=TERM` the servers are restarted as for an upgrade instead, and
clients must not have to repeat any request. `PLATFORM_FLEET_OLD` is the program of another release: members then start
with it, and each restart of a member changes its release, so that both releases serve side by side, and each reads what
the other wrote.
"""

import collections
import contextlib
import itertools
import json
import os
import pathlib
import random
import re
import shlex
import shutil
import signal
import ssl
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
import uuid

import database
from server import ROOT, Server, binary

HERE = pathlib.Path(__file__).resolve().parent
CHECKS = {
    "document": "document.py",
    "events": "events.py",
    "load": "load.py",
    "grpc": "calls.py",
    "terraform-calls": "terraform_calls.py",
    "operations": "operations.py",
    "signin": "signin.py",
}
# Of every installation: the Base64 of 32 bytes.
KEY = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="
# A server that is not ready after this many seconds is broken.
START = 60


def status(url: str, context: ssl.SSLContext | None = None) -> int:
    """Returns the status of a URL, and 0 without a reply. The request is not repeated."""
    try:
        with urllib.request.build_opener(urllib.request.HTTPSHandler(context=context)).open(url, timeout=5) as reply:
            return reply.status
    except urllib.error.HTTPError as error:
        return error.code
    except OSError:
        return 0


def wait_until(condition, what: str, seconds: float = START) -> None:
    until = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > until:
            raise SystemExit(f"{what}: not within {seconds} s")
        time.sleep(0.05)


class Member:
    """A server of the fleet, on a port of its own."""

    def __init__(self, number: int, programs: list[object], options: list[str], env: dict, log: pathlib.Path):
        self.port = database.free_port()
        self.name = f"member-{number}"
        self.programs = itertools.cycle(programs)
        self.options = [*options, "--listen", f"127.0.0.1:{self.port}", "--instance", self.name]
        self.env, self.log = env, log
        self.process = None

    def start(self) -> None:
        with self.log.open("a") as log:
            self.process = subprocess.Popen([next(self.programs), *self.options], env=self.env, stdout=log, stderr=log)

    def ready(self) -> bool:
        if self.process.poll() is not None:
            raise SystemExit(f"{self.name} has ended with {self.process.returncode}: {self.log.read_text()[-4000:]}")
        return status(f"http://127.0.0.1:{self.port}/readyz") == 200

    def wait(self) -> None:
        wait_until(self.ready, f"{self.name} is ready")


class Killer(threading.Thread):
    """Kills one member after another, and starts each again."""

    def __init__(self, members: list[Member], period: float, number: int):
        super().__init__()
        self.members, self.period, self.signal = members, period, number
        self.stopped = threading.Event()
        self.kills, self.fault = 0, None

    def run(self) -> None:
        try:
            # A check that takes less than a period sees a kill as often as if the members were killed between checks too.
            pause = random.uniform(0, self.period)
            while not self.stopped.wait(pause):
                pause = self.period
                member = self.members[self.kills % len(self.members)]
                # A server that has ended by itself is not killed, but reported.
                assert member.ready(), f"{member.name} is not ready"
                member.process.send_signal(self.signal)
                member.process.wait()
                self.kills += 1
                member.start()
                member.wait()
        except (Exception, SystemExit) as error:
            self.fault = error

    def stop(self) -> None:
        self.stopped.set()
        self.join()


def haproxy() -> str:
    """Returns HAProxy, and installs it if it is missing."""
    # Not on the PATH of ordinary users.
    path = f"{os.environ['PATH']}:/usr/sbin"
    if not shutil.which("haproxy", path=path):
        database.install("haproxy")
    return shutil.which("haproxy", path=path)


def configuration(port: int, members: list[Member], certificate: pathlib.Path | None) -> str:
    """Returns the configuration of deploy/compose for these members."""
    text = (ROOT / "deploy" / "compose" / "haproxy.cfg").read_text()
    tls = f" ssl crt {certificate} alpn h2,http/1.1" if certificate else ""
    text, bound = re.subn(r"^( +bind) :8080$", rf"\1 127.0.0.1:{port}{tls}", text, flags=re.M)

    def servers(line: re.Match) -> str:
        return "\n".join(f"    server {one.name} 127.0.0.1:{one.port} {line[1]}" for one in members)

    pattern = r"^ +server-template server \d+ server:8080 (.*?) ?resolvers docker init-addr none$"
    text, replaced = re.subn(pattern, servers, text, flags=re.M)
    text = re.sub(r"^resolvers docker\n(?: .*\n)*", "", text, flags=re.M)
    assert bound == 1 and replaced == text.count("\nbackend "), text
    return text


def is_ready(balancer: subprocess.Popen, port: int, certificate: pathlib.Path | None) -> bool:
    """Returns whether the balancer forwards requests."""
    if balancer.poll() is not None:
        raise SystemExit(f"the balancer has ended with {balancer.returncode}")
    context = ssl.create_default_context(cafile=certificate)
    scheme = "https" if certificate else "http"
    return status(f"{scheme}://127.0.0.1:{port}/readyz", context) == 200


@contextlib.contextmanager
def servers(*options: str):
    """Runs the members of a new installation behind a balancer, with the options of a check."""
    spec = json.loads(os.environ["PLATFORM_FLEET"])
    program, options = binary(), list(options)
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        log, port, name = folder / "log", database.free_port(), f"fleet_{uuid.uuid4().hex}"
        certificate = None
        if "--tls-cert" in options:
            # The balancer ends TLS.
            parts = [options.pop(options.index(option) + 1) for option in ("--tls-cert", "--tls-key")]
            options = [option for option in options if option not in ("--tls-cert", "--tls-key")]
            certificate = folder / "balancer.pem"
            certificate.write_text("".join(pathlib.Path(part).read_text() for part in parts))
        database.create_database(spec["port"], name)
        url = f"{'https' if certificate else 'http'}://127.0.0.1:{port}"
        env = {
            **os.environ,
            "PLATFORM_STORE": f"postgres://platform@127.0.0.1:{spec['port']}/{name}?sslmode=disable",
            "PLATFORM_KEY_ENCRYPTION_KEY": KEY,
            "PLATFORM_DATA_DIR": str(folder / "data"),
            "PLATFORM_PUBLIC_URL": url,
            "PLATFORM_TRUSTED_PROXIES": "127.0.0.0/8",
            "PLATFORM_STOP_DELAY": "3s",
        }
        run = {"env": env, "check": True, "stdout": subprocess.PIPE, "text": True}
        programs = [os.environ["PLATFORM_FLEET_OLD"], program] if "PLATFORM_FLEET_OLD" in os.environ else [program]
        subprocess.run([programs[0], "migrate"], **run)
        members = [Member(number, programs, options, env, log) for number in range(1, spec["members"] + 1)]
        file = folder / "haproxy.cfg"
        file.write_text(configuration(port, members, certificate))
        balancer = None
        try:
            for member in members:
                member.start()
            for member in members:
                member.wait()
            # Of an upgrade: the servers of the old release continue.
            subprocess.run([program, "migrate"], **run)
            with log.open("a") as errors:
                balancer = subprocess.Popen([haproxy(), "-db", "-q", "-f", file], stdout=errors, stderr=errors)
            wait_until(lambda: is_ready(balancer, port, certificate), "the balancer is ready")
            words = shlex.split(subprocess.run([program, "env"], **run).stdout)
            values = dict(word.split("=", 1) for word in words if "=" in word)
            killer = Killer(members[spec["spared"] :], spec["period"], spec["signal"])
            killer.start()
            try:
                yield Server(url, folder / "data", values["ORG_ID"], values["TOKEN"], log)
            finally:
                killer.stop()
                keep_log(log)
            if killer.fault:
                raise SystemExit(f"{killer.fault}")
            record({"kills": killer.kills})
        finally:
            if balancer:
                balancer.terminate()
                balancer.wait(timeout=30)
            for member in members:
                if member.process:
                    member.process.terminate()
            for member in members:
                if member.process:
                    member.process.wait(timeout=60)
        examine(log.read_text(), program, run)


def examine(log: str, program: pathlib.Path, run: dict) -> None:
    """Checks the log of all members, and the database after their end."""
    plain = re.sub(r"\x1b\[[0-9;]*m", "", log)
    lines = [line for line in plain.splitlines() if 'path="/readyz"' not in line]
    faults = [line for line in lines if "panicked" in line or re.search(r"answered status=5(?!01)\d\d", line)]
    if faults:
        raise SystemExit("faults of the servers:\n" + "\n".join(faults[:20]))
    subprocess.run([program, "check"], **run, stderr=subprocess.DEVNULL)


def keep_log(log: pathlib.Path) -> None:
    """Keeps the log of the members where it outlives them."""
    shutil.copy(log, ROOT / "target" / "fleet.log")


def record(result: dict) -> None:
    with open(os.environ["PLATFORM_FLEET_RESULTS"], "a") as file:
        file.write(json.dumps(result) + "\n")


def killed(results: pathlib.Path) -> int:
    """Returns the number of kills in the runs of a check."""
    lines = results.read_text().splitlines() if results.exists() else []
    return sum(json.loads(line)["kills"] for line in lines)


def check(name: str, spec: dict, seconds: float, least: int, folder: pathlib.Path) -> int:
    """Runs a check for a time and at least so many kills, and prints what its clients repeated. Returns the kills."""
    results, repeated = folder / f"{name}.results", folder / f"{name}.repeated"
    repeated.touch()
    env = {
        **os.environ,
        "PYTHONPATH": str(HERE),
        "PLATFORM_FLEET": json.dumps({**spec, "spared": 1 if name == "signin" else 0}),
        "PLATFORM_FLEET_RESULTS": str(results),
        "PLATFORM_REPEATED": str(repeated),
    }
    begun, runs = time.monotonic(), 0
    while not runs or time.monotonic() - begun < seconds or killed(results) < least:
        runs += 1
        if subprocess.run([sys.executable, HERE / CHECKS[name]], cwd=ROOT, env=env).returncode:
            raise SystemExit(f"{name}: failed in run {runs}; repeated until then:\n{repeated.read_text()[-4000:]}")
    if spec["signal"] == signal.SIGTERM and repeated.stat().st_size:
        raise SystemExit(f"{name}: restarts are not free of errors:\n{repeated.read_text()}")
    kills = killed(results)
    again = collections.Counter(line.split(" ")[0] if line[0] != "/" else "gRPC" for line in repeated.read_text().splitlines())
    counts = ", ".join(f"{count} {what}" for what, count in again.items()) or "nothing"
    print(f"fleet: {name} passed {runs} times in {time.monotonic() - begun:.0f} s, {kills} kills; repeated: {counts}", flush=True)
    return kills


def main() -> None:
    checks = os.environ.get("PLATFORM_FLEET_CHECKS", ",".join(CHECKS)).split(",")
    seconds = float(os.environ.get("PLATFORM_FLEET_SECONDS", "0"))
    least = int(os.environ.get("PLATFORM_FLEET_KILLS", "0"))
    # All checks use the same build.
    os.environ["PLATFORM_SERVER"] = str(binary())
    haproxy()
    with database.running() as port, tempfile.TemporaryDirectory() as folder:
        spec = {
            "port": port,
            "members": 2,
            "period": float(os.environ.get("PLATFORM_FLEET_PERIOD", "10")),
            "signal": getattr(signal, f"SIG{os.environ.get('PLATFORM_FLEET_SIGNAL', 'KILL')}"),
        }
        kills = sum(check(name, spec, seconds, least, pathlib.Path(folder)) for name in checks)
    if not kills:
        raise SystemExit("no server was killed, so nothing was tested")


if __name__ == "__main__":
    main()
