"""The rule by which the clients of a fleet repeat requests (docs/api.md, "Retries"), for urllib and requests.

Only in a fleet: elsewhere a request that fails has failed. Each repeated request is appended to the file
`PLATFORM_REPEATED`.
"""

import http.client
import io
import json
import os
import time
import urllib.error
import urllib.request

# The file of repeated requests; only a fleet has one.
REPEATED = os.environ.get("PLATFORM_REPEATED")

# Statuses of a balancer whose server is gone, and of a server whose database is.
UNKNOWN = (502, 503)


def pauses():
    """Yields after each pause, for at most 30 seconds in total."""
    for pause in (0, 0.1, 0.2, 0.4, 0.8, *[1.5] * 19):
        time.sleep(pause)
        yield


def note(request: str, outcome: object) -> None:
    """Records that a request is sent again."""
    with open(REPEATED, "a") as file:
        file.write(f"{request}: {outcome}\n")


class Repeating(urllib.request.HTTPHandler):
    """Makes urllib repeat requests."""

    def http_open(self, request):
        what = f"{request.get_method()} {request.selector.split('?')[0]}"
        for attempt, _ in enumerate(pauses()):
            try:
                reply = super().http_open(request)
                # A body that is cut off is an unknown outcome too.
                body = reply.read()
            except (OSError, http.client.HTTPException) as error:
                outcome = error
            else:
                if reply.status not in UNKNOWN:
                    break
                outcome = reply.status
            note(what, outcome)
        else:
            raise urllib.error.URLError(f"{what} does not succeed: {outcome}")
        status = reply.status
        if attempt and status == 409 and request.get_method() == "POST" and (uid := existing(body)):
            return self.created(request, uid)
        if attempt and status == 404 and request.get_method() == "DELETE":
            status, body = 200, b"{}"
        return answer(request, status, reply, body)

    def created(self, request, uid: str):
        """Gets the resource that the first of several equal requests has created."""
        collection = "/".join(request.selector.split("/")[:4])
        base = request.full_url.removesuffix(request.selector)
        get = urllib.request.Request(f"{base}{collection}/{uid}", headers=dict(request.header_items()))
        return self.parent.open(get, timeout=request.timeout)


def existing(body: bytes) -> str | None:
    """Returns the uid that an ALREADY_EXISTS error names."""
    try:
        details = json.loads(body)["details"]
    except (ValueError, KeyError, TypeError):
        return None
    return next((one["resourceName"] for one in details if "resourceName" in one), None)


def answer(request, status: int, reply, body: bytes):
    """Returns a reply whose body was read."""
    read = urllib.request.addinfourl(io.BytesIO(body), reply.headers, request.full_url, status)
    read.msg = reply.reason
    return read


def repeat_with_urllib() -> None:
    """Makes each `urlopen` of this process repeat requests, those of libraries too."""
    if REPEATED:
        urllib.request.install_opener(urllib.request.build_opener(Repeating))


def repeat_with_requests() -> None:
    """Makes each session of requests repeat requests."""
    if not REPEATED:
        return
    import requests

    send = requests.Session.send

    def sending(self, request, **options):
        what = f"{request.method} {request.path_url.split('?')[0]}"
        for _ in pauses():
            try:
                reply = send(self, request, **options)
            except (requests.ConnectionError, requests.exceptions.ChunkedEncodingError) as error:
                outcome = failed = error
            else:
                if reply.status_code not in UNKNOWN:
                    return reply
                outcome, failed = reply.status_code, None
            note(what, outcome)
        if failed:
            raise failed
        return reply

    requests.Session.send = sending
