"""Signs persons in with libraries for OAuth 2.0 and OpenID Connect, which know only the URL of the server.

Each program in oauth/ reads the discovery document and signs in with PKCE. It redeems the code, refreshes, and exchanges
its token by RFC 8693 where its library can. Each error must be one of its library. The arguments of a program are the
URL of the server and its callback. It prints `allow URL` or `refuse URL` for a page and what the person answers there, and
then reads the URL of its callback; `token TOKEN` is a token that it got. `PLATFORM_OAUTH_CLIENTS` chooses programs.

The person has a browser without scripts, and the identity provider is that of signin.py.
"""

import concurrent.futures
import html
import http.cookiejar
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import urllib.error
import urllib.parse
import urllib.request

from sdk import go
from server import ROOT, read_audit_log, running
from signin import claims, free_port, provider, who_am_i

SOURCE = ROOT / "tests" / "clients" / "oauth"
FOLDER = ROOT / "target" / "clients-oauth"

# Pinned libraries of the Go program.
LIBRARIES = ("github.com/coreos/go-oidc/v3@v3.21.0", "golang.org/x/oauth2@v0.38.0")


class NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_):
        return None


class Browser:
    """Follows redirects and submits forms, until it is sent to the callback of a program."""

    def __init__(self) -> None:
        cookies = urllib.request.HTTPCookieProcessor(http.cookiejar.CookieJar())
        self.opener = urllib.request.build_opener(NoRedirect, cookies)

    def go(self, url: str, callback: str, form: dict | None = None) -> tuple[str, str]:
        """Opens a URL or submits a form. Returns where that leads, and the text of the page."""
        data = None if form is None else urllib.parse.urlencode(form).encode()
        for _ in range(10):
            try:
                with self.opener.open(urllib.request.Request(url, data), timeout=30) as reply:
                    return url, reply.read().decode()
            except urllib.error.HTTPError as error:
                if error.code not in (302, 303):
                    raise AssertionError(f"{url}: {error.code} {error.read().decode()}") from error
                url, data = urllib.parse.urljoin(url, error.headers["location"]), None
            if url.startswith(callback):
                return url, ""
        raise AssertionError(f"too many redirects: {url}")

    def sign_in(self, page: str, callback: str, name: str, answer: str) -> str:
        """Logs in at the provider and answers the confirmation. Returns the URL of the callback with its parameters."""
        url, text = self.go(page, callback)
        while not url.startswith(callback):
            action = urllib.parse.urljoin(url, html.unescape(re.search(r'<form[^>]* action="([^"]+)"', text)[1]))
            form = dict(re.findall(r'<input[^>]*type="hidden"[^>]*name="([^"]+)"[^>]*value="([^"]*)"', text))
            if url.endswith("/oauth/confirm"):
                assert callback in text, text
                form["answer"] = answer
            elif 'name="login"' in text:
                form |= {"login": name, "password": "any"}
            url, text = self.go(action, callback, form)
        return url


def node() -> list:
    folder = FOLDER / "node"
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("package.json", "client.mjs"):
        shutil.copy(SOURCE / name, folder / name)
    subprocess.run(["npm", "install", "--no-audit", "--no-fund", "--silent"], cwd=folder, check=True)
    return ["node", folder / "client.mjs"]


def python() -> list:
    return [sys.executable, SOURCE / "client.py"]


def golang() -> list | None:
    if not go():
        print("NOT RUN: golang.org/x/oauth2 and coreos/go-oidc: Go is not installed")
        return None
    folder = FOLDER / "go"
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copy(SOURCE / "main.go", folder)
    if not (folder / "go.mod").exists():
        subprocess.run([go(), "mod", "init", "example.com/client"], cwd=folder, check=True, capture_output=True)
    subprocess.run([go(), "get", *LIBRARIES], cwd=folder, check=True, capture_output=True)
    subprocess.run([go(), "mod", "tidy"], cwd=folder, check=True, capture_output=True)
    subprocess.run([go(), "build", "-o", "client", "."], cwd=folder, check=True)
    return [folder / "client"]


def rust() -> list:
    # A build of its own: its features must not change those of the workspace.
    env = {**os.environ, "CARGO_TARGET_DIR": str(FOLDER / "rust")}
    subprocess.run(["cargo", "build", "--quiet", "--locked"], cwd=SOURCE, env=env, check=True)
    return [FOLDER / "rust" / "debug" / "oauth-client"]


def run(server, command: list, name: str, tokens: int) -> None:
    """Runs a program, and checks that the tokens that it got are those of the person."""
    # Nobody listens there: the program reads its callback from its input.
    callback = f"http://127.0.0.1:{free_port()}/any/path"
    process = subprocess.Popen(
        [*command, server.url, callback], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    subjects = []
    try:
        for line in process.stdout:
            kind, _, text = line.strip().partition(" ")
            if kind == "token":
                assert claims(text)["aud"] == server.url, claims(text)
                subjects.append(who_am_i(server, text)["subject"])
            else:
                process.stdin.write(Browser().sign_in(text, callback, name, kind) + "\n")
                process.stdin.flush()
        assert process.wait(timeout=30) == 0, f"{name}: failed"
    finally:
        process.kill()
        process.wait()
    assert len(subjects) == tokens and len(set(subjects)) == 1, subjects


def main() -> None:
    # How to build each program, and how many tokens it gets: by its code, a refresh and an exchange.
    clients = {"openid-client": (node, 3), "authlib": (python, 3), "go-oidc": (golang, 3), "openidconnect": (rust, 2)}
    chosen = os.environ.get("PLATFORM_OAUTH_CLIENTS", ",".join(clients)).split(",")
    clients = {name: clients[name] for name in chosen}
    # Most of the time is spent here, and little of it on all cores.
    with concurrent.futures.ThreadPoolExecutor() as pool:
        commands = dict(zip(clients, pool.map(lambda client: client[0](), clients.values())))
    port = free_port()
    issuer = f"http://127.0.0.1:{port}"
    with tempfile.TemporaryDirectory() as folder:
        audit_log = pathlib.Path(folder) / "audit.log"
        options = [
            "--sign-in-issuer", issuer, "--sign-in-client-id", "operator", "--allow-http-issuers",
            "--allow-private-issuers", "--audit-log", str(audit_log),
        ]
        with running(*options) as server:
            operator = {
                "client_id": "operator", "token_endpoint_auth_method": "none",
                "redirect_uris": [f"{server.url}/oauth/callback"],
            }
            with provider(port, [operator]):
                for name, (_, tokens) in clients.items():
                    if commands[name]:
                        run(server, commands[name], name, tokens)
                        print(f"{name} gets {tokens} tokens, and reads errors as its own")
            for log in (server.log.read_text(), read_audit_log(audit_log)):
                for part in ("code=", "token=", "eyJ", "state="):
                    assert part not in log, f"the log has {part}: {log}"


if __name__ == "__main__":
    main()
