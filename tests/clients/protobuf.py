"""Reads the server's messages with the protobuf runtimes of Python, TypeScript, Go and Java.

The descriptors come from the server by reflection, so that the runtimes need no generated code. For every list method that
has a path, and for errors with details, the JSON of REST and the binary of gRPC are given to each program in protobuf/. A
program reads both and prints a line of JSON for each case: whether the two messages are equal, and the JSON of the binary
one. The JSON must be the same in all runtimes. An unknown field in either form fails the check.

`PLATFORM_PROTOBUF` chooses programs (default: python, typescript, go). Java takes longer to start.
"""

import base64
import contextlib
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable

import grpc
from google.api import annotations_pb2
from google.protobuf import descriptor, descriptor_pb2, descriptor_pool, json_format, message_factory
from google.rpc import error_details_pb2, status_pb2
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase
from programs import Programs, lacking
from receivers import changes
from server import ROOT, Server, running

PROGRAMS = Programs("protobuf")
LIBRARY = "google.golang.org/protobuf@v1.36.12"

def required(organization: str, repo: str) -> dict[str, dict]:
    """Returns the fields that methods require, among them the variables of their paths."""
    return {
        "iam.v2.TermsService/ListTermsAcceptances": {"group": organization},
        "iam.Terms/ListAccepted": {"group": organization},
        "libraries.Artifacts/List": {"ecosystems": ["PYTHON"]},
        "libraries.Artifacts/ListVersions": {"id": "python:requests"},
        "libraries.v2.ArtifactsService/ListArtifacts": {"ecosystems": ["ECOSYSTEM_PYTHON"]},
        "libraries.v2.ArtifactsService/ListArtifactVersions": {"artifact_id": "python:requests"},
        "registry.Registry/ListTagHistory": {"parent_id": repo},
        "registry.Registry/ListChartsByImageRepo": {"repo_id": repo},
        "registry.Registry/ListManifestMetadata": {"repo_id": repo},
        "vulnerabilities.v1.Advisories/ListAdvisoryEvents": {"parent_id": organization},
    }


def set_json_names(message: descriptor_pb2.DescriptorProto, known: descriptor.Descriptor) -> None:
    for field in message.field:
        field.json_name = known.fields_by_name[field.name].json_name
    for nested in message.nested_type:
        set_json_names(nested, known.nested_types_by_name[nested.name])


class Descriptors:
    """The files of a server, each after those that it imports."""

    def __init__(self, channel: grpc.Channel):
        self.database, self.files = ProtoReflectionDescriptorDatabase(channel), {}
        self.services = sorted(one for one in self.database.get_services() if one.startswith("chainguard."))
        for service in self.services:
            self.add(self.database.FindFileContainingSymbol(service))
        # No method returns a status; it is in the trailers.
        for module in (status_pb2, error_details_pb2):
            file = descriptor_pb2.FileDescriptorProto.FromString(module.DESCRIPTOR.serialized_pb)
            # The generated modules have no names for JSON, as which protoc passes them to other runtimes.
            for message in file.message_type:
                set_json_names(message, module.DESCRIPTOR.message_types_by_name[message.name])
            self.add(file)
        self.pool = descriptor_pool.DescriptorPool()
        for file in self.files.values():
            self.pool.Add(file)

    def add(self, file: descriptor_pb2.FileDescriptorProto) -> None:
        if file.name in self.files:
            return
        for name in file.dependency:
            if name not in self.files:
                self.add(self.database.FindFileByName(name))
        self.files[file.name] = file

    def lists(self):
        """Yields the service, the method and the path of each list."""
        for service in self.services:
            for method in self.pool.FindServiceByName(service).methods:
                options = descriptor_pb2.MethodOptions.FromString(method.GetOptions().SerializeToString())
                path = options.Extensions[annotations_pb2.http].get
                if path and method.name.startswith("List") and not method.server_streaming:
                    yield service, method, path


# What REST alone shows, where a message has no such field (docs/api.md, gRPC).
REST_ONLY = {"createTime", "updateTime", "uid"}


def remove_rest_only(value: object, message: descriptor.Descriptor) -> None:
    """Removes the documented fields that the message does not have."""
    if not isinstance(value, dict):
        return
    for name in list(value):
        field = message.fields_by_camelcase_name.get(name)
        if not field and name in REST_ONLY:
            del value[name]
        elif field and field.message_type and not field.message_type.GetOptions().map_entry:
            for one in value[name] if isinstance(value[name], list) else [value[name]]:
                remove_rest_only(one, field.message_type)


