"""Reads, writes and deletes a resource through caches of HTTP libraries and of Chromium, with If-Match.

No cache may show what was before a write, and a tag that a cache has given to its client must be good for a conditional
write unless somebody else has written since. Reads that find the resource unchanged must be answered from the cache, after
the server has said so.
"""

import contextlib
import json
import subprocess
import tempfile

import hishel
import hishel.requests
import requests
from cachecontrol import CacheControl
from programs import Programs, lacking
from server import Server, running
from watch import browsing

GO = "github.com/gregjones/httpcache@v0.0.0-20190611155906-901d90724c79"
SCRIPT = """
    const [{ method, url, headers, body }, done] = arguments;
    // The page has requests of its own, and the timing of a request can come after its reply.
    const timed = new Promise((resolve) => {
        new PerformanceObserver((entries, observer) => {
            const [timing] = entries.getEntriesByName(url);
            if (timing) {
                observer.disconnect();
                resolve(timing);
            }
        }).observe({ type: "resource" });
    });
    fetch(url, { method, headers, body: body || undefined }).then(async (reply) => {
        const text = await reply.text();
        // A reply of 304 has no body, and none of this size has a shorter one.
        const { transferSize } = await timed;
        const cached = transferSize > 0 && transferSize <= 300;
        done({ status: reply.status, etag: reply.headers.get("etag") ?? "", body: text, cached });
    }, (error) => done({ error: String(error) }));"""


def cached_by(session: requests.Session):
    """Returns what sends a request through a session of requests."""

    def send(call: dict) -> dict:
        reply = session.request(call["method"], call["url"], headers=call["headers"], data=call["body"] or None, timeout=30)
        etag = reply.headers.get("ETag", "")
        return {"status": reply.status_code, "etag": etag, "body": reply.text, "cached": is_cached(reply)}

    return send


def is_cached(reply: requests.Response) -> bool:
    # CacheControl says it as an attribute, hishel as a header.
    return getattr(reply, "from_cache", False) or reply.headers.get("x-hishel-revalidated") == "true"


def hishel_session(folder: str) -> requests.Session:
    session = requests.Session()
    storage = hishel.SqliteStorage(database_path=f"{folder}/cache.db")
    # Without this, it ignores the headers of replies.
    session.mount("http://", hishel.requests.CacheAdapter(storage=storage, rfc=hishel.CacheOptions(shared=False)))
    return session


def walk(name: str, server: Server, send) -> None:
    """Calls the server as clients do, with one cache."""
    made = server.call("POST", f"/registry/v2/repos/{server.organization}", {"name": name.lower(), "description": "first"})
    path = f"/registry/v2/repos/{made['uid'].replace('/', '%2F')}"

    def call(method: str, status: int, body: object = None, **headers: str) -> tuple[dict, str, bool]:
        headers = {"Authorization": f"Bearer {server.token}"} | {key.replace("_", "-"): value for key, value in headers.items()}
        request = {"method": method, "url": server.url + path, "headers": headers, "body": "" if body is None else json.dumps(body)}
        got = send(request)
        assert got.get("status") == status, f"{name}: {method}: {got}"
        return json.loads(got["body"] or "{}"), got["etag"], got["cached"]

    def shows(what: str, description: str, etag: str = "", cached: bool | None = None) -> str:
        body, tag, from_cache = call("GET", 200)
        assert body["description"] == description, f"{name}: {what}: {body}"
        assert not etag or tag == etag, f"{name}: {what}: {tag}, and not {etag}"
        assert cached is None or from_cache == cached, f"{name}: {what}: from the cache: {from_cache}"
        assert tag.startswith('"'), f"{name}: {what}: {tag} is no strong tag"
        return tag

    first = shows("the first read", "first", cached=False)
    shows("a second read", "first", first, cached=True)
    body, second, _ = call("PATCH", 200, {"description": "second"}, If_Match=first)
    assert body["description"] == "second" and second not in ("", first), f"{name}: {body}, {second}"
    shows("a read after a write", "second", second)
    # A client that never reads the reply of its write uses the tag of its next read.
    _, third, _ = call("PATCH", 200, {"description": "third"}, If_Match=shows("another read", "second", second, cached=True))
    server.call("PATCH", path, {"description": "of somebody else"})
    call("PATCH", 412, {"description": "lost"}, If_Match=third)
    now = shows("a read after the write of somebody else", "of somebody else")
    call("PATCH", 400, {"description": "malformed"}, If_Match="malformed")
    call("DELETE", 412, If_Match=third)
    call("DELETE", 200, If_Match=now)
    call("GET", 404)
    print(f"{name}: no stale read, and every conditional write as it must be")


def main() -> None:
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(running())
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        walk("CacheControl", server, cached_by(CacheControl(requests.Session())))
        walk("hishel", server, cached_by(hishel_session(folder)))
        if missing := lacking(["go"]):
            print(f"NOT RUN: the cache httpcache: {', '.join(missing)} is not installed")
        else:
            command = Programs("caching").go("caching", GO)
            process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            stack.callback(process.kill)

            def send(call: dict) -> dict:
                process.stdin.write(json.dumps(call) + "\n")
                process.stdin.flush()
                return json.loads(process.stdout.readline())

            walk("httpcache", server, send)
        page = stack.enter_context(browsing())
        page.get(f"{server.url}/console")
        walk("Chromium", server, lambda call: page.execute_async_script(SCRIPT, call))


if __name__ == "__main__":
    main()
