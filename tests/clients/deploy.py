"""Checks the files of deploy/ and the commands of docs/quick-start.md and docs/how-to/postgresql.md that start servers on PostgreSQL.

- The two commands of docs/quick-start.md, and those of the section "Start", against a private PostgreSQL.
- The section "systemd", line by line, on Debian's PostgreSQL in namespaces of its own, so that it changes nothing on this
  machine. Stand-ins replace apt-get, sudo and systemctl: the last starts what the units say, as the users that they name.
- systemd-analyze verifies the units, HAProxy its configuration, and the library of docker compose the compose file.
- The server runs with the files of deploy/container alone, in a chroot.
- promtool checks the alerts, the queries of the dashboard, and the metrics of a server.
- The library of Helm renders the chart, and the results are checked against the schemas of Kubernetes; building the
  library takes minutes, so that happens where it was built before or `PLATFORM_HELM=1`.

No container is built or started, and no cluster is used: NOT RUN is printed for them.
"""

import contextlib
import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import urllib.request

import alerts
import database
from fleet import haproxy, status, wait_until
from sdk import go
from server import ROOT, binary

HERE = pathlib.Path(__file__).resolve().parent
DEPLOY = ROOT / "deploy"
GUIDE = ROOT / "docs" / "how-to" / "postgresql.md"
COMPOSE = "github.com/compose-spec/compose-go/v2@v2.16.2"
HELM = "helm.sh/helm/v3@v3.22.0"
SECRETS = {"PLATFORM_KEY_ENCRYPTION_KEY": "a key", "POSTGRES_PASSWORD": "a password"}


def output(*command: object, **options) -> str:
    """Runs a command that must succeed. Returns its output."""
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **options)
    if done.returncode:
        raise SystemExit(f"{' '.join(map(str, command))}: {done.stdout}")
    return done.stdout


def blocks(text: str, heading: str) -> list[list[str]]:
    """Returns the lines of each shell block between a text and the next heading."""
    part = re.split(r"^#+ ", text[text.index(heading) + len(heading) :], maxsplit=1, flags=re.M)[0]
    found = [block.splitlines() for block in re.findall(r"^```sh\n(.*?)^```$", part, flags=re.M | re.S)]
    assert found, heading
    return found


def call(token: str, url: str, body: object = None) -> dict:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Authorization": f"Bearer {token}"})
    with urllib.request.urlopen(request, timeout=30) as reply:
        return json.load(reply)


def variables(text: str) -> dict[str, str]:
    """Returns what `platform-server env` has printed."""
    return dict(word.split("=", 1) for word in shlex.split(text) if "=" in word)


def made_and_read(token: str, organization: str, first: str, second: str) -> None:
    """Creates a repo on one server and reads it on another."""
    made = call(token, f"{first}/registry/v2/repos/{organization}", {"name": "nginx"})
    assert call(token, f"{second}/registry/v2/repos/{made['uid']}") == made


def start(lines: list[str], url: str, store: str) -> None:
    """Types commands into a shell, of which the last starts a server, and then that one again for a second server.

    The database and the addresses of the page are replaced by those of this check.
    """
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        folder = pathlib.Path(folder)
        (folder / "platform-server").symlink_to(binary())
        (folder / "cargo").write_text('#!/bin/sh\nshift 3\nexec platform-server "$@"\n')
        (folder / "cargo").chmod(0o755)
        env = {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}", "HOME": str(folder)}
        text = "\n".join(lines)
        text, count = re.subn(r"postgres://[^/\s]+/platform", store, text)
        assert count == 1, text
        *begin, serve = text.splitlines()
        assert "serve" in serve and any(line.endswith("migrate") for line in begin), text
        print("\n".join(f"  $ {line}" for line in (*begin, serve)))
        exports = "\n".join(line for line in begin if line.startswith("export "))
        # The key of one shell is the key of the other.
        exported = output("bash", "-euc", f"{exports}\nenv -0", cwd=folder, env=env)
        env |= dict(one.split("=", 1) for one in exported.split("\0") if one.startswith("PLATFORM_"))
        rest = [line for line in begin if not line.startswith("export ")]
        output("bash", "-euc", "\n".join(rest), cwd=folder, env=env)
        urls = []
        for _ in range(2):
            port = database.free_port()
            listen = {"PLATFORM_LISTEN": f"127.0.0.1:{port}"}
            with (folder / "log").open("a") as log:
                server = subprocess.Popen(["bash", "-c", f"exec {serve}"], cwd=folder, env=env | listen, stdout=log, stderr=log)
            stack.callback(lambda server=server: (server.terminate(), server.wait(timeout=60)))
            urls.append(f"http://127.0.0.1:{port}")
            wait_until(lambda: status(f"{urls[-1]}/readyz") == 200, f"the server is ready (log: {folder / 'log'})")
        found = variables(output("platform-server", "env", cwd=folder, env=env, executable=folder / "platform-server"))
        assert found["API"] == url, found["API"]
        made_and_read(found["TOKEN"], found["ORG_ID"], *urls)


