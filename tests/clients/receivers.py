"""Delivers the same events to receivers with the CloudEvents SDKs of Python, JavaScript, Go, Java and Rust.

Each program in receivers/ listens on a port of its own and prints `port PORT`. It parses and validates each delivery with
its SDK, and prints the event as a line of JSON: id, source, type, subject, the time in milliseconds, two extensions, the
data, and the path and query of the request. Each is the sink of a subscription, with a query in its URL. What they print
is compared with the changes that the server acknowledged and with each other; only the id differs, which each receiver
must see once.

`PLATFORM_RECEIVERS` chooses programs (default: python, javascript, go). Java and Rust take longer to build.
"""

import contextlib
import datetime
import json
import os
import queue
import subprocess
import sys
import threading
from collections.abc import Callable

from programs import Programs, lacking, run
from server import Server, running

PROGRAMS = Programs("receivers")
LIBRARY = "github.com/cloudevents/sdk-go/v2@v2.16.2"
QUERY = "/hook?key=a%2Fb&name=gr%C3%B6%C3%9Fe"


def rust() -> list:
    # A build of its own: its features must not change those of the workspace.
    env = {"CARGO_TARGET_DIR": str(PROGRAMS.folder / "rust")}
    run("cargo", "build", "--quiet", "--locked", cwd=PROGRAMS.source / "rust", env=env)
    return [PROGRAMS.folder / "rust" / "debug" / "event-receiver"]


# The programs that each needs, and what builds it and returns its command.
RECEIVERS: dict[str, tuple[list[str], Callable[[], list]]] = {
    "python": ([], lambda: [sys.executable, PROGRAMS.source / "receiver.py"]),
    "javascript": (["npm", "node"], lambda: PROGRAMS.node("receiver")),
    "go": (["go"], lambda: PROGRAMS.go("receiver", LIBRARY)),
    "java": (["java", "mvn"], lambda: PROGRAMS.java("Receiver")),
    "rust": (["cargo"], rust),
}


class Receiver:
    """A running program, and the events that it has printed."""

    def __init__(self, name: str, command: list):
        self.name, self.events = name, queue.Queue()
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        word, port = self.process.stdout.readline().split()
        assert word == "port", (name, word)
        self.sink = f"http://127.0.0.1:{port}{QUERY}"
        threading.Thread(target=self.read, daemon=True).start()

    def read(self) -> None:
        for line in self.process.stdout:
            self.events.put(json.loads(line))

    def stop(self) -> None:
        self.process.kill()
        self.process.wait()


def changes(server: Server) -> list[dict]:
    """Changes resources of many kinds. Returns what is known of the event of each change."""
    org, expected = server.organization, []

    def change(method: str, source: str, target: str, body: object, event: str, bodytype: str, **known: object) -> dict:
        made = server.call(method, f"{source}{target}", body)
        subject = made.get("uid") or made.get("id")
        event = {"type": event, "source": source, "bodytype": bodytype, "subject": subject, **known}
        expected.append({"time": made.get("updateTime"), "contents": body, **event})
        return made

    def delete(source: str, uid: str, event: str, bodytype: str) -> None:
        change("DELETE", source, f"/{uid}", None, event, bodytype, subject=uid, contents={"uid": uid})

    groups, repos, tags = "/iam/v2/groups", "/registry/v2/repos", "/registry/v2/tags"
    text = {"description": 'größe 漢字 🦀 e\u0301 \u2028 \\ " <&>'}
    folder = change("POST", groups, f"/{org}", {"name": "folder", **text}, "iam.group.created.v1", "iam.v2.Group")
    at = f"/{folder['uid']}"
    long = {"description": "ü" * 500}
    change("PATCH", groups, f"{at}?updateMask=description", long, "iam.group.updated.v1", "iam.v2.Group")
    beta = change("POST", "/iam/v2beta1/groups", f"/{org}", {"name": "b"}, "iam.group.created.v1", "iam.v2beta1.Group")
    change("POST", "/iam/v1/groups", f"/{org}", {"name": "one", **text}, "iam.group.created.v1", "iam.Group")
    claims = {"claimMatch": {"issuer": "https://issuer.example.com", "subject": "größe"}}
    robot = {"name": "robot", **claims}
    identity = change("POST", "/iam/v2/identities", f"/{org}", robot, "iam.identity.created.v1", "iam.v2.Identity")
    reader = {"name": "reader", "capabilities": ["CAP_REPO_LIST"]}
    role = change("POST", "/iam/v2/roles", f"/{org}", reader, "iam.roles.created.v1", "iam.v2.Role")
    binding = {"identityUid": identity["uid"], "roleUid": role["uid"]}
    change(
        "POST", "/iam/v2/roleBindings:batchCreate", "", {"parent": folder["uid"], "requests": [{"roleBinding": binding}]},
        "iam.rolebindings.created.batch.v1", "iam.v2.BatchCreateRoleBindingsResponse", subject=folder["uid"], contents={},
    )  # fmt: skip
    first = [{"identity": identity["uid"], "role": role["uid"]}]
    change(
        "POST", "/iam/v1/rolebindings/batch", f"/{beta['uid']}", first,
        "iam.rolebindings.created.batch.v1", "iam.RoleBindingBatch", subject=None, contents={},
    )  # fmt: skip
    repo = change("POST", repos, at, {"name": "nginx"}, "platform.registry.repo.created.v1", "registry.v2.Repo")
    # More than 4 KiB, which the subscriptions share.
    readme, uid = {"content": "# é 🦀\n" * 2000}, f"/{repo['uid']}"
    change("PATCH", repos, f"{uid}/readme", readme, "platform.registry.repo.updated.v1", "registry.v2.RepoReadme")
    latest = {"name": "latest", "digest": "sha256:" + "0123456789abcdef" * 4}
    tag = change("POST", tags, f"/{repo['uid']}", latest, "platform.registry.tag.created.v1", "registry.v2.Tag")
    delete(tags, tag["uid"], "platform.registry.tag.deleted.v1", "registry.v2.DeleteTagRequest")
    delete(repos, repo["uid"], "platform.registry.repo.deleted.v1", "registry.v2.DeleteRepoRequest")
    delete(groups, folder["uid"], "iam.group.deleted.v1", "iam.v2.DeleteGroupRequest")
    return expected


