"""Puts nginx, HAProxy, Caddy, Apache and Varnish, from Debian, in front of a server, and does through each what users do.

- REST: uids with `/` and with `%2F`, text that is not ASCII, long bodies and long lists.
- gRPC by reflection, errors with details, and a health Watch; not Varnish, which speaks HTTP/1.1 to servers.
- `events tail`, a stream without an end, and an import, a body of unknown length.
- No private reply comes from a cache, although each gateway but Caddy has one that stores what it may. A server that has
  ended is not ready.
- The console signs in, although no gateway keeps Host.
- A second server below a path: the page of the console with its files, /docs, the OpenAPI document, the links of `/`.
- The client's address in the audit log, and 12 forms of the headers for it. HAProxy also sends it by the PROXY protocol,
  version 2.

The configurations are in gateways/. `PLATFORM_GATEWAYS` chooses gateways (default: nginx).
"""

import contextlib
import email.message
import html
import http.client
import itertools
import json
import os
import pathlib
import re
import select
import shutil
import string
import subprocess
import tempfile
import urllib.error
import urllib.parse
import urllib.request
import uuid
from collections.abc import Callable

import cluster
import database
import grpc
from fleet import status, wait_until
from google.rpc import error_details_pb2, status_pb2
from grpc_health.v1 import health_pb2, health_pb2_grpc
from protobuf import Client, Descriptors
from server import Server, binary, read_audit_log, running

SOURCE = pathlib.Path(__file__).resolve().parent / "gateways"
# Programs that are not on the PATH of ordinary users.
PATH = f"{os.environ['PATH']}:/usr/sbin"
MODULES = "/usr/lib/apache2/modules"

# The Debian package of each gateway, its program, its configuration, and its arguments.
GATEWAYS: dict[str, tuple[str, str, str, Callable[[pathlib.Path, dict], list]]] = {
    "nginx": ("nginx", "nginx", "nginx.conf", lambda file, _: ["-c", file, "-e", "stderr"]),
    "haproxy": ("haproxy", "haproxy", "haproxy.cfg", lambda file, _: ["-db", "-f", file]),
    "caddy": ("caddy", "caddy", "Caddyfile", lambda file, _: ["run", "--adapter", "caddyfile", "--config", file]),
    "apache": ("apache2-bin", "apache2", "apache.conf", lambda file, _: ["-X", "-f", file]),
    "varnish": (
        "varnish", "varnishd", "default.vcl",
        lambda file, ports: ["-F", "-f", file, "-n", file.parent / "work", "-a", f"127.0.0.1:{ports['PORT']}"],
    ),
}  # fmt: skip


@contextlib.contextmanager
def gateway(name: str, ports: dict[str, int]):
    """Runs a gateway with its configuration."""
    package, program, template, arguments = GATEWAYS[name]
    if not shutil.which(program, path=PATH):
        database.install(package)
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        # Workers of another user write there.
        folder.chmod(0o777)
        (folder / "cache").mkdir(mode=0o777)
        (folder / "cache").chmod(0o777)
        values = {**ports, "FOLDER": str(folder), "MODULES": MODULES}
        file = folder / template
        file.write_text(string.Template((SOURCE / template).read_text()).safe_substitute(values))
        with (folder / "log").open("w") as log:
            command = [shutil.which(program, path=PATH), *arguments(file, ports)]
            env = {**os.environ, "HOME": str(folder)}
            process = subprocess.Popen(command, cwd=folder, env=env, stdout=log, stderr=log)
            try:
                url = f"http://127.0.0.1:{ports['PORT']}"

                def ready() -> bool:
                    if process.poll() is not None:
                        raise SystemExit(f"{name}: {(folder / 'log').read_text()}")
                    return status(f"{url}/readyz") == 200

                wait_until(ready, name)
                try:
                    yield url
                except BaseException:
                    print(f"{name}: {(folder / 'log').read_text()}")
                    raise
            finally:
                process.terminate()
                process.wait(timeout=30)


def send(method: str, url: str, body: object = None, headers: dict | None = None) -> tuple[int, email.message.Message, bytes]:
    """Returns the status, headers and body of a reply. The request is not repeated."""
    data = json.dumps(body).encode() if body is not None else None
    request = urllib.request.Request(url, data, headers or {}, method=method)
    try:
        with urllib.request.build_opener().open(request, timeout=30) as reply:
            return reply.status, reply.headers, reply.read()
    except urllib.error.HTTPError as error:
        return error.code, error.headers, error.read()


