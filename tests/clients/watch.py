"""Watches lists with libraries for Server-Sent Events in five languages and in Chromium, through a proxy that cuts connections.

Each program prints a line for each event: its type and the uid of its resource. Those of docs/how-to/watch.md are run as
they are there. All watch the same lists at once, while connections are cut within an event, the server restarts, a
resource has 70 KB, a token expires, a commit has a hundred changes, and the grant of their identity is revoked. Every
program must have printed each change exactly once, and end when the server says that the end is final.

`PLATFORM_WATCH_CLIENTS` chooses programs (default: httpx-sse, launchdarkly-go, chromium; `all` for all).
`PLATFORM_WATCH_QUIET` is how many seconds pass without a change, in which nobody may reconnect (default: 0).
"""

import contextlib
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
from collections.abc import Callable

import database
from console_browser import serving
from page import FLAGS, installed
from programs import Programs, lacking, run
from selenium import webdriver
from server import ROOT, Server, binary

PAGE = ROOT / "docs" / "how-to" / "watch.md"
OURS, OF_PAGE = Programs("watch"), Programs("watch-page")
TYPES = ("added", "modified", "deleted", "bookmark", "expired", "closing")
CHANGES = ("added", "modified", "deleted")
# Of the bytes of an event, where a connection is cut: in its first lines, in its data, and before the end of its id.
CUTS = (0.05, 0.5, 0.9)


def on_page(heading: str) -> str:
    """Returns the program of the page under a heading."""
    return re.search(rf"^### {re.escape(heading)}\n.*?^```\w+\n(.*?)^```$", PAGE.read_text(), re.M | re.S)[1]


def python(name: str) -> list:
    return [sys.executable, OURS.source / f"{name}.py"]


def of_page(heading: str, file: str, build: Callable[[], list]) -> list:
    """Writes a program of the page to where it is built, and builds it."""
    at = OF_PAGE.source = OF_PAGE.folder / "source"
    at.mkdir(parents=True, exist_ok=True)
    (at / file).parent.mkdir(parents=True, exist_ok=True)
    (at / file).write_text(on_page(heading))
    return build()


def node_of_page() -> list:
    (OF_PAGE.source / "package.json").write_text((OURS.source / "package.json").read_text())
    return OF_PAGE.node("eventsource")


def rust_of_page() -> list:
    at = OF_PAGE.source / "rust"
    for name in ("Cargo.toml", "Cargo.lock"):
        (at / name).write_text((OURS.source / "rust" / name).read_text())
    # A build of its own: its features must not change those of the workspace.
    run("cargo", "build", "--quiet", "--locked", cwd=at, env={"CARGO_TARGET_DIR": str(OF_PAGE.folder / "rust")})
    return [OF_PAGE.folder / "rust" / "debug" / "watch"]


# The programs that each needs, and what builds it and returns its command.
CLIENTS: dict[str, tuple[list[str], Callable[[], list]]] = {
    "httpx-sse": ([], lambda: of_page("Python", "httpx-sse.py", lambda: [sys.executable, OF_PAGE.source / "httpx-sse.py"])),
    "requests-sse": ([], lambda: python("requests-sse")),
    "aiohttp-sse-client": ([], lambda: python("aiohttp-sse-client")),
    "eventsource": (["npm", "node"], lambda: of_page("Node.js", "eventsource.mjs", node_of_page)),
    "eventsource-client": (["npm", "node"], lambda: OURS.node("eventsource-client")),
    "launchdarkly-go": (
        ["go"], lambda: of_page("Go", "main.go", lambda: OF_PAGE.go("watch", "github.com/launchdarkly/eventsource@v1.11.0"))
    ),
    "go-sse": (["go"], lambda: Programs("watch/go-sse").go("watch", "github.com/tmaxmax/go-sse@v0.12.0")),
    "r3labs-sse": (["go"], lambda: Programs("watch/r3labs").go("watch", "github.com/r3labs/sse/v2@v2.10.0")),
    "reqwest-eventsource": (["cargo"], lambda: of_page("Rust", "rust/src/main.rs", rust_of_page)),
    "okhttp-eventsource": (["java", "mvn"], lambda: OURS.java("Watch")),
}  # fmt: skip
DEFAULT = "httpx-sse,launchdarkly-go,chromium"