def two_commands() -> None:
    """Starts servers as docs/quick-start.md and the guide say."""
    page = (ROOT / "docs" / "quick-start.md").read_text()
    [page_block] = blocks(page, "Two commands start a server on a PostgreSQL database")
    guide = [line for block in blocks(GUIDE.read_text(), "## Start\n")[:2] for line in block]
    with database.running() as port:
        for name, lines, url in (
            ("page", page_block, "http://127.0.0.1:8080"),
            ("guide", guide, "https://api.example.com"),
        ):
            database.create_database(port, name)
            start(lines, url, f"postgres://platform@127.0.0.1:{port}/{name}")
    print("passed: the two commands of docs/quick-start.md and the section \"Start\" start servers on a fresh PostgreSQL")


def build(name: str, module: str) -> pathlib.Path:
    """Builds a program of go/ with a module. Returns the binary."""
    folder = ROOT / "target" / "clients-go" / name
    program = folder / module.split("@")[1] / name
    if not program.exists():
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        shutil.copy(HERE / "go" / name / "main.go", folder)
        output(go(), "mod", "init", f"example.com/{name}", cwd=folder)
        output(go(), "get", module, cwd=folder)
        output(go(), "mod", "tidy", cwd=folder)
        output(go(), "build", "-o", program, ".", cwd=folder)
    return program


def compose() -> None:
    """Validates the compose file and the configuration of its balancer."""
    output(haproxy(), "-c", "-f", DEPLOY / "compose" / "haproxy.cfg")
    if not go():
        print("NOT RUN: Go is not installed, so the compose file was not validated")
        return
    import yaml

    project = yaml.safe_load(output(build("compose", COMPOSE), DEPLOY / "compose" / "compose.yaml", env={**os.environ, **SECRETS}))
    services = project["services"]
    assert set(services) == {"postgres", "migrate", "server", "balancer"}, services
    assert services["server"]["deploy"]["replicas"] == 2
    assert services["server"]["depends_on"]["migrate"]["condition"] == "service_completed_successfully"
    for service in services.values():
        for volume in service.get("volumes", []):
            assert volume["type"] == "volume" or pathlib.Path(volume["source"]).exists(), volume
        if "build" in service:
            context = pathlib.Path(service["build"]["context"])
            assert (context / service["build"]["dockerfile"]).exists() and (context / ".dockerignore").exists()
    options = output(binary(), "serve", "--help")
    for name in services["server"]["environment"]:
        assert f"[env: {name}" in options, f"{name} is not a variable of platform-server"
    observe = yaml.safe_load(output(build("compose", COMPOSE), DEPLOY / "observe" / "compose.yaml"))
    assert set(observe["services"]) == {"prometheus", "grafana"}, observe
    for service in observe["services"].values():
        for volume in service["volumes"]:
            assert pathlib.Path(volume["source"]).is_dir(), volume
    print("passed: the compose files are valid, their files and variables exist, and HAProxy accepts its configuration")
    print("NOT RUN: the compose files were not started, which needs Docker and images from a registry")


def container() -> None:
    """Starts the server in the files of the container, and builds the container if buildah is installed."""
    if os.geteuid():
        print("NOT RUN: the files of the container were not tried, which needs root")
        return
    with tempfile.TemporaryDirectory() as folder:
        made = pathlib.Path(folder) / "made"
        output(DEPLOY / "container" / "files.sh", binary(), made)
        root, data = made / "root", made / "root" / "var" / "lib" / "platform"
        data.mkdir(parents=True)
        os.chown(data, 65534, 65534)
        command = ["chroot", "--userspec=65534:65534", root, "/usr/local/bin/platform-server", "serve"]
        command += ["--listen", "127.0.0.1:0", "--data-dir", "/var/lib/platform"]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={"PATH": os.environ["PATH"]})
        try:
            line = process.stdout.readline()
            assert line.startswith("Listening on "), line
            assert status(f"{line.split()[2]}/startupz") == 200
        finally:
            process.terminate()
        assert process.wait(60) == 0
        print("passed: the server runs with the files of the container alone")
        if not shutil.which("buildah"):
            print("NOT RUN: the container was not built, which needs buildah")
            return
        shutil.rmtree(root / "var")
        output("buildah", "build", "--storage-driver", "vfs", "--file", DEPLOY / "container" / "Dockerfile", made)
        print("passed: buildah builds the container")


