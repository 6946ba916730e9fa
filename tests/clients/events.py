"""Receives events with the public CloudEvents SDK, and rejects events without a valid token of the server.

The receiver knows only the issuer's URL and the group, and finds the keys through the discovery document. It responds
like the published receiver: 400 if the request is not a CloudEvent, 401 without a token, and 403 if the token is invalid
or for another body.

`PLATFORM_EVENTS` is the number of further events (default 20), which arrive in order and at least once.
"""

import contextlib
import hashlib
import http.server
import json
import os
import queue
import threading
import urllib.request

import jwt
from cloudevents.core.bindings.http import HTTPMessage, from_http_event
from server import running


class Rejected(Exception):
    """A status other than 200."""

    def __init__(self, status: int, reason: str):
        super().__init__(reason)
        self.status = status


class Verifier:
    """Verifies webhook tokens with the published keys of the issuer."""

    def __init__(self, issuer: str, group: str):
        with urllib.request.urlopen(f"{issuer}/.well-known/openid-configuration", timeout=30) as reply:
            document = json.load(reply)
        assert document["issuer"] == issuer, document
        assert "ES256" in document["id_token_signing_alg_values_supported"], document
        self.issuer, self.group = issuer, group
        self.keys = jwt.PyJWKClient(document["jwks_uri"])

    def check(self, headers: dict, body: bytes) -> None:
        scheme, _, token = headers.get("authorization", "").partition(" ")
        if scheme != "Bearer":
            raise Rejected(401, "no token")
        try:
            key = self.keys.get_signing_key_from_jwt(token)
            claims = jwt.decode(
                token,
                key.key,
                algorithms=["ES256"],
                audience="customer",
                issuer=self.issuer,
                options={"require": ["exp", "iat", "iss", "aud", "sub"]},
            )
        except jwt.PyJWTError as error:
            raise Rejected(403, str(error)) from error
        if claims["sub"] != f"webhook:{self.group}":
            raise Rejected(403, "another group")
        if claims["webhook"]["digest"] != "sha256:" + hashlib.sha256(body).hexdigest():
            raise Rejected(403, "another body")


def receive(verifier: Verifier, headers: dict, body: bytes):
    """Verifies a request and returns its event."""
    verifier.check(headers, body)
    try:
        return from_http_event(HTTPMessage(headers=headers, body=body))
    except Exception as error:
        raise Rejected(400, str(error)) from error


def main() -> None:
    with running("--allow-http-sinks", "--allow-private-sinks") as server:
        verifier = Verifier(server.url, server.organization)
        received: queue.Queue = queue.Queue()

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                headers = {name.lower(): value for name, value in self.headers.items()}
                try:
                    received.put((receive(verifier, headers, body), headers, body))
                    status = 200
                except Rejected as error:
                    status = error.status
                    received.put((error, headers, body))
                self.send_response(status)
                self.send_header("content-length", "0")
                self.end_headers()

            def handle_one_request(self) -> None:
                """Ends with the connection of a server that was killed."""
                with contextlib.suppress(ConnectionError):
                    super().handle_one_request()
                    return
                self.close_connection = True

            def log_message(self, *_: object) -> None:
                """Suppresses the log."""

        receiver = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=receiver.serve_forever, daemon=True).start()
        sink = f"http://127.0.0.1:{receiver.server_port}/"
        server.call("POST", f"/events/v2/subscriptions/{server.organization}", {"sink": sink})
        repo = server.call("POST", f"/registry/v2/repos/{server.organization}", {"name": "nginx", "description": "größe"})
        folder = server.call("POST", f"/iam/v2/groups/{server.organization}", {"name": "folder"})
        events = []
        for _ in range(2):
            event, headers, body = received.get(timeout=30)
            if isinstance(event, Rejected):
                raise SystemExit(f"rejected: {event}")
            events.append(event)
        first, second = events
        assert first.get_specversion() == "1.0" and first.get_type().endswith(".registry.repo.created.v1")
        assert first.get_source() == f"{server.url}/registry/v2/repos" and first.get_subject() == repo["uid"]
        assert first.get_time() is not None and len(first.get_id()) == 36
        assert first.get_extension("group") == server.organization
        assert first.get_extension("audience") == "customer"
        assert first.get_extension("bodytype") == "chainguard.platform.registry.v2.Repo"
        assert first.get_data()["body"]["description"] == "größe"
        assert second.get_extension("group") == folder["uid"] == second.get_data()["body"]["uid"]

        # Forged requests are rejected.
        def status(headers: dict, body: bytes) -> int:
            try:
                receive(verifier, headers, body)
                return 200
            except Rejected as error:
                return error.status

        token = headers["authorization"]
        forged = token[:-4] + ("AAAA" if token[-4:] != "AAAA" else "BBBB")
        own = {**headers, "authorization": f"Bearer {server.token}"}
        assert status(headers, body) == 200
        assert status(headers, body + b" ") == 403
        assert status({**headers, "authorization": forged}, body) == 403
        assert status(own, body) == 403, "an access token is not valid for an event"
        assert status({name: value for name, value in headers.items() if name != "authorization"}, body) == 401
        assert status({name: value for name, value in headers.items() if name != "ce-type"}, body) == 400
        elsewhere = Verifier(server.url, folder["uid"])
        try:
            elsewhere.check(headers, body)
            raise SystemExit("a token for another group was accepted")
        except Rejected as error:
            assert error.status == 403
        count, again = in_order(server, received)
    print("a receiver with the CloudEvents SDK accepts 2 events and rejects 6 forged ones")
    print(f"{count} further events arrived in order, {again} of them more than once")


def in_order(server, received: queue.Queue) -> tuple[int, int]:
    """Creates repos, and receives their events. Returns their number, and how many were received again."""
    count, again = int(os.environ.get("PLATFORM_EVENTS", "20")), 0
    for number in range(count):
        server.call("POST", f"/registry/v2/repos/{server.organization}", {"name": f"repo-{number}"})
    expected = [f"repo-{number}" for number in range(count)]
    arrived: dict[str, str] = {}
    while len(arrived) < count:
        # A server that takes over from one that was killed waits for the end of its lease.
        event, _, _ = received.get(timeout=60)
        if isinstance(event, Rejected):
            raise SystemExit(f"rejected: {event}")
        name = event.get_data()["body"]["name"]
        if name in expected:
            again += event.get_id() in arrived
            arrived[event.get_id()] = name
    assert list(arrived.values()) == expected, list(arrived.values())
    return count, again


main()
