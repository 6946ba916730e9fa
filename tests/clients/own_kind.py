"""Walks a kind of an embedder, that of examples/own-kind, with grpcio by reflection and with REST."""

import contextlib
import json
import re
import shlex
import subprocess
import tempfile
import urllib.error
import urllib.request

import grpc
from google.protobuf import descriptor_pool, json_format, message_factory
from google.protobuf.timestamp_pb2 import Timestamp
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase
from server import ROOT, built

SERVICE = "example.tickets.v1.TicketsService"
METADATA = [("authorization", "Bearer me")]


class Client:
    """A client of one server, without generated stubs: the descriptors come from reflection."""

    def __init__(self, channel):
        self.channel = channel
        self.database = ProtoReflectionDescriptorDatabase(channel)
        self.pool = descriptor_pool.DescriptorPool(self.database)

    def call(self, service: str, method: str, request: dict) -> dict:
        found = self.pool.FindServiceByName(service).FindMethodByName(method)
        types = [message_factory.GetMessageClass(kind) for kind in (found.input_type, found.output_type)]
        stub = self.channel.unary_unary(
            f"/{service}/{method}", request_serializer=types[0].SerializeToString, response_deserializer=types[1].FromString
        )
        reply = stub(json_format.ParseDict(request, types[0]()), metadata=METADATA, timeout=30)
        return json_format.MessageToDict(reply)


def rest(method: str, url: str, body: object = None) -> dict:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, method=method, data=data, headers={"Authorization": "Bearer me"})
    with urllib.request.urlopen(request, timeout=30) as reply:
        return json.load(reply)


def instant(text: str) -> Timestamp:
    """Parses a time. REST writes `.000Z` where `MessageToDict` writes `Z`, one time in a thousand."""
    time = Timestamp()
    time.FromJsonString(text)
    return time


@contextlib.contextmanager
def serving():
    """Runs the program. Gives its URL and its organization."""
    program = subprocess.Popen([built("own-kind")], stdout=subprocess.PIPE, text=True)
    try:
        text = ""
        while "grpcurl" not in text:
            line = program.stdout.readline()
            assert line, f"own-kind ended: {text}"
            text += line
        address = re.search(r"http://([0-9.:]+)/", text)[1]
        yield f"http://{address}", re.search(r"/tickets/v1/tickets/(\w+)'", text)[1]
    finally:
        program.kill()
        program.wait()


def main() -> None:
    with serving() as (url, organization), grpc.insecure_channel(url.removeprefix("http://")) as channel:
        walk(Client(channel), url, organization)
    first_command_of_embed()
    print("passed: an own kind with its capabilities, action and errors, over REST and over grpcio by reflection")


def walk(client: Client, url: str, organization: str) -> None:
    assert SERVICE in client.database.get_services(), client.database.get_services()
    tickets = f"{url}/tickets/v1/tickets"

    created = rest("POST", f"{tickets}/{organization}", {"title": "sweep", "state": "STATE_OPEN"})
    got = client.call(SERVICE, "GetTicket", {"uid": created["uid"]})
    assert (got["title"], got["state"]) == ("sweep", "STATE_OPEN"), got
    assert instant(got["createTime"]) == instant(created["createTime"]), (got, created)
    request = {"parent": organization, "ticket": {"title": "mop"}}
    mop = client.call(SERVICE, "CreateTicket", request)
    page = client.call(SERVICE, "ListTickets", {"orderBy": "title desc", "pageSize": 2})
    titles = [ticket["title"] for ticket in page["tickets"]]
    assert (titles, page["totalCount"]) == (["water the plants", "sweep"], "3"), page
    page = client.call(SERVICE, "ListTickets", {"orderBy": "title desc", "pageToken": page["nextPageToken"]})
    assert [ticket["title"] for ticket in page["tickets"]] == ["mop"], page
    update = {"ticket": {"uid": mop["uid"], "title": "mop twice"}, "updateMask": "title"}
    assert client.call(SERVICE, "UpdateTicket", update)["title"] == "mop twice"

    closed = client.call(SERVICE, "CloseTicket", {"uid": created["uid"]})
    assert closed["state"] == "STATE_DONE", closed
    [found] = rest("GET", f"{tickets}?state=STATE_DONE&title=sweep")["tickets"]
    assert instant(found["closeTime"]) == instant(closed["closeTime"]), (found, closed)
    refused(lambda: client.call(SERVICE, "CloseTicket", {"uid": created["uid"]}), grpc.StatusCode.FAILED_PRECONDITION)
    refused(lambda: client.call(SERVICE, "CreateTicket", request | {"ticket": {}}), grpc.StatusCode.INVALID_ARGUMENT)
    taken = {"parent": organization, "ticket": {"title": "sweep"}}
    refused(lambda: client.call(SERVICE, "CreateTicket", taken), grpc.StatusCode.ALREADY_EXISTS)
    try:
        rest("GET", f"{tickets}?state=STATE_NONE")
        raise AssertionError("an unknown state was accepted")
    except urllib.error.HTTPError as error:
        assert error.code == 400, error.code
    client.call(SERVICE, "DeleteTicket", {"uid": mop["uid"]})
    refused(lambda: client.call(SERVICE, "GetTicket", {"uid": mop["uid"]}), grpc.StatusCode.NOT_FOUND)

    # Own capabilities have their names over REST and their numbers over gRPC, and chosen built-in roles have them.
    roles = f"{url}/iam/v2/roles"
    role = rest("POST", f"{roles}/{organization}", {"name": "closer", "capabilities": ["CAP_TICKETS_CLOSE", 1000000]})
    assert role["capabilities"] == ["CAP_TICKETS_LIST", "CAP_TICKETS_CLOSE"], role
    service = "chainguard.platform.iam.v2.RolesService"
    assert client.call(service, "GetRole", {"uid": role["uid"]})["capabilities"] == [1000000, 1000002]
    for name, has in [("owner", True), ("viewer", False)]:
        found = rest("GET", f"{roles}?name={name}")["roles"][0]["capabilities"]
        assert ("CAP_TICKETS_CLOSE" in found) == has and "CAP_TICKETS_LIST" in found, name

    document = rest("GET", f"{url}/openapi.json")
    assert "/tickets/v1/tickets/{uid}:close" in document["paths"], list(document["paths"])
    assert "CAP_TICKETS_CLOSE" in document["components"]["schemas"]["Capability"]["enum"]


def first_command_of_embed() -> None:
    """Starts examples/embed and runs the request that docs/how-to/embed.md names for it."""
    page = (ROOT / "docs" / "how-to" / "embed.md").read_text()
    command = re.search(r"^cargo run -p embed .*\n(curl .*)$", page, re.MULTILINE)[1]
    with tempfile.TemporaryDirectory() as folder:
        program = subprocess.Popen([built("embed")], cwd=folder)
        try:
            # It listens on a fixed port.
            retried = ["--silent", "--fail-with-body", "--retry", "60", "--retry-delay", "1", "--retry-connrefused"]
            output = subprocess.run([*shlex.split(command), *retried], stdout=subprocess.PIPE, text=True, check=True)
            assert program.poll() is None, "embed ended"
        finally:
            program.kill()
            program.wait()
    roles = json.loads(output.stdout)["roles"]
    assert "viewer" in [role["name"] for role in roles], roles


def refused(call, code: grpc.StatusCode) -> None:
    try:
        call()
    except grpc.RpcError as error:
        assert error.code() == code, error
    else:
        raise AssertionError(f"the call passed, and not {code}")


if __name__ == "__main__":
    main()
