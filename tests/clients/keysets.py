"""Verifies tokens with the published key set by libraries in four languages, before and after `keys rotate`.

The tokens are access tokens and those of webhooks. Each program in keysets/ gets the URL of the server, the audience and
tokens. It reads the key set by its library, verifies every token
with it, and prints the name of the library and the subject. Some of these libraries reject a whole set because of one key
of a type or algorithm that they do not know, or try the first key of a set alone, so the set itself is checked, too.

`PLATFORM_KEYSETS` chooses programs (default: python,javascript,go; java is downloaded by Maven).
"""

import base64
import concurrent.futures
import contextlib
import http.server
import json
import os
import queue
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable

from programs import Programs, lacking
from server import Server, binary, running
from signin import claims

PROGRAMS = Programs("keysets")
GO_LIBRARIES = ("github.com/go-jose/go-jose/v4@v4.1.9", "github.com/lestrrat-go/jwx/v3@v3.4.0")

# The programs that each needs, its libraries, and what builds it and returns its command.
VERIFIERS: dict[str, tuple[list[str], set[str], Callable[[], list]]] = {
    "python": (
        [],
        {"PyJWT", "joserfc", "Authlib", "python-jose"},
        lambda: [sys.executable, "-W", "ignore", PROGRAMS.source / "verify.py"],
    ),
    "javascript": (["npm", "node"], {"jose"}, lambda: PROGRAMS.node("verify")),
    "go": (["go"], {"go-jose", "jwx"}, lambda: PROGRAMS.go("verify", *GO_LIBRARIES)),
    "java": (["java", "mvn"], {"Nimbus"}, lambda: PROGRAMS.java("Verify")),
}


def key_id(token: str) -> str:
    header = token.split(".")[0]
    return json.loads(base64.urlsafe_b64decode(header + "=" * (-len(header) % 4)))["kid"]


def keys_of(server: Server) -> list[dict]:
    """Returns the published keys. Checks what libraries need: known types and algorithms, and those of RSA first."""
    with urllib.request.urlopen(f"{server.url}/.well-known/jwks.json", timeout=30) as reply:
        keys = json.load(reply)["keys"]
    forms = [(key["kty"], key.get("crv"), key["alg"], key["use"]) for key in keys]
    rsa = [form for form in forms if form == ("RSA", None, "RS256", "sig")]
    ec = [form for form in forms if form == ("EC", "P-256", "ES256", "sig")]
    assert forms == rsa + ec and rsa and ec, forms
    assert len({key["kid"] for key in keys}) == len(keys), keys
    return keys


def token_of(server: Server) -> str:
    """Returns a new token. Its times are whole numbers, which some libraries require."""
    token = server.call("POST", f"/sts/exchange?aud={server.url}")["token"]
    assert all(type(claims(token)[name]) is int for name in ("iat", "exp")), claims(token)
    return token


@contextlib.contextmanager
def webhooks():
    """Runs a sink. Yields its URL and a queue of the tokens that it gets."""
    received: queue.Queue[str] = queue.Queue()

    class Sink(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["content-length"]))
            received.put(self.headers["authorization"].removeprefix("Bearer "))
            self.send_response(200)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *_) -> None:
            pass

    sink = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Sink)
    threading.Thread(target=sink.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{sink.server_address[1]}", received
    finally:
        sink.shutdown()


def verify(commands: dict[str, list], server: Server, audience: str, tokens: list[str]) -> set[str]:
    """Runs all programs. Returns the libraries that verified every token."""
    subject, verified = claims(tokens[0])["sub"], set()
    for name, command in commands.items():
        done = subprocess.run([*command, server.url, audience, *tokens], capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, f"{name}: {done.stdout}{done.stderr}"
        lines = [line.split() for line in done.stdout.splitlines()]
        assert all(found == subject for _, found in lines), (name, lines)
        counts = {library: sum(library == found for found, _ in lines) for library in VERIFIERS[name][1]}
        assert all(count >= len(tokens) for count in counts.values()), (name, counts)
        verified |= set(counts)
    return verified


def main() -> None:
    chosen = os.environ.get("PLATFORM_KEYSETS", "python,javascript,go").split(",")
    for name in chosen:
        if missing := lacking(VERIFIERS[name][0]):
            print(f"NOT RUN: the key set with libraries of {name}: {', '.join(missing)} is not installed")
    chosen = [name for name in chosen if not lacking(VERIFIERS[name][0])]
    with concurrent.futures.ThreadPoolExecutor() as pool:
        commands = dict(zip(chosen, pool.map(lambda name: VERIFIERS[name][2](), chosen)))
    with webhooks() as (sink, received), running("--allow-http-sinks", "--allow-private-sinks") as server:
        before, old = keys_of(server), token_of(server)
        server.call("POST", f"/events/v2/subscriptions/{server.organization}", {"sink": sink})
        server.call("POST", f"/registry/v2/repos/{server.organization}", {"name": "before"})
        old_webhook = received.get(timeout=60)
        verify(commands, server, server.url, [old])
        verify(commands, server, "customer", [old_webhook])
        rotate = [binary(), "keys", "rotate", "--data-dir", str(server.data), "--store", "memory"]
        subprocess.run(rotate, check=True, capture_output=True)
        # The running server reads its keys again within seconds.
        deadline = time.monotonic() + 60
        while key_id(new := token_of(server)) == key_id(old):
            assert time.monotonic() < deadline, "the server does not use the new key"
            time.sleep(0.2)
        after = keys_of(server)
        assert {key["kid"] for key in before} < {key["kid"] for key in after}, (before, after)
        server.call("POST", f"/registry/v2/repos/{server.organization}", {"name": "after"})
        while key_id(new_webhook := received.get(timeout=60)) == key_id(old_webhook):
            pass  # The first delivery may be of an event before the rotation.
        libraries = verify(commands, server, server.url, [old, new])
        libraries &= verify(commands, server, "customer", [old_webhook, new_webhook])
    print(f"{', '.join(sorted(libraries))} verify tokens of {len(before)} and of {len(after)} keys")


if __name__ == "__main__":
    main()