def chart() -> None:
    """Renders the chart, and checks the result against the schemas of Kubernetes."""
    built = ROOT / "target" / "clients-go" / "chart"
    if not go() or not (built.exists() or os.environ.get("PLATFORM_HELM")):
        print("NOT RUN: the Helm chart was not rendered, which needs Go and PLATFORM_HELM=1")
        return
    import kubernetes_validate
    import yaml

    program = build("chart", HELM)
    options = output(binary(), "serve", "--help")
    for values in ({}, {"blobsClaim": "blobs", "replicas": 3, "environment": {"PLATFORM_INSTANCE": "a"}}):
        rendered = output(program, DEPLOY / "helm", json.dumps({"publicUrl": "https://api.example.com", **values}))
        objects = [one for one in yaml.safe_load_all(rendered) if one]
        kinds = sorted(one["kind"] for one in objects)
        assert kinds == ["Deployment", "Job", "PodDisruptionBudget", "Service"], kinds
        for one in objects:
            kubernetes_validate.validate(one, "1.32", strict=True)
            for container in one["spec"].get("template", {}).get("spec", {}).get("containers", []):
                for variable in container["env"]:
                    assert f"[env: {variable['name']}" in options, variable
    without = subprocess.run([program, DEPLOY / "helm", "{}"], stderr=subprocess.PIPE, text=True)
    assert without.returncode and "set publicUrl" in without.stderr, without.stderr
    print("passed: the Helm chart renders to valid objects of Kubernetes")
    print("NOT RUN: the Helm chart was not installed, which needs a Kubernetes cluster")


def main() -> None:
    # All parts use the same build.
    os.environ["PLATFORM_SERVER"] = str(binary())
    two_commands()
    compose()
    container()
    chart()
    alerts.alerts()
    walk_through()


# What follows runs the section "systemd".


def walk_through() -> None:
    """Follows the section in namespaces of its own."""
    packages = {"systemd-analyze": "systemd", "ip": "iproute2", "pg_createcluster": "postgresql"}
    if missing := [package for program, package in packages.items() if not shutil.which(program)]:
        database.install(*missing)
    begin = [] if os.geteuid() == 0 else ["sudo", "-n", "-E"]
    alone = [*begin, "unshare", "--mount", "--net", "--pid", "--fork", "--kill-child", "--mount-proc"]
    tried = subprocess.run([*alone, "true"], stderr=subprocess.PIPE, text=True)
    if tried.returncode:
        print(f"NOT RUN: the section \"systemd\" was not followed, which needs namespaces: {tried.stderr.strip()}")
        return
    done = subprocess.run([*alone, sys.executable, __file__, "inside"], env={**os.environ, "PYTHONPATH": str(HERE)})
    if done.returncode:
        raise SystemExit("the section \"systemd\" does not lead to running servers")
    print("passed: the section \"systemd\" leads to two servers on Debian's PostgreSQL; the units are valid")
    print("NOT RUN: systemd itself did not start the units, which needs it as the first process of a machine")


def private(folder: pathlib.Path) -> None:
    """Gives this mount namespace directories of its own for everything that the section changes."""
    output("mount", "--make-rprivate", "/")
    etc = folder / "etc"
    output("cp", "-a", "/etc", etc)
    shutil.rmtree(etc / "postgresql", ignore_errors=True)
    (etc / "systemd" / "system").mkdir(parents=True, exist_ok=True)
    output("mount", "--bind", etc, "/etc")
    for name in ("bin", "lib", "run", "log"):
        (folder / name).mkdir()
    for name, place in (("bin", "/usr/local/bin"), ("lib", "/var/lib"), ("run", "/run"), ("log", "/var/log")):
        output("mount", "--bind", folder / name, place)
    for place in ("/etc/postgresql", "/var/lib/postgresql", "/run/postgresql", "/var/log/postgresql"):
        pathlib.Path(place).mkdir(exist_ok=True)
        shutil.chown(place, "postgres", "postgres")
    output("ip", "link", "set", "lo", "up")