class Client:
    """Makes the same call over REST and over gRPC."""

    def __init__(self, server: Server, channel: grpc.Channel, descriptors: Descriptors):
        self.server, self.channel, self.descriptors = server, channel, descriptors

    def grpc(self, service: str, method: str, request: dict) -> tuple[str, bytes]:
        """Returns the name of the message and its binary form."""
        called = self.descriptors.pool.FindServiceByName(service).FindMethodByName(method)
        message = json_format.ParseDict(request, message_factory.GetMessageClass(called.input_type)())
        call = self.channel.unary_unary(f"/{service}/{method}", lambda one: one.SerializeToString(), lambda reply: reply)
        try:
            reply = call(message, metadata=[("authorization", f"Bearer {self.server.token}")], timeout=30)
        except grpc.RpcError as error:
            trailers = dict(error.trailing_metadata())
            return "google.rpc.Status", trailers["grpc-status-details-bin"]
        return called.output_type.full_name, reply

    def rest(self, method: str, path: str, body: object = None) -> str:
        data = None if body is None else json.dumps(body).encode()
        headers = {"Authorization": f"Bearer {self.server.token}"}
        request = urllib.request.Request(self.server.url + path, data, headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=30) as reply:
                return reply.read().decode()
        except urllib.error.HTTPError as error:
            return error.read().decode()

    def case(self, name: str, service: str, method: str, request: dict, rest: tuple) -> dict:
        message, binary = self.grpc(service, method, request)
        value = json.loads(self.rest(*rest))
        remove_rest_only(value, self.descriptors.pool.FindMessageTypeByName(message))
        return {"name": name, "message": message, "json": json.dumps(value), "binary": base64.b64encode(binary).decode()}


def prepare(server: Server) -> str:
    """Creates resources of the kinds that are listed, and imports the examples of the OpenAPI document.

    Returns the uid of a repo.
    """
    org = server.organization
    changes(server)

    def create(path: str, **body: object) -> dict:
        return server.call("POST", f"{path}/{org}", body)

    [viewer] = server.call("GET", "/iam/v2/roles?name=viewer")["roles"]
    # Nothing listens there.
    create("/events/v2/subscriptions", sink="http://127.0.0.1:9/?name=gr%C3%B6%C3%9Fe")
    create("/iam/v2/groupInvites", roleUid=viewer["uid"], email="ada@example.com", ttl="3600.5s", singleUse=True)
    create("/iam/v2/accountAssociations", name="aws", amazon={"account": "123456789012"})
    oidc = {"issuer": "https://issuer.example.com", "clientId": "client", "pkceEnabled": True, "groupsClaim": "groups"}
    people = {"name": "idp", "description": "größe", "defaultRole": viewer["uid"], "oidc": oidc}
    provider = create("/iam/v2/identityProviders", **people)["uid"]
    mapping = {"externalGroupId": "größe", "roleUid": viewer["uid"], "scope": org}
    server.call("POST", f"/iam/v2/externalGroupRoleMappings/{provider}", mapping)
    repo = create("/registry/v2/repos", name="imported", catalogTier="CATALOG_TIER_BASE", bundles=["base", "fips"])["uid"]
    latest = {"name": "latest", "digest": "sha256:" + "0123456789abcdef" * 4}
    server.call("POST", f"/registry/v2/tags/{repo}", latest)

    operation = json.loads((ROOT / "docs" / "openapi.json").read_text())["paths"]["/import/{plural}"]["post"]
    examples = operation["requestBody"]["content"]["application/x-ndjson"]["examples"]
    lines = {plural: example["value"] for plural, example in examples.items()}
    version = {"artifact": "python:requests", "name": "requests", "version": "2.32.5", "sizeBytes": str(2**53 + 1)}
    lines["artifactVersions"] = json.dumps({**version, "createTime": "2026-01-02T03:04:05.006Z"})
    parents = {"advisories": org, "blobs": repo}
    for plural, line in lines.items():
        query = f"?parent={urllib.parse.quote(parents[plural])}" if plural in parents else ""
        headers = {"Authorization": f"Bearer {server.token}"}
        request = urllib.request.Request(f"{server.url}/import/{plural}{query}", line.encode(), headers, method="POST")
        with urllib.request.urlopen(request, timeout=30) as reply:
            answer = json.loads(reply.read())
            assert answer["created"], (plural, answer)
    return repo