def call(server: Server, method: str, path: str, body: object = None, **headers: str) -> dict:
    code, _, reply = send(method, server.url + path, body, {"Authorization": f"Bearer {server.token}", **headers})
    assert code == 200, (method, path, code, reply)
    return json.loads(reply or b"{}")


def rest(server: Server) -> None:
    org, groups, repos = server.organization, "/iam/v2/groups", "/registry/v2/repos"
    text = "größe 漢字 🦀 " * 4000
    folder = call(server, "POST", f"{groups}/{org}", {"name": "folder", "description": "größe & <b>"})
    repo = call(server, "POST", f"{repos}/{folder['uid']}", {"name": "nginx"})
    assert "/" in repo["uid"], repo
    readme = call(server, "PATCH", f"{repos}/{repo['uid']}/readme", {"content": text})
    assert readme["content"] == text == call(server, "GET", f"{repos}/{repo['uid']}/readme")["content"]
    for uid in (repo["uid"], urllib.parse.quote(repo["uid"], safe="")):
        assert call(server, "GET", f"{repos}/{uid}") == repo, uid
        changed = call(server, "PATCH", f"{repos}/{uid}?updateMask=description", {"description": uid})
        assert changed["description"] == uid
        repo = changed
    bearer = {"Authorization": f"Bearer {server.token}"}
    code, _, reply = send("GET", f"{server.url}{repos}/{folder['uid']}/0123456789abcdef", None, bearer)
    assert code == 404 and json.loads(reply)["details"][1]["resourceType"].endswith("/Repo"), reply
    for number in range(60):
        call(server, "POST", f"{repos}/{folder['uid']}", {"name": f"repo-{number}", "description": text[:200]})
    scope = urllib.parse.quote(folder["uid"], safe="")
    found = call(server, "GET", f"{repos}?uidp.descendants_of={scope}&page_size=100&order_by=name")
    assert len(found["repos"]) == 61, len(found["repos"])
    call(server, "DELETE", f"{repos}/{urllib.parse.quote(repo['uid'], safe='')}")


def imports(server: Server) -> None:
    """Imports lines in a body of unknown length, which is acknowledged in parts."""
    lines = (json.dumps({"id": f"CVE-2026-{number:04}", "summary": "größe"}).encode() + b"\n" for number in range(250))
    headers = {"Authorization": f"Bearer {server.token}", "Content-Type": "application/x-ndjson"}
    request = urllib.request.Request(f"{server.url}/import/vulnerabilityMetadata", lines, headers, method="POST")
    with urllib.request.build_opener().open(request, timeout=30) as reply:
        answers = [json.loads(line) for line in reply]
    assert answers[-1]["through"] == 250 and sum(answer["created"] for answer in answers) == 250, answers


def rpc(server: Server, port: int) -> None:
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        client = Client(server, channel, Descriptors(channel))
        name = "chainguard.platform.registry.v2.ReposService"
        bad = {"parent": server.organization, "repo": {"name": "Größe " * 50}}
        message, reply = client.grpc(name, "CreateRepo", bad)
        assert message == "google.rpc.Status", message
        details = {one.type_url.split(".")[-1]: one for one in status_pb2.Status.FromString(reply).details}
        violations = error_details_pb2.BadRequest.FromString(details["BadRequest"].value).field_violations
        assert violations[0].field == "name" and "ErrorInfo" in details, violations
        good = {"parent": server.organization, "repo": {"name": "by-grpc", "description": "größe"}}
        message, reply = client.grpc(name, "CreateRepo", good)
        assert message.endswith(".Repo"), reply
        changes = health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest(), timeout=60)
        assert next(iter(changes)).status == health_pb2.HealthCheckResponse.SERVING
        changes.cancel()


def tail(server: Server) -> None:
    """Follows the events, and makes one."""
    command = [binary(), "events", "tail", "--api", server.url, "--token", server.token]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        name = f"tail-{uuid.uuid4()}"
        numbers = itertools.count()

        # The stream has no events from before its begin, which the command does not print.
        def prints() -> bool:
            call(server, "POST", f"/registry/v2/repos/{server.organization}", {"name": f"{name}-{next(numbers)}"})
            return bool(select.select([process.stdout], [], [], 0.2)[0])

        wait_until(prints, "events tail prints an event", 20)
        line = process.stdout.readline()
        assert name in line, line
    finally:
        process.kill()
        process.wait()