def compare(name: str, server: Server, events: list[dict], expected: list[dict]) -> None:
    """Compares what a receiver has printed with the changes."""
    assert len({event["id"] for event in events}) == len(events), name
    for event, change in zip(events, expected, strict=True):
        what = f"{name}: {change['type']}: {event}"
        assert event["type"] == f"dev.chainguard.api.{change['type']}", what
        assert event["source"] == f"{server.url}{change['source']}", what
        assert event["bodytype"] == f"chainguard.platform.{change['bodytype']}", what
        assert event["subject"] == change["subject"] or (change["subject"] is None and event["subject"]), what
        assert event["datacontenttype"] == "application/json" and event["url"] == QUERY, what
        assert event["group"] and set(event["data"]) == {"actor", "body"} and event["data"]["actor"]["subject"], what
        body = event["data"]["body"]
        assert {field: body.get(field) for field in change["contents"]} == change["contents"], what
        if change["time"]:
            time = datetime.datetime.fromisoformat(change["time"])
            assert event["millis"] == round(time.timestamp() * 1000), what


def main() -> None:
    chosen = os.environ.get("PLATFORM_RECEIVERS", "python,javascript,go").split(",")
    commands = {}
    for name in chosen:
        programs, build = RECEIVERS[name]
        missing = lacking(programs)
        if missing:
            print(f"NOT RUN: the receiver with the CloudEvents SDK of {name}: {', '.join(missing)} is not installed")
        else:
            commands[name] = build()
    with contextlib.ExitStack() as stack:
        receivers = [Receiver(name, command) for name, command in commands.items()]
        for receiver in receivers:
            stack.callback(receiver.stop)
        server = stack.enter_context(running("--allow-http-sinks", "--allow-private-sinks"))
        for receiver in receivers:
            server.call("POST", f"/events/v2/subscriptions/{server.organization}", {"sink": receiver.sink})
        expected = changes(server)
        printed = []
        for receiver in receivers:
            events = []
            while len(events) < len(expected):
                event = receiver.events.get(timeout=60)
                if "error" in event:
                    raise SystemExit(f"{receiver.name}: {event['error']}")
                # Of the subscriptions that were created after its own.
                if not event["type"].endswith(".events.subscription.created.v1"):
                    events.append(event)
            compare(receiver.name, server, events, expected)
            printed.append([{name: value for name, value in event.items() if name != "id"} for event in events])
            print(f"the CloudEvents SDK of {receiver.name} accepts {len(events)} events")
        assert all(events == printed[0] for events in printed), printed


if __name__ == "__main__":
    main()
