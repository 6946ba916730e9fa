"""What the checks of the console share: servers, many repos, a sink, and the browser."""

import contextlib
import hashlib
import http.server
import json
import os
import pathlib
import shlex
import subprocess
import tempfile
import threading
import time

from page import FLAGS, installed
from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import WebDriverWait
from server import ROOT, Server, binary

FOLDER = ROOT / "target" / "clients-console"
SHOTS = os.environ.get("PLATFORM_CONSOLE_SHOTS")
# Newest when this check was written; it changes what is found, so it is pinned.
AXE = "axe-core@4.14.1"


def axe() -> str:
    """Returns the source of axe-core."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    (FOLDER / "package.json").write_text('{"private": true}')
    command = ["npm", "install", "--no-audit", "--no-fund", "--silent", "--ignore-scripts", AXE]
    subprocess.run(command, cwd=FOLDER, check=True)
    return (FOLDER / "node_modules" / "axe-core" / "axe.min.js").read_text()


class Sink(http.server.BaseHTTPRequestHandler):
    """Answers events with `status`, and keeps the ids of those that it accepts."""

    status = 204
    delivered: list[str] = []

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("content-length", 0)))
        status = type(self).status
        if status == 204:
            type(self).delivered.append(self.headers.get("ce-id"))
        body = f"answered with {status}".encode() if status != 204 else b""
        self.send_response(status)
        self.send_header("x-receiver", "console-check")
        self.send_header("set-cookie", "session=hush")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_) -> None:
        pass


@contextlib.contextmanager
def sink(status: int):
    """Runs a receiver of events that answers with this status."""
    Sink.status, Sink.delivered = status, []
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Sink)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/"
    finally:
        server.shutdown()


@contextlib.contextmanager
def serving(data: pathlib.Path, store: str, *more: str):
    """Starts a server on a data directory and a store."""
    program = binary()
    log = data / "log"
    listen = () if "--listen" in more else ("--listen", "127.0.0.1:0")
    options = [*listen, "--store", store, "--data-dir", str(data), *more]
    with log.open("a") as errors:
        process = subprocess.Popen([program, *options], stdout=subprocess.PIPE, stderr=errors, text=True)
        try:
            line = process.stdout.readline()
            if not line.startswith("Listening on "):
                raise SystemExit(f"the server does not start: {line}{log.read_text()}")
            env = subprocess.run([program, "env", "--data-dir", str(data)], stdout=subprocess.PIPE, text=True, check=True)
            values = dict(word.split("=", 1) for word in shlex.split(env.stdout) if "=" in word)
            yield Server(line.split()[2], data, values["ORG_ID"], values["TOKEN"], log)
        finally:
            process.terminate()
            process.wait(timeout=60)


def many(data: pathlib.Path, count: int) -> str:
    """Returns a store in the data directory with this many repos in one group."""
    with serving(data, f"sqlite:{data / 'one.db'}") as server:
        group = server.call("POST", f"/iam/v2/groups/{server.organization}", {"name": "many"})["uid"]
        server.call("POST", f"/registry/v2/repos/{group}", {"name": "sample"})
    common = ["--data-dir", str(data)]
    exported = subprocess.run(
        [binary(), "export", "--store", f"sqlite:{data / 'one.db'}", *common],
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=True,
    ).stdout.splitlines()
    counts = json.loads(exported[-1])["end"]["records"]
    hasher, path = hashlib.sha256(), data / "many.ndjson"
    with path.open("w") as file:

        def write(line: str) -> None:
            hasher.update(line.encode() + b"\n")
            file.write(line + "\n")

        for line in exported[:-1]:
            one = json.loads(line)
            if one.get("kind") != "Repo":
                write(line)
                continue
            text, uid = line, one["uid"]
            for index in range(count):
                new = f"{uid.rsplit('/', 1)[0]}/{index:016x}"
                write(text.replace(uid, new).replace('"sample"', f'"repo-{index:07}"'))
        counts["Repo"] = count
        file.write(json.dumps({"end": {"records": counts, "sha256": hasher.hexdigest()}}, separators=(",", ":")) + "\n")
    store = f"sqlite:{data / 'many.db'}"
    began = time.monotonic()
    subprocess.run(
        [binary(), "import", "store", str(path), "--store", store, *common],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True,
    )
    print(f"{count:,} repos were imported in {time.monotonic() - began:.0f} s")
    path.unlink()
    return store


class Browser:
    """A browser with the console, and what the checks do with it."""

    def __init__(self, profile: str, server: Server, source: str) -> None:
        browser, driver = installed()
        options = webdriver.ChromeOptions()
        options.binary_location = browser
        for flag in (*FLAGS, "--window-size=1360,1000", "--force-prefers-reduced-motion", f"--user-data-dir={profile}"):
            options.add_argument(flag)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        self.page = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))
        self.wait = WebDriverWait(self.page, float(os.environ.get("PLATFORM_CONSOLE_WAIT", "60")), poll_frequency=0.1)
        self.server, self.source, self.audited = server, source, 0

    def size(self, width: int, height: int) -> None:
        """Sets the size of the page, as in a window without its frame."""
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.page.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)

    def sign_in(self, token: str) -> None:
        """Signs in with a token, and waits for the first screen."""
        self.page.get(f"{self.server.url}/console")
        self.fill("input[type=password]", token)
        self.keys(Keys.ENTER)
        self.find("main:not(.door) h1")

    def go(self, address: str, heading: str) -> None:
        """Opens a screen and waits for its heading."""
        self.page.execute_script("location.hash = arguments[0]", address)
        self.settled(heading)

    def settled(self, heading: str) -> None:
        script = """
            const h1 = document.querySelector("h1");
            return h1?.textContent.includes(arguments[0]) && !document.querySelector(".busy")
                && !document.body.textContent.includes("Loading …") && !document.body.textContent.includes("…repos");"""
        self.wait.until(lambda page: page.execute_script(script, heading))

    def find(self, selector: str):
        return self.wait.until(lambda page: next(iter(page.find_elements(By.CSS_SELECTOR, selector)), None))

    def text(self, selector: str = "main") -> str:
        self.find(selector)
        return self.page.execute_script("return document.querySelector(arguments[0]).innerText", selector)

    def shows(self, text: str, selector: str = "body") -> None:
        script = "return document.querySelector(arguments[0])?.innerText.includes(arguments[1])"
        self.wait.until(lambda page: page.execute_script(script, selector, text), f"no {text!r} in {selector}")

    def gone(self, selector: str) -> None:
        self.wait.until(lambda page: not page.find_elements(By.CSS_SELECTOR, selector), f"{selector} is still there")

    def point(self, selector: str) -> None:
        """Clicks an element with the mouse: it must be in sight, and nothing above it."""
        element = self.find(selector)
        self.page.execute_script("arguments[0].scrollIntoView({ block: 'center' })", element)
        webdriver.ActionChains(self.page).move_to_element(element).click().perform()

    def run(self, script: str, *values):
        return self.page.execute_script(f"return {script}", *values)

    def click(self, selector: str) -> None:
        self.wait.until(lambda page: next((one for one in page.find_elements(By.CSS_SELECTOR, selector) if one.is_enabled()), None))
        self.page.execute_script("document.querySelector(arguments[0]).click()", selector)

    def press(self, name: str, inside: str = "main") -> None:
        """Clicks the button or link with this text."""
        script = """
            const all = [...document.querySelectorAll(`${arguments[1]} button, ${arguments[1]} a, ${arguments[1]} summary`)];
            const found = all.find((one) => one.textContent.trim() === arguments[0] && !one.disabled);
            found?.click(); return Boolean(found);"""
        self.wait.until(lambda page: page.execute_script(script, name, inside), f"no {name!r} in {inside}")

    def fill(self, selector: str, value: str) -> None:
        field = self.find(selector)
        field.send_keys(Keys.CONTROL, "a")
        field.send_keys(value)

    def keys(self, *keys: str) -> None:
        webdriver.ActionChains(self.page).send_keys(*keys).perform()

    def row(self) -> str:
        """Returns the name of the tree item that has the focus."""
        return self.page.execute_script("return document.activeElement.textContent")

    def tab_to(self, name: str, most: int = 120) -> None:
        """Presses Tab until the element that has the focus has this selector or text."""
        script = """
            const at = document.activeElement;
            if (arguments[0].startsWith("[")) return at.matches(arguments[0]);
            return at.textContent.trim() === arguments[0] && at.matches("a, button");"""
        for _ in range(most):
            if self.page.execute_script(script, name):
                return
            self.keys(Keys.TAB)
        raise AssertionError(f"the keyboard does not reach {name!r}")

    def audit(self, name: str, themes: tuple[str, ...] = ("light", "dark")) -> None:
        """Checks a screen with axe-core in these themes, and takes screenshots if they are wanted."""
        for theme in themes:
            self.page.execute_script("document.documentElement.dataset.theme = arguments[0]", theme)
            if SHOTS:
                pathlib.Path(SHOTS).mkdir(parents=True, exist_ok=True)
                self.page.save_screenshot(str(pathlib.Path(SHOTS) / f"{name}-{theme}.png"))
            self.page.execute_script(f"if (!window.axe) {{ {self.source} }}")
            found = self.page.execute_async_script(
                "const done = arguments[0]; axe.run(document).then((r) => done(r.violations), (e) => done([{id: String(e), nodes: []}]))"
            )
            faults = [(one["id"], [node["html"][:200] for node in one["nodes"][:3]]) for one in found]
            assert not faults, f"{name}, {theme}: {json.dumps(faults, indent=1)}"
            self.audited += 1

    def faults(self) -> list[str]:
        """Returns errors of scripts and what the content security policy blocked; not refused requests."""
        entries = [entry["message"] for entry in self.page.get_log("browser") if entry["level"] == "SEVERE"]
        return [entry for entry in entries if "Failed to load resource" not in entry]

    def check_faults(self) -> None:
        # Reading the log empties it.
        faults = self.faults()
        assert not faults, faults


@contextlib.contextmanager
def browser(server: Server, source: str):
    with tempfile.TemporaryDirectory() as profile:
        one = Browser(profile, server, source)
        try:
            yield one
        finally:
            (ROOT / "target").mkdir(exist_ok=True)
            one.page.save_screenshot(str(ROOT / "target" / "console.png"))
            one.page.quit()