def caching(server: Server) -> None:
    """Reads with the token of the operator what others must not get, and then as others."""
    bearer = {"Authorization": f"Bearer {server.token}"}
    for path in ("/registry/v2/repos", "/iam/v2/groups", f"/iam/v2/groups/{server.organization}", "/operator/events/pending"):
        for _ in range(2):
            code, headers, reply = send("GET", server.url + path, None, bearer)
            assert code == 200, (path, code, reply)
            # Of nginx and Varnish, and of Apache.
            assert headers.get("X-Cache", "").split(" ")[0] in ("", "MISS", "0", "BYPASS"), (path, headers["X-Cache"])
        for other in ({}, {"Authorization": "Bearer none"}):
            code, _, reply = send("GET", server.url + path, None, other)
            assert code == 401, (path, other, code, reply)


def sign_in(server: Server) -> None:
    """Signs in to the console as its page does, with a one-time link."""
    command = [binary(), "console", "--data-dir", str(server.data), "--api", server.url, "--token", server.token]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=True)
    link = re.search(r"https?://\S+", done.stdout)[0]
    assert link.startswith(f"{server.url}/console"), link
    code = link.rsplit("=", 1)[1]
    url = urllib.parse.urlsplit(server.url)
    headers = {"Origin": f"{url.scheme}://{url.netloc}", "X-Console-Session": "link", "Content-Type": "application/json"}
    answered, found, reply = send("POST", f"{server.url}/console/session", {"code": code}, headers)
    assert answered == 200 and json.loads(reply)["token"], (answered, reply)
    cookie = found["Set-Cookie"]
    assert f"Path={url.path}/console/session;" in cookie, cookie
    headers |= {"Cookie": cookie.split(";")[0], "X-Console-Session": "renew"}
    answered, _, reply = send("POST", f"{server.url}/console/session", None, headers)
    assert answered == 200 and json.loads(reply)["token"], (answered, reply)
    # A page of another site.
    headers["Origin"] = "https://example.com"
    answered, _, reply = send("POST", f"{server.url}/console/session", None, headers)
    assert answered == 403, (answered, reply)


# What names other files in each type of file.
LINKS = {
    "text/html": r"""\b(?:src|href)="([^"#]+)""",
    "text/css": r"""\burl\(["']?([^)"'#]+)""",
    "text/javascript": r"""^(?:import|export)\b(?:[^"';]*\bfrom)?\s*["']([^"']+)["'];?$""",
}


def links(content_type: str, text: bytes) -> set[str]:
    """Returns the URLs that a file names."""
    if not (pattern := LINKS.get(content_type.split(";")[0].replace("application/", "text/"))):
        return set()
    found = re.findall(pattern, text.decode(), flags=re.M)
    return {html.unescape(url) for url in found if not url.startswith(("data:", "mailto:"))}


def pages(server: Server) -> int:
    """Loads the pages and everything that they name. Returns the number of URLs."""
    base = server.url
    waiting, known = [f"{base}/", f"{base}/console", f"{base}/docs"], set()
    while waiting:
        url = waiting.pop()
        if url in known:
            continue
        known.add(url)
        code, headers, reply = send("GET", url, None, {"Accept": "text/html,*/*"})
        assert code in (200, 304), f"{url}: {code}"
        for link in links(headers["Content-Type"], reply):
            full = urllib.parse.urljoin(url, link)
            if urllib.parse.urlsplit(full).netloc == urllib.parse.urlsplit(base).netloc:
                assert full.startswith(base), f"{url} names {full}"
                waiting.append(full)
    _, _, reply = send("GET", f"{base}/openapi.json")
    document = json.loads(reply)
    [one] = document["servers"]
    assert urllib.parse.urljoin(f"{base}/openapi.json", one["url"]).rstrip("/") == base, one
    _, _, reply = send("GET", f"{base}/.well-known/openid-configuration")
    discovery = json.loads(reply)
    assert discovery["issuer"] == base and discovery["jwks_uri"].startswith(base), discovery
    assert send("GET", discovery["jwks_uri"])[0] == 200
    return len(known)


