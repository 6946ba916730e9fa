"""Signs persons in with headless Chromium, by the OpenID Connect provider of npm's oidc-provider.

A registered person, a registration, an invite, the groups of an organization's own provider, a refusal, and a headless
client. The program that asks for the token is this script, as the published SDK does it.
"""

import base64
import contextlib
import hashlib
import http.client
import http.server
import json
import os
import pathlib
import queue
import shutil
import socket
import subprocess
import tempfile
import threading
import urllib.error
import urllib.parse
import urllib.request

import jwt
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from page import FLAGS, installed
from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import WebDriverWait
from server import ROOT, built, read_audit_log, running

FOLDER = ROOT / "target" / "clients-signin"
SOURCE = ROOT / "tests" / "clients" / "signin"
VIEWER = "63921b2c44617e3f2603851537be0123af4a57d7"


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


@contextlib.contextmanager
def provider(port: int, clients: list[dict]):
    """Runs the identity provider."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name in ("package.json", "provider.mjs"):
        shutil.copy(SOURCE / name, FOLDER / name)
    subprocess.run(["npm", "install", "--no-audit", "--no-fund", "--silent"], cwd=FOLDER, check=True)
    command = ["node", "provider.mjs", str(port), json.dumps(clients)]
    with (FOLDER / "log").open("w") as log:
        process = subprocess.Popen(command, cwd=FOLDER, stdout=subprocess.PIPE, stderr=log, text=True)
        try:
            # It prints warnings first: its login page is only for tests.
            if not any(line == "listening\n" for line in process.stdout):
                raise SystemExit(f"the identity provider does not start: {(FOLDER / 'log').read_text()}")
            yield
        finally:
            process.terminate()
            process.wait(timeout=30)


class Callback(http.server.BaseHTTPRequestHandler):
    """The callback of a program: passes the parameters on and leads to a page without them."""

    def do_GET(self) -> None:
        path, _, query = self.path.partition("?")
        if path == "/callback":
            self.server.received.put(dict(urllib.parse.parse_qsl(query)))
            self.send_response(308)
            self.send_header("location", "/")
            self.end_headers()
        else:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"done")

    def log_message(self, *_) -> None:
        pass


@contextlib.contextmanager
def program(host: str = "localhost"):
    """Runs the program that asks for a token. Gives its callback and the parameters that it receives."""
    family = socket.AF_INET6 if host == "[::1]" else socket.AF_INET
    kind = type("Server", (http.server.ThreadingHTTPServer,), {"address_family": family})
    server = kind(("::1" if host == "[::1]" else "127.0.0.1", 0), Callback)
    server.received = queue.Queue()
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        # The published SDK sends these two placeholders.
        yield f"http://{host}:{server.server_address[1]}/callback?token=true&error=true", server.received
    finally:
        server.shutdown()


class Person:
    """A person with a browser of their own."""

    def __init__(self, profile: str) -> None:
        browser, driver = installed()
        options = webdriver.ChromeOptions()
        options.binary_location = browser
        for flag in (*FLAGS, f"--user-data-dir={profile}"):
            options.add_argument(flag)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        self.page = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))
        self.wait = WebDriverWait(self.page, 60)

    def find(self, selector: str):
        return self.wait.until(lambda page: next(iter(page.find_elements(By.CSS_SELECTOR, selector)), None))

    def log_in(self, url: str, name: str) -> str:
        """Opens the URL and logs in at the provider. Returns the text of the confirmation."""
        self.page.get(url)
        return pass_provider(self, name)

    def answer(self, answer: str) -> None:
        self.find(f"button[value={answer}]").click()

    def faults(self) -> list[str]:
        """Returns what the content security policy has blocked, except icons, which the browser asks for itself."""
        entries = (entry["message"] for entry in self.page.get_log("browser"))
        return [entry for entry in entries if "Content Security Policy" in entry and "favicon" not in entry]


def pass_provider(one, name: str) -> str:
    """Logs in at the provider, which the browser shows. Returns the text of the confirmation."""
    # A live session at the provider needs no login.
    found = one.wait.until(
        lambda page: next(iter(page.find_elements(By.CSS_SELECTOR, "input[name=login], button[value=allow]")), None)
    )
    if found.get_attribute("name") == "login":
        found.send_keys(name)
        one.find("input[name=password]").send_keys("any")
        one.find("button[type=submit]").click()
        one.wait.until(lambda page: not page.find_elements(By.CSS_SELECTOR, "input[name=login]"))
        granted = one.wait.until(
            lambda page: next(
                iter(page.find_elements(By.CSS_SELECTOR, "button[type=submit].login-submit, button[value=allow]")),
                None,
            )
            or next(iter(page.find_elements(By.CSS_SELECTOR, "form button[type=submit]")), None)
        )
        if granted.get_attribute("value") != "allow":
            granted.click()
    one.find("button[value=allow]")
    assert one.page.current_url.endswith("/oauth/confirm"), one.page.current_url
    return one.page.find_element(By.TAG_NAME, "main").text


@contextlib.contextmanager
def person():
    with tempfile.TemporaryDirectory() as profile:
        one = Person(profile)
        try:
            yield one
        finally:
            one.page.save_screenshot(str(ROOT / "target" / "signin.png"))
            one.page.quit()


def who_am_i(server, token: str) -> dict:
    request = urllib.request.Request(f"{server.url}/auth/v1/ok", headers={"Authorization": f"Bearer {token}"})
    with urllib.request.urlopen(request, timeout=30) as reply:
        return json.load(reply)


def claims(token: str) -> dict:
    return jwt.decode(token, options={"verify_signature": False})


def sign_in(server, browser: Person, name: str, answer: str = "allow", host: str = "localhost", **parameters) -> dict:
    """Signs a person in for a program. Returns the parameters that the program receives."""
    with program(host) as (callback, received):
        query = {"exit": "redirect", "redirect": callback, "client_id": "auth0", **parameters}
        text = browser.log_in(f"{server.url}/oauth?{urllib.parse.urlencode(query)}", name)
        port = urllib.parse.urlsplit(callback).port
        assert f"port {port} of this computer" in text and "auth0" in text and server.url in text, text
        assert f"Person {name}" in text, text
        browser.answer(answer)
        arrived = received.get(timeout=60)
        browser.wait.until(lambda page: page.current_url.startswith("http://") and "callback" not in page.current_url)
        assert not browser.faults(), browser.faults()
        return arrived


def check_operators_provider(server) -> None:
    with person() as ann:
        refused = sign_in(server, ann, "ann", skip_registration="true")
        assert refused["status_code"] == "404" and "token" not in refused, refused
        # The provider's session is live, and the person is asked all the same.
        refused = sign_in(server, ann, "ann", answer="refuse")
        assert refused["status_code"] == "403" and "token" not in refused, refused
        tokens = sign_in(server, ann, "ann")
        caller = who_am_i(server, tokens["token"])
        assert caller["email"] == "ann@example.com" and "refresh_token" not in tokens, caller
        for host in ("127.0.0.1", "[::1]"):
            again = sign_in(server, ann, "ann", host=host, skip_registration="true", create_refresh_token="true")
            assert claims(again["token"])["sub"] == caller["subject"]
        form = urllib.parse.urlencode({"aud": server.url}).encode()
        refresh = urllib.request.Request(
            f"{server.url}/sts/exchange_refresh_token", form, {"Authorization": f"Bearer {again['refresh_token']}"}
        )
        with urllib.request.urlopen(refresh, timeout=30) as reply:
            assert json.load(reply)["token"]["token"]
    invite = server.call("POST", f"/iam/v2/groupInvites/{server.organization}", {"roleUid": VIEWER, "ttl": "3600s"})
    with person() as bob:
        tokens = sign_in(server, bob, "bob", invite=invite["code"])
        held = who_am_i(server, tokens["token"])["capabilities"]
        assert [(one["group"], one["role"]) for one in held] == [(server.organization, "viewer")], held
    print("registration, refusal, a live session, IPv4 and IPv6 callbacks, refresh tokens and an invite work")


def check_organizations_provider(server, uid: str) -> None:
    editor = next(role["uid"] for role in server.call("GET", "/iam/v2/roles?name=editor")["roles"])
    mapping = {"externalGroupId": "ops", "roleUid": editor, "scope": server.organization}
    server.call("POST", f"/iam/v2/externalGroupRoleMappings/{uid}", mapping)
    for name, roles in (("carol+devs", {"viewer"}), ("dave+ops", {"editor"})):
        with person() as one:
            tokens = sign_in(server, one, name, idp_id=uid, create_refresh_token="true")
            assert "refresh_token" not in tokens, "groups are as fresh as the sign-in"
            held = who_am_i(server, tokens["token"])["capabilities"]
            assert {grant.get("role", "") for grant in held} == roles, held
    print("an organization's provider gives its default role and the mapped roles of groups")


def check_headless(server) -> None:
    key = X25519PrivateKey.generate()
    raw = key.public_key().public_bytes(serialization.Encoding.Raw, serialization.PublicFormat.Raw)
    code = base64.urlsafe_b64encode(raw).decode().rstrip("=")
    session = f"{server.url}/sts/headless_sessions?code={code}"

    def status() -> int:
        try:
            with urllib.request.urlopen(session, timeout=30) as reply:
                return reply.status
        except urllib.error.HTTPError as error:
            return error.code

    with person() as eve:
        text = eve.log_in(f"{server.url}/oauth?headless_code={code}", "eve")
        digest = hashlib.sha256(code.encode()).hexdigest()[:20]
        fingerprint = " ".join(digest[at : at + 4] for at in range(0, 20, 4))
        assert code in text and fingerprint in text, text
        assert status() == 404
        eve.answer("allow")
        # One command: an element that is found first and read second may belong to the page that is being left.
        eve.wait.until(lambda page: page.find_elements(By.XPATH, "//main[contains(., 'Signed in')]"))
    with urllib.request.urlopen(session, timeout=30) as reply:
        answer = json.load(reply)
    assert status() == 404, "a session is read once"
    text = base64.b64decode(answer["ecdhPublicKey"]).decode()
    public = X25519PublicKey.from_public_bytes(base64.urlsafe_b64decode(text + "="))
    encrypted = base64.b64decode(answer["encryptedIdtoken"])
    token = AESGCM(key.exchange(public)).decrypt(encrypted[:12], encrypted[12:], None).decode()
    assert who_am_i(server, token)["email"] == "eve@example.com"
    print("a headless client decrypts its token, once")


def check_command_line(server) -> None:
    """`platformctl login --browser` gets its token by a code, and no other page can end its sign-in."""
    with tempfile.TemporaryDirectory() as folder, person() as fay:
        # Without a path, it finds no browser to open, and prints the page only.
        env = {"PATH": "", "HOME": folder, "PLATFORMCTL_CONFIG": f"{folder}/config.toml"}
        program = built("platformctl")
        command = [program, "login", "--browser", "--api", server.url, "--context", "web"]
        process = subprocess.Popen(command, env=env, stderr=subprocess.PIPE, text=True)
        try:
            page = next(line.strip() for line in process.stderr if line.startswith("http"))
            query = dict(urllib.parse.parse_qsl(urllib.parse.urlsplit(page).query))
            try:
                urllib.request.urlopen(f"{query['redirect']}?code=mine&state=guessed", timeout=30)
                raise AssertionError("a code of another sign-in was accepted")
            except urllib.error.HTTPError as error:
                assert error.code == 404, error
            text = fay.log_in(page, "fay")
            port = urllib.parse.urlsplit(query["redirect"]).port
            assert f"port {port} of this computer" in text and "platformctl" in text, text
            fay.answer("allow")
            fay.wait.until(lambda page: "You are signed in" in page.page_source)
            address = fay.page.current_url
            assert "code=" in address and "token=" not in address and "eyJ" not in address, address
            assert process.wait(timeout=30) == 0, process.stderr.read()
        finally:
            process.kill()
            process.wait()
        code = dict(urllib.parse.parse_qsl(urllib.parse.urlsplit(address).query))["code"]
        form = urllib.parse.urlencode({"grant_type": "authorization_code", "code": code, "code_verifier": "a" * 43})
        try:
            urllib.request.urlopen(f"{server.url}/oauth/token", form.encode(), timeout=30)
            raise AssertionError("a code was redeemed twice")
        except urllib.error.HTTPError as error:
            assert (error.code, json.load(error)["error"]) == (400, "invalid_grant"), error
        shown = subprocess.run([program, "contexts"], env=env, stdout=subprocess.PIPE, text=True, check=True).stdout
        assert "* web" in shown, shown
        subprocess.run([program, "get", "groups"], env=env, stdout=subprocess.DEVNULL, check=True)
    print("the command line signs a person in with a browser, by a code that it alone can redeem")


def check_pages(server) -> None:
    """Checks what needs no browser: errors are pages, and the name of an organization is checked."""

    def page(path: str) -> tuple[int, str]:
        try:
            with urllib.request.urlopen(server.url + path, timeout=30) as reply:
                return reply.status, reply.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    assert page("/orgcheck?name=nobody.example") == (200, "false")
    status, text = page("/oauth?redirect=https://evil.example/callback&prompt=none")
    assert status == 400 and "prompt" in text, text
    with running() as bare:
        # The program learns that there is no provider.
        connection = http.client.HTTPConnection(urllib.parse.urlsplit(bare.url).netloc, timeout=30)
        connection.request("GET", "/oauth?redirect=http://localhost:1/callback")
        to = connection.getresponse().headers["location"]
        assert to.startswith("http://localhost:1/callback?error=") and "status_code=404" in to, to
        assert "--sign-in-issuer" in urllib.parse.unquote_plus(to), to


def check_audit_log(text: str) -> None:
    """The audit log has the sign-ins, also those that failed, and the refresh, without codes and tokens."""
    entries = [json.loads(line) for line in text.splitlines()]
    sign_ins = [entry for entry in entries if entry["event"] == "signIn"]
    # ann three times, bob, carol, dave, eve and fay; the code of fay is redeemed in a request of its own.
    assert {entry["code"] for entry in sign_ins} == {"OK"} and len(sign_ins) >= 8, sign_ins
    for entry in sign_ins:
        # A code is redeemed at a token path.
        assert entry["method"] in ("BrowserSignIn", "Tokens") and entry["issued"]["identity"] and entry["requestId"], entry
    # All but those whose token only the client has.
    assert sum("token" in entry["issued"] for entry in sign_ins) >= 7, sign_ins
    assert [entry["code"] for entry in entries if entry["event"] == "refresh"] == ["OK"], entries
    # ann has refused, and a code was redeemed twice.
    denied = {(entry["method"], entry["code"]) for entry in entries if entry["event"] == "denied"}
    assert denied >= {("BrowserSignIn", "PERMISSION_DENIED"), ("Tokens", "UNAUTHENTICATED")}, denied
    for part in ("code=", "token=", "eyJ", "state="):
        assert part not in text, f"the audit log has {part}"
    print("the audit log has the sign-ins")


def main() -> None:
    port = free_port()
    issuer = f"http://127.0.0.1:{port}"
    with tempfile.NamedTemporaryFile("w", suffix=".secret") as secret, tempfile.TemporaryDirectory() as folder:
        audit_log = pathlib.Path(folder) / "audit.log"
        secret.write("the operator's secret\n")
        secret.flush()
        options = [
            "--sign-in-issuer", issuer, "--sign-in-client-id", "operator", "--sign-in-client-secret-file", secret.name,
            "--allow-http-issuers", "--allow-private-issuers",
        ]
        # Each server needs an audit log of its own, and those of a fleet have the same options.
        if "PLATFORM_FLEET" not in os.environ:
            options += ["--audit-log", str(audit_log)]
        with running(*options) as server:
            oidc = {
                "issuer": issuer, "clientId": "organization", "pkceEnabled": True,
                "additionalScopes": ["groups"], "groupsClaim": "groups",
            }
            body = {"name": "sign-in", "defaultRole": VIEWER, "oidc": oidc}
            uid = server.call("POST", f"/iam/v2/identityProviders/{server.organization}", body)["uid"]
            clients = [
                {
                    "client_id": "operator", "client_secret": "the operator's secret",
                    "redirect_uris": [f"{server.url}/oauth/callback"],
                },
                {
                    "client_id": "organization", "token_endpoint_auth_method": "none",
                    "redirect_uris": [f"{server.url}/oauth/callback/{uid}"], "scope": "openid email profile groups",
                },
            ]
            with provider(port, clients):
                check_pages(server)
                check_operators_provider(server)
                check_organizations_provider(server, uid)
                check_headless(server)
                check_command_line(server)
            log = server.log.read_text()
            for part in ("code=", "token=", "eyJ", "state="):
                assert part not in log, f"the log has {part}: {log}"
            if audit_log.exists():
                check_audit_log(read_audit_log(audit_log))


if __name__ == "__main__":
    main()
