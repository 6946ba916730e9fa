"""Receives events by the public CloudEvents SDK, and believes none that the server does not vouch for.

The receiver knows the issuer's URL and the group alone: keys come by the discovery document. It answers as the published
one does: 400 for what is no CloudEvent, 401 without a token, 403 for a token that is not good or not for this body.
"""

import hashlib
import http.server
import json
import queue
import threading
import urllib.request

import jwt
from cloudevents.core.bindings.http import HTTPMessage, from_http_event
from server import running


class Refused(Exception):
    """A status other than 200."""

    def __init__(self, status: int, why: str):
        super().__init__(why)
        self.status = status


class Verifier:
    """Verifies tokens of webhooks by what the issuer publishes."""

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
            raise Refused(401, "no token")
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
            raise Refused(403, str(error)) from error
        if claims["sub"] != f"webhook:{self.group}":
            raise Refused(403, "another group")
        if claims["webhook"]["digest"] != "sha256:" + hashlib.sha256(body).hexdigest():
            raise Refused(403, "another body")


def receive(verifier: Verifier, headers: dict, body: bytes):
    """Returns the event of a request."""
    verifier.check(headers, body)
    try:
        return from_http_event(HTTPMessage(headers=headers, body=body))
    except Exception as error:
        raise Refused(400, str(error)) from error


def main() -> None:
    with running("--allow-http-sinks", "--allow-private-sinks") as server:
        verifier = Verifier(server.url, server.organisation)
        taken: queue.Queue = queue.Queue()

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                headers = {name.lower(): value for name, value in self.headers.items()}
                try:
                    taken.put((receive(verifier, headers, body), headers, body))
                    status = 200
                except Refused as refused:
                    status = refused.status
                    taken.put((refused, headers, body))
                self.send_response(status)
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, *_: object) -> None:
                """Says nothing."""

        receiver = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=receiver.serve_forever, daemon=True).start()
        sink = f"http://127.0.0.1:{receiver.server_port}/"
        server.call("POST", f"/events/v2/subscriptions/{server.organisation}", {"sink": sink})
        repo = server.call("POST", f"/registry/v2/repos/{server.organisation}", {"name": "nginx", "description": "größe"})
        folder = server.call("POST", f"/iam/v2/groups/{server.organisation}", {"name": "folder"})
        events = []
        for _ in range(2):
            event, headers, body = taken.get(timeout=30)
            if isinstance(event, Refused):
                raise SystemExit(f"refused: {event}")
            events.append(event)
        first, second = events
        assert first.get_specversion() == "1.0" and first.get_type().endswith(".registry.repo.created.v1")
        assert first.get_source() == f"{server.url}/registry/v2/repos" and first.get_subject() == repo["uid"]
        assert first.get_time() is not None and len(first.get_id()) == 36
        assert first.get_extension("group") == server.organisation
        assert first.get_extension("audience") == "customer"
        assert first.get_extension("bodytype") == "chainguard.platform.registry.v2.Repo"
        assert first.get_data()["body"]["description"] == "größe"
        assert second.get_extension("group") == folder["uid"] == second.get_data()["body"]["uid"]

        # What others could send instead is refused.
        def status(headers: dict, body: bytes) -> int:
            try:
                receive(verifier, headers, body)
                return 200
            except Refused as refused:
                return refused.status

        token = headers["authorization"]
        forged = token[:-4] + ("AAAA" if token[-4:] != "AAAA" else "BBBB")
        own = {**headers, "authorization": f"Bearer {server.token}"}
        assert status(headers, body) == 200
        assert status(headers, body + b" ") == 403
        assert status({**headers, "authorization": forged}, body) == 403
        assert status(own, body) == 403, "an access token vouches for no event"
        assert status({name: value for name, value in headers.items() if name != "authorization"}, body) == 401
        assert status({name: value for name, value in headers.items() if name != "ce-type"}, body) == 400
        elsewhere = Verifier(server.url, folder["uid"])
        try:
            elsewhere.check(headers, body)
            raise SystemExit("a token for another group is believed")
        except Refused as refused:
            assert refused.status == 403
    print("a receiver by the CloudEvents SDK believes 2 events, and none of 6 that are forged")


main()