def cases(client: Client, requests: dict[str, dict]) -> list[dict]:
    """Returns the lists of all kinds, and errors with each sort of details that a single call can have."""
    made = []
    for service, method, path in client.descriptors.lists():
        name = f"{service.removeprefix('chainguard.platform.')}/{method.name}"
        request = requests.get(name.replace("v2beta1", "v2"), {})
        variables = re.findall(r"\{(\w+)=\*+\}", path)
        parameters = {field: value for field, value in request.items() if field not in variables}
        query = urllib.parse.urlencode(parameters, doseq=True)
        if missing := set(variables) - set(request):
            raise SystemExit(f"{name} {path}: {missing} is not in `required`")
        for field in variables:
            path = re.sub(rf"\{{{field}=\*+\}}", urllib.parse.quote(request[field], safe=""), path)
        made.append(client.case(name, service, method.name, request, ("GET", f"{path}?{query}")))
    org = client.server.organization
    repos, groups = "chainguard.platform.registry.v2.ReposService", "chainguard.platform.iam.v2.GroupsService"
    create = {"parent": org, "repo": {"name": "Größe \u2028"}}
    rest = ("POST", f"/registry/v2/repos/{org}", create["repo"])
    made.append(client.case("BadRequest", repos, "CreateRepo", create, rest))
    missing = f"{org}/0123456789abcdef"
    rest = ("GET", f"/registry/v2/repos/{missing}")
    made.append(client.case("ResourceInfo", repos, "GetRepo", {"uid": missing}, rest))
    create = {"parent": org, "repo": {"name": "imported"}}
    rest = ("POST", f"/registry/v2/repos/{org}", create["repo"])
    made.append(client.case("ResourceInfo of another", repos, "CreateRepo", create, rest))
    # With one kind in the way: the entries of a map have no order within the bytes of an `Any`, which are compared.
    parent = client.server.call("POST", f"/iam/v2/groups/{org}", {"name": "parent"})["uid"]
    client.server.call("POST", f"/iam/v2/groups/{parent}", {"name": "child"})
    rest = ("DELETE", f"/iam/v2/groups/{parent}")
    made.append(client.case("PreconditionFailure", groups, "DeleteGroup", {"uid": parent}, rest))
    return made


# The programs that each needs, and what builds it and returns its command.
RUNTIMES: dict[str, tuple[list[str], Callable[[], list]]] = {
    "python": ([], lambda: [sys.executable, PROGRAMS.source / "reader.py"]),
    "typescript": (["npm", "node"], lambda: PROGRAMS.node("reader")),
    "go": (["go"], lambda: PROGRAMS.go("reader", LIBRARY)),
    "java": (["java", "mvn"], lambda: PROGRAMS.java("Reader")),
}


def main() -> None:
    with tempfile.TemporaryDirectory() as work, contextlib.ExitStack() as stack:
        work = pathlib.Path(work)
        server = stack.enter_context(running("--allow-http-sinks", "--allow-private-sinks"))
        channel = stack.enter_context(grpc.insecure_channel(server.url.removeprefix("http://")))
        repo = prepare(server)
        descriptors = Descriptors(channel)
        made = cases(Client(server, channel, descriptors), required(server.organization, repo))
        files = descriptor_pb2.FileDescriptorSet(file=descriptors.files.values())
        (work / "descriptors.binpb").write_bytes(files.SerializeToString())
        (work / "cases.json").write_text(json.dumps(made))
        full = sum(any(isinstance(value, list) and value for value in json.loads(one["json"]).values()) for one in made)
        assert full >= 40, f"only {full} of {len(made)} messages have elements"
        first = None
        for name in os.environ.get("PLATFORM_PROTOBUF", "python,typescript,go").split(","):
            programs, build = RUNTIMES[name]
            missing = lacking(programs)
            if missing:
                print(f"NOT RUN: the protobuf runtime of {name}: {', '.join(missing)} is not installed")
                continue
            done = subprocess.run([*build(), work], stdout=subprocess.PIPE, text=True, check=True)
            lines = [json.loads(line) for line in done.stdout.strip().split("\n")]
            assert [line["name"] for line in lines] == [one["name"] for one in made], name
            for line, one in zip(lines, made):
                assert line["equal"], f"{name}: {line} is not {one}"
            first = first or lines
            for line, one in zip(lines, first):
                assert line["message"] == one["message"], f"{name}: {line} is not {one}"
            print(f"the protobuf runtime of {name} reads {len(lines)} messages equally from JSON and binary")


if __name__ == "__main__":
    main()