class Proxy:
    """Forwards connections to the server. Adds a token to requests without one, as a gateway does for browsers."""

    def __init__(self, target: int, token: str):
        self.target, self.token = target, token
        self.port, self.streams, self.streaming = database.free_port(), 0, set()
        self.cut_at: dict[socket.socket, float] = {}
        self.lock = threading.Lock()
        self.up()

    def up(self) -> None:
        self.listener = socket.create_server(("127.0.0.1", self.port), backlog=64)
        threading.Thread(target=self.accept, args=(self.listener,), daemon=True).start()

    def down(self) -> None:
        """Refuses connections from now on, as a server that stops does."""
        # Wakes the thread that accepts, which a close alone does not.
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()

    def cut(self, fraction: float) -> None:
        """Cuts each connection that has forwarded events within the next one, after this part of its bytes."""
        with self.lock:
            self.cut_at = dict.fromkeys(self.streaming, fraction)

    def accept(self, listener: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = listener.accept()
                try:
                    server = socket.create_connection(("127.0.0.1", self.target))
                except OSError:
                    client.close()
                    continue
                threading.Thread(target=self.requests, args=(client, server), daemon=True).start()
                threading.Thread(target=self.replies, args=(client, server), daemon=True).start()

    def requests(self, client: socket.socket, server: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while part := client.recv(65536):
                if part.startswith(b"GET ") and b"\r\nauthorization:" not in part.lower():
                    part = part.replace(b"\r\n", f"\r\nAuthorization: Bearer {self.token}\r\n".encode(), 1)
                server.sendall(part)
        with contextlib.suppress(OSError):
            server.shutdown(socket.SHUT_RDWR)

    def replies(self, client: socket.socket, server: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while part := server.recv(65536):
                if b"event: " in part:
                    with self.lock:
                        self.streams += client not in self.streaming
                        self.streaming.add(client)
                        at = self.cut_at.get(client)
                    if at is not None:
                        client.sendall(part[: int(len(part) * at)])
                        break
                client.sendall(part)
        with self.lock:
            self.streaming.discard(client)
        for one in (client, server):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()


class Client:
    """A running program, and the lines that it has printed."""

    def __init__(self, name: str, command: list, url: str, token: str):
        self.name, self.lines = name, []
        self.log = tempfile.TemporaryFile("w+")
        env = {**os.environ, "URL": url, "TOKEN": token}
        self.process = subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=self.log, text=True)
        threading.Thread(target=self.read, daemon=True).start()

    def read(self) -> None:
        for line in self.process.stdout:
            self.lines.append(line.strip())

    def has_ended(self) -> bool:
        return self.process.poll() is not None

    def errors(self) -> str:
        self.log.seek(0)
        return self.log.read()[-2000:]

    def stop(self) -> None:
        self.process.kill()
        self.process.wait()


class InPage:
    """A program in a tab of Chromium."""

    def __init__(self, name: str, chromium: "Chromium", script: str, url: str, token: str):
        self.name, self.chromium = name, chromium
        chromium.page.execute_script(script, name, url, token)

    @property
    def lines(self) -> list[str]:
        return self.chromium.page.execute_script("return window.watches[arguments[0]].lines", self.name)

    def has_ended(self) -> bool:
        return self.chromium.page.execute_script("return window.watches[arguments[0]].hasEnded", self.name)

    def errors(self) -> str:
        return str([entry["message"] for entry in self.chromium.page.get_log("browser")])[-2000:]

    def stop(self) -> None:
        pass


class Chromium:
    """A tab with the page's program for browsers, and with the browser's own EventSource, which needs a gateway that adds the token."""

    def __init__(self, page: webdriver.Chrome):
        self.page = page
        at = OURS.copied("node", "package.json")
        run("npm", "install", "--silent", "--no-fund", "--no-audit", "--no-package-lock", cwd=at)
        library = at / "node_modules" / "@microsoft" / "fetch-event-source" / "lib" / "esm"
        modules = [(library / f"{name}.js").read_text() for name in ("parse", "fetch")] + [on_page("In a browser")]
        script = "\n".join(re.sub(r"^import .*$", "", re.sub(r"^export ", "", one, flags=re.M), flags=re.M) for one in modules)
        self.library = f"""{script}
            const [name, url, token] = arguments;
            const one = ((window.watches ??= {{}})[name] = {{ lines: [], hasEnded: false }});
            watch(url, token, (type, data) => one.lines.push(`${{type}} ${{data.resource?.uid ?? ""}}`.trim()))
                .catch((error) => console.error(error)).finally(() => (one.hasEnded = true));"""
        self.own = f"""
            const [name, url] = arguments;
            const one = ((window.watches ??= {{}})[name] = {{ lines: [], hasEnded: false }});
            const events = new EventSource(url);
            for (const type of {list(TYPES)}) events.addEventListener(type, (event) => {{
                const data = JSON.parse(event.data);
                one.lines.push(`${{type}} ${{data.resource?.uid ?? ""}}`.trim());
                if (type === "closing" && !data.retryable) events.close();
            }});
            events.addEventListener("error", () => (one.hasEnded = events.readyState === EventSource.CLOSED));
            const close = events.close;
            events.close = () => {{ close.call(events); one.hasEnded = true; }};"""

    def clients(self, at: str, url: str, token: str) -> list[InPage]:
        # Another page ends the streams of the one before.
        self.page.get("about:blank")
        self.page.get(f"{at}/console")
        scripts = {"chromium fetch-event-source": self.library, "chromium EventSource": self.own}
        return [InPage(name, self, script, url, token) for name, script in scripts.items()]


@contextlib.contextmanager
def browsing():
    """Starts Chromium."""
    browser, driver = installed()
    with tempfile.TemporaryDirectory() as profile:
        options = webdriver.ChromeOptions()
        options.binary_location = browser
        for flag in (*FLAGS, f"--user-data-dir={profile}"):
            options.add_argument(flag)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        page = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))
        try:
            yield page
        finally:
            page.quit()


