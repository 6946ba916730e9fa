"""Creates, updates, reads and deletes repos from several clients at once, and compares what was acknowledged with the data.

Each client repeats requests by the rule of retries.py, so in a fleet too: every acknowledged change is there at the end,
once, and a read by any client shows what was acknowledged before it began. `PLATFORM_LOAD_SECONDS` is the duration.
"""

import os
import threading
import time

import requests
import retries
from server import running

CLIENTS = 8


class Client(threading.Thread):
    """A client that changes repos which no other client names, over connections that it keeps open."""

    def __init__(self, server, number: int, until: float):
        super().__init__()
        self.session = requests.Session()
        self.session.headers["Authorization"] = f"Bearer {server.token}"
        self.repos = f"{server.url}/registry/v2/repos"
        self.parent, self.number, self.until = server.organization, number, until
        # What was acknowledged: uids and descriptions by name.
        self.expected: dict[str, tuple[str, str]] = {}
        self.requests, self.fault = 0, None

    def call(self, method: str, url: str, body: dict | None, *statuses: int) -> requests.Response:
        self.requests += 1
        reply = self.session.request(method, url, json=body, timeout=60)
        assert reply.status_code in statuses, f"{method} {url}: {reply.status_code} {reply.text}"
        return reply

    def run(self) -> None:
        try:
            round = 0
            while time.monotonic() < self.until:
                self.change(f"client-{self.number}-{round}")
                round += 1
        except Exception as error:
            self.fault = error

    def change(self, name: str) -> None:
        # The names are this client's own, so an existing one is the one of its repeated request.
        made = self.call("POST", f"{self.repos}/{self.parent}", {"name": name}, 200, 409)
        body = made.json()
        if made.status_code == 409:
            body = {"uid": next(one["resourceName"] for one in body["details"] if "resourceName" in one)}
        uid = body["uid"]
        text = f"described {name}"
        self.call("PATCH", f"{self.repos}/{uid}", {"description": text}, 200)
        read = self.call("GET", f"{self.repos}/{uid}", None, 200).json()
        assert (read["name"], read["description"]) == (name, text), read
        self.expected[name] = (uid, text)
        if len(self.expected) > 20:
            old = next(iter(self.expected))
            gone, _ = self.expected.pop(old)
            self.call("DELETE", f"{self.repos}/{gone}", None, 200, 204, 404)
            self.call("GET", f"{self.repos}/{gone}", None, 404)


def listed(server) -> tuple[dict[str, tuple[str, str]], int]:
    """Returns all repos, and their number as the server states it."""
    found, token, total = [], "", 0
    while True:
        query = f"uidp.descendants_of={server.organization}&page_size=50&page_token={token}"
        page = server.call("GET", f"/registry/v2/repos?{query}")
        found += page.get("repos", [])
        total, token = int(page["totalCount"]), page.get("nextPageToken", "")
        if not token:
            return {one["name"]: (one["uid"], one.get("description", "")) for one in found}, total


def main() -> None:
    retries.repeat_with_requests()
    with running() as server:
        until = time.monotonic() + float(os.environ.get("PLATFORM_LOAD_SECONDS", "10"))
        clients = [Client(server, number, until) for number in range(CLIENTS)]
        for client in clients:
            client.start()
        for client in clients:
            client.join()
        faults = [f"client {client.number}: {client.fault!r}" for client in clients if client.fault]
        if faults:
            raise SystemExit("\n".join(faults))
        expected = {name: repo for client in clients for name, repo in client.expected.items()}
        found, total = listed(server)
        assert found == expected, (found, expected)
        assert total == len(expected), (total, len(expected))
    print(f"{sum(client.requests for client in clients)} requests of {CLIENTS} clients: all that was acknowledged holds")


if __name__ == "__main__":
    main()