# The headers of a trusted proxy, and the address that counts. The proxy itself is 127.0.0.1.
FORWARDED: list[tuple[dict[str, str], str]] = [
    ({"X-Forwarded-For": "198.51.100.7"}, "198.51.100.7"),
    ({"X-Forwarded-For": "198.51.100.7:4711"}, "198.51.100.7"),
    ({"X-Forwarded-For": "2001:db8::7"}, "2001:db8::/64"),
    ({"X-Forwarded-For": "[2001:db8::7]:4711"}, "2001:db8::/64"),
    ({"X-Forwarded-For": "::ffff:198.51.100.7"}, "198.51.100.7"),
    ({"X-Forwarded-For": "203.0.113.9, 198.51.100.7, 127.0.0.1"}, "198.51.100.7"),
    ({"X-Forwarded-For": "198.51.100.7, unknown"}, "127.0.0.1"),
    ({"Forwarded": "for=198.51.100.7"}, "198.51.100.7"),
    ({"Forwarded": 'by=203.0.113.43;For="[2001:db8::7]:4711";proto=https'}, "2001:db8::/64"),
    ({"Forwarded": 'for=203.0.113.9, for="198.51.100.7:4711"'}, "198.51.100.7"),
    ({"Forwarded": "for=_hidden"}, "127.0.0.1"),
    ({"Forwarded": "for=198.51.100.7", "X-Forwarded-For": "203.0.113.9"}, "127.0.0.1"),
]


def address(server: Server, audit_log: pathlib.Path, url: str, headers: dict[str, str]) -> str | None:
    """Returns the address in the entry of a change."""
    number = str(uuid.uuid4())
    body = {"name": number}
    headers = {"Authorization": f"Bearer {server.token}", "X-Request-Id": number, **headers}
    code, _, reply = send("POST", f"{url}/registry/v2/repos/{server.organization}", body, headers)
    assert code == 200, (code, reply)
    entries = [json.loads(line) for line in read_audit_log(audit_log).splitlines() if number in line]
    assert entries, number
    return entries[0].get("address")


@contextlib.contextmanager
def serving(port: int, public_url: str, audit_log: pathlib.Path, *more: str, trusted: str = "127.0.0.0/8"):
    """Runs a server behind a gateway. Its URL is the public one."""
    options = ["--listen", f"127.0.0.1:{port}", "--public-url", public_url, "--audit-log", str(audit_log)]
    with running(*options, "--trusted-proxies", trusted, *more) as server:
        server.url = public_url
        yield server


def check(name: str) -> None:
    names = ("PORT", "GRPC", "PROXY", "SERVER", "BELOW", "PROTOCOL")
    # Together, so that they differ.
    ports = dict(zip(names, cluster.free_ports(len(names)), strict=True))
    base = f"http://127.0.0.1:{ports['PORT']}"
    with contextlib.ExitStack() as stack:
        work = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory()))
        log = work / "audit"
        below = stack.enter_context(serving(ports["BELOW"], f"{base}/platform", work / "below"))
        with serving(ports["SERVER"], base, log) as server:
            stack.enter_context(gateway(name, ports))
            rest(server)
            imports(server)
            caching(server)
            tail(server)
            sign_in(server)
            sign_in(below)
            count = pages(below) + pages(server)
            if name != "varnish":
                rpc(server, ports["GRPC"])
            found = address(server, log, base, {"X-Forwarded-For": "198.51.100.7"})
            assert found == "198.51.100.7", found
            for headers, expected in FORWARDED:
                found = address(server, log, f"http://127.0.0.1:{ports['SERVER']}", headers)
                assert found == expected, (headers, found)
        # The server has ended, and the gateway has not.
        assert send("GET", f"{base}/readyz")[0] in (502, 503, 504)
        if name == "haproxy":
            protocol(ports, work / "protocol")
    means = "REST, imports, events, caching, sign-ins" + (", gRPC" if name != "varnish" else "")
    print(f"{name}: {means}, {count} URLs of pages, addresses")


def protocol(ports: dict[str, int], log: pathlib.Path) -> None:
    """Uses a server that gets its clients' addresses by the PROXY protocol, and not by the headers of a client."""
    url = f"http://127.0.0.1:{ports['PROXY']}"
    with serving(ports["PROTOCOL"], url, log, "--proxy-protocol", trusted="127.0.0.1/32") as server:
        rest(server)
        name = str(uuid.uuid4())
        connection = http.client.HTTPConnection("127.0.0.1", ports["PROXY"], timeout=30, source_address=("127.0.0.9", 0))
        headers = {"Authorization": f"Bearer {server.token}", "X-Forwarded-For": "198.51.100.7"}
        connection.request("POST", f"/registry/v2/repos/{server.organization}", json.dumps({"name": name}), headers)
        reply = connection.getresponse()
        assert reply.status == 200, reply.read()
        uid = json.loads(reply.read())["uid"]
        connection.close()
        entries = [json.loads(line) for line in read_audit_log(log).splitlines() if uid in line]
        assert entries[0]["address"] == "127.0.0.9", entries


def main() -> None:
    chosen = os.environ.get("PLATFORM_GATEWAYS", "nginx").split(",")
    for name in chosen:
        check(name)


if __name__ == "__main__":
    main()