def wait(clients: list, what: str, condition: Callable[[list[str]], bool], seconds: float = 60) -> None:
    """Waits until a condition holds for the lines of all clients."""
    until = time.monotonic() + seconds
    left = clients
    while left := [one for one in left if not condition(one.lines)]:
        if time.monotonic() > until:
            faults = "\n".join(f"{one.name}: {one.lines[-12:]} {one.errors()}" for one in left)
            raise SystemExit(f"{what}: not within {seconds:.0f} s\n{faults}")
        time.sleep(0.05)


def changes(lines: list[str]) -> list[str]:
    return [line for line in lines if line.split()[0] in CHANGES]


class Story:
    """What happens, and what each client must have printed of it."""

    def __init__(self, server: Server, clients: list):
        self.server, self.clients, self.expected = server, clients, []

    def seen(self, what: str, *lines: str) -> None:
        """Waits until all clients have printed these lines, after all before and nothing else."""
        self.expected += lines
        wait(self.clients, what, lambda found: len(changes(found)) >= len(self.expected))
        self.check(what)

    def check(self, what: str) -> None:
        for one in self.clients:
            assert changes(one.lines) == self.expected, f"{what}: {one.name}: {one.lines}, expected {self.expected}"

    def seen_again(self, what: str, uids: list[str]) -> None:
        """Waits until all clients have begun again with these resources, in any order."""
        begun, state = len(self.expected), sorted(f"added {uid}" for uid in uids)
        wait(self.clients, what, lambda found: "expired" in found and len(changes(found)) >= begun + len(state))
        for one in self.clients:
            found = changes(one.lines)
            assert found[:begun] == self.expected and sorted(found[begun:]) == state, f"{what}: {one.name}: {one.lines}"
            assert one.lines.count("expired") == 1, f"{what}: {one.name}: {one.lines}"
        self.expected += changes(self.clients[0].lines)[begun:]
        self.check(what)


class Restarting:
    """A server on one port that can be restarted."""

    def __init__(self, folder: pathlib.Path):
        self.port = database.free_port()
        self.folder, self.stack = folder, contextlib.ExitStack()

    def start(self) -> Server:
        store = f"sqlite:{self.folder / 'store.db'}"
        return self.stack.enter_context(serving(self.folder, store, "--listen", f"127.0.0.1:{self.port}"))

    def stop(self) -> None:
        self.stack.close()


def token_of(server: Server, identity: str) -> str:
    command = [binary(), "token", "--identity", identity, "--data-dir", str(server.data), "--public-url", server.url]
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout.strip()


def quoted(uid: str) -> str:
    return uid.replace("/", "%2F")


def main() -> None:
    chosen = os.environ.get("PLATFORM_WATCH_CLIENTS", DEFAULT).split(",")
    chosen = [*CLIENTS, "chromium"] if chosen == ["all"] else chosen
    commands = {}
    for name in (name for name in chosen if name != "chromium"):
        programs, build = CLIENTS[name]
        if missing := lacking(programs):
            print(f"NOT RUN: the watch with {name}: {', '.join(missing)} is not installed")
        else:
            commands[name] = build()
    with contextlib.ExitStack() as stack:
        tab = None
        if "chromium" in chosen and not lacking(["npm"]):
            tab = Chromium(stack.enter_context(browsing()))
        elif "chromium" in chosen:
            print("NOT RUN: the watch in Chromium: npm is not installed")
        place = Restarting(pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory())))
        stack.callback(place.stop)
        server = place.start()
        follow(stack, place, server, commands, tab)