# As the package does after its installation.
CREATE = "pg_createcluster --start $(ls /usr/lib/postgresql | sort -n | tail -1) main -- --no-sync"
STAND_INS = f"""
apt-get() {{ [ "$*" = 'install -y postgresql' ] && {CREATE}; }}
sudo() {{ [ "$1" = -u ] && runuser -u "$2" -- "${{@:3}}"; }}
systemctl() {{ '{sys.executable}' '{__file__}' systemctl "$@"; }}
"""


def inside() -> None:
    """Follows the section in this namespace."""
    server = binary()
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        folder.chmod(0o755)
        source = folder / "source"
        (source / "target" / "dist").mkdir(parents=True)
        (source / "target" / "dist" / "platform-server").symlink_to(server)
        (source / "deploy").symlink_to(DEPLOY)
        private(folder)
        [lines] = blocks(GUIDE.read_text(), "## systemd\n")
        with (folder / "servers.log").open("w") as log:
            for line in lines:
                print(f"  $ {line}", flush=True)
                # The servers that systemctl starts keep the output open.
                done = subprocess.run(["bash", "-euo", "pipefail", "-c", STAND_INS + line], cwd=source, stdout=log, stderr=log)
                if done.returncode:
                    raise SystemExit((folder / "servers.log").read_text())
        units = sorted(pathlib.Path("/etc/systemd/system").glob("platform-*.service"))
        names = [str(unit).replace("@.", "@8081.") for unit in units]
        for unit, name in zip(units, names):
            if str(unit) != name:
                shutil.copy(unit, name)
        warned = output("systemd-analyze", "verify", "--man=no", *names)
        assert "platform-" not in warned, warned
        urls = [f"http://127.0.0.1:{port}" for port in (8081, 8082)]
        for url in urls:
            wait_until(lambda: status(f"{url}/readyz") == 200, f"{url} is ready: {(folder / 'servers.log').read_text()}")
        store = "postgres://platform@%2Fvar%2Frun%2Fpostgresql/platform"
        env = {**os.environ, "PLATFORM_STORE": store, "PLATFORM_KEY_ENCRYPTION_KEY": "/etc/platform/key"}
        as_platform = ["runuser", "-u", "platform", "--", "/usr/local/bin/platform-server"]
        found = variables(output(*as_platform, "env", env=env, cwd="/var/lib/platform"))
        assert found["API"] == "https://api.example.com", found["API"]
        made_and_read(found["TOKEN"], found["ORG_ID"], *urls)
        output(*as_platform, "check", env=env, cwd="/var/lib/platform")
        # The processes end with the namespace, and the mounts too.
        os.chdir("/")
        for place in ("/usr/local/bin", "/var/lib", "/var/log", "/run", "/etc"):
            output("umount", "--lazy", place)


def settings(unit: str) -> list[tuple[str, str]]:
    """Returns the settings of a unit, with its specifiers replaced."""
    name, _, instance = unit.removesuffix(".service").partition("@")
    text = pathlib.Path(f"/etc/systemd/system/{name}{'@' if instance else ''}.service").read_text()
    specifiers = {"%": "%", "i": instance, "H": os.uname().nodename}
    text = re.sub("%(.)", lambda found: specifiers[found[1]], text)
    return [tuple(line.split("=", 1)) for line in text.splitlines() if re.match(r"\w+=", line)]


def systemctl(*words: str) -> None:
    """Does what systemctl does for the units of this project."""
    if words == ("daemon-reload",):
        return
    assert words[:2] == ("enable", "--now"), words
    for unit in words[2:]:
        start_unit(unit)


def start_unit(unit: str) -> None:
    """Starts a unit after those that it requires, as its user."""
    marker = pathlib.Path("/run") / f"started-{unit.removesuffix('.service')}"
    if marker.exists():
        return
    marker.touch()
    found = settings(unit)
    one = dict(found)
    for required in one.get("Requires", "").split():
        start_unit(required)
    env = {"PATH": os.environ["PATH"], **dict(value.split("=", 1) for key, value in found if key == "Environment")}
    command = ["runuser", "-u", one["User"], "--", *one["ExecStart"].split()]
    place = one.get("WorkingDirectory", "/")
    if one.get("Type") == "oneshot":
        subprocess.run(command, env=env, cwd=place, check=True)
    else:
        subprocess.Popen(command, env=env, cwd=place)


if __name__ == "__main__":
    {"inside": inside, "systemctl": systemctl, "": main}[sys.argv[1] if sys.argv[1:] else ""](*sys.argv[2:])