def start(stack, proxy: Proxy, path: str, token: str, commands: dict, tab: Chromium | None) -> list:
    """Starts all clients with a watch of a list, and waits until they have its state."""
    url = f"http://127.0.0.1:{proxy.port}{path}&watch=true&initial_state=true"
    clients = [Client(name, command, url, token) for name, command in commands.items()]
    for one in clients:
        stack.callback(one.stop)
    if tab:
        clients += tab.clients(f"http://127.0.0.1:{proxy.port}", url, token)
    wait(clients, "the state", lambda lines: "bookmark" in lines)
    return clients


def follow(stack, place: Restarting, server: Server, commands: dict, tab: Chromium | None) -> None:
    org = server.organization
    viewer = server.call("GET", "/iam/v2/roles?name=viewer")["roles"][0]["uid"]
    claims = {"issuer": "https://issuer.example.com", "subject": "watcher"}
    identity = server.call("POST", f"/iam/v2/identities/{org}", {"name": "watcher", "claimMatch": claims})["uid"]
    group, other = (server.call("POST", f"/iam/v2/groups/{org}", {"name": name})["uid"] for name in ("a", "b"))

    def bind(at: str) -> str:
        return server.call("POST", f"/iam/v2/roleBindings/{quoted(at)}", {"identityUid": identity, "roleUid": viewer})["uid"]

    def unbind(uid: str) -> None:
        server.call("DELETE", f"/iam/v2/roleBindings/{quoted(uid)}")

    def create(name: str, at: str = group) -> str:
        return server.call("POST", f"/registry/v2/repos/{quoted(at)}", {"name": name})["uid"]

    binding, elsewhere = bind(group), create("elsewhere", other)
    first = create("first")
    token = token_of(server, identity)
    proxy = Proxy(place.port, token)
    clients = start(stack, proxy, f"/registry/v2/repos?uidp.descendants_of={org}", token, commands, tab)
    story = Story(server, clients)
    story.seen("the state", f"added {first}")

    for fraction in CUTS:
        streams = proxy.streams
        proxy.cut(fraction)
        one = create(f"cut-{int(fraction * 100)}")
        story.seen(f"a connection that is cut after {fraction:.0%} of an event", f"added {one}")
        assert proxy.streams == streams + len(clients), "not all streams were cut, and begun again once"

    aliases = [f"repo-{index}/{'a' * 700}:latest" for index in range(100)]
    server.call("PATCH", f"/registry/v2/repos/{quoted(first)}", {"aliases": aliases})
    story.seen("a resource of 70 KB", f"modified {first}")

    proxy.down()
    place.stop()
    wait(clients, "the end of the server's streams", lambda lines: "closing" in lines)
    server = story.server = place.start()
    away = create("away")
    proxy.up()
    story.seen("a restart", f"added {away}")
    server.call("DELETE", f"/registry/v2/repos/{quoted(away)}")
    story.seen("a delete", f"deleted {away}")

    streams = proxy.streams
    time.sleep(float(os.environ.get("PLATFORM_WATCH_QUIET", "0")))
    assert proxy.streams == streams, f"{proxy.streams - streams} clients reconnected without a reason"

    # What the caller sees is another list, whose changes the token does not know.
    wide = bind(org)
    repos = server.call("GET", f"/registry/v2/repos?uidp.descendants_of={org}&page_size=100")["repos"]
    assert elsewhere in [repo["uid"] for repo in repos]
    story.seen_again("a token that is too old", [repo["uid"] for repo in repos])
    story.seen("a change afterwards", f"added {create('after')}")

    unbind(binding)
    story.check("a grant that another one includes")
    unbind(wide)
    wait(clients, "the end of the grant", lambda lines: lines[-1] == "closing")
    until = time.monotonic() + 30
    while left := [one.name for one in clients if not one.has_ended()]:
        assert time.monotonic() < until, f"{left} do not end"
        time.sleep(0.05)
    story.check("the end")

    # A hundred changes in one commit.
    bind(group)
    repo = create("tagged")
    digest = f"sha256:{'a' * 64}"
    tags = [server.call("POST", f"/registry/v2/tags/{quoted(repo)}", {"name": f"t{index}", "digest": digest})["uid"] for index in range(100)]
    clients = start(stack, proxy, f"/registry/v2/tags?uidp.descendants_of={org}", token, commands, tab)
    server.call("DELETE", f"/registry/v2/repos/{quoted(repo)}")
    for kind, word in (("added", "the state"), ("deleted", "the commit")):
        wait(clients, word, lambda lines: sum(line.startswith(kind) for line in lines) >= 100)
        for one in clients:
            found = [line.split()[1] for line in one.lines if line.startswith(kind)]
            assert sorted(found) == sorted(tags), f"{word}: {one.name}: {len(found)} lines"
    for one in clients:
        print(f"{one.name}: each change exactly once")


if __name__ == "__main__":
    main()
