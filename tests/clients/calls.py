"""Calls the API with grpcio and stubs generated from our .proto files, and compares the results with REST."""

import contextlib
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import urllib.error

import grpc
import jwt
import retried_calls
from google.protobuf import field_mask_pb2, json_format
from google.rpc import error_details_pb2
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase
from grpc_status import rpc_status
from server import ROOT, read_audit_log, running

PROTO = ROOT / "platform-core" / "proto"


def stubs(folder: str) -> None:
    """Generates the stubs and makes them importable. Uses the installed stubs for Google's own files."""
    ours = [str(file.relative_to(PROTO)) for part in ("chainguard", "contract") for file in PROTO.glob(f"{part}/**/*.proto")]
    generate = [sys.executable, "-m", "grpc_tools.protoc", f"-I{PROTO}", f"--python_out={folder}", f"--grpc_python_out={folder}"]
    subprocess.run([*generate, *sorted(ours)], check=True)
    sys.path.insert(0, folder)


def main() -> None:
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        stubs(folder)
        audit_log = pathlib.Path(folder) / "audit.log"
        # Each server needs an audit log of its own, and those of a fleet have the same options.
        is_audited = "PLATFORM_FLEET" not in os.environ
        server = stack.enter_context(running(*(["--audit-log", str(audit_log)] if is_audited else [])))
        address = server.url.removeprefix("http://")
        metadata = [("authorization", f"Bearer {server.token}"), ("cgrequestid", "a"), ("traceparent", "00-0-0-00")]
        with retried_calls.channel(address) as channel:
            walk(channel, metadata, server)
            exchange(channel, metadata, server)
            beta(channel, metadata, server)
            retried_calls.repeated(lambda: reflection_and_health(channel))
        if is_audited:
            audited(audit_log, server)
        certificate = create_certificate(pathlib.Path(folder))
        with running("--tls-cert", str(certificate), "--tls-key", str(certificate.with_suffix(".key"))) as server:
            secure(server, certificate)
    print("passed: lists, creates, updates, errors, tokens, v2beta1, reflection, health and TLS with grpcio")


def walk(channel, metadata, server) -> None:
    from chainguard.platform.common import uidp_pb2
    from chainguard.platform.iam.v2 import groups_pb2, groups_pb2_grpc, identities_pb2, identities_pb2_grpc
    from chainguard.platform.iam.v2 import role_bindings_pb2, role_bindings_pb2_grpc, roles_pb2, roles_pb2_grpc
    from chainguard.platform.registry.v2 import repos_pb2, repos_pb2_grpc, tags_pb2, tags_pb2_grpc

    org = server.organization
    groups = groups_pb2_grpc.GroupsServiceStub(channel)
    repos = repos_pb2_grpc.ReposServiceStub(channel)
    tags = tags_pb2_grpc.TagsServiceStub(channel)
    identities = identities_pb2_grpc.IdentitiesServiceStub(channel)
    bindings = role_bindings_pb2_grpc.RoleBindingsServiceStub(channel)
    roles = roles_pb2_grpc.RolesServiceStub(channel)

    folder = groups.CreateGroup(
        groups_pb2.CreateGroupRequest(parent=org, group=groups_pb2.Group(name="team")), metadata=metadata
    )
    names = [f"repo-{number:03}" for number in range(120)]
    for name in names:
        repo = repos_pb2.Repo(name=name)
        repos.CreateRepo(repos_pb2.CreateRepoRequest(parent=folder.uid, repo=repo), metadata=metadata)

    # Reads all pages, like the iterator of a client.
    found, token = [], ""
    while True:
        request = repos_pb2.ListReposRequest(
            uidp=uidp_pb2.UIDPFilter(descendants_of=org), order_by="name", page_size=50, page_token=token
        )
        page = repos.ListRepos(request, metadata=metadata)
        assert page.total_count == len(names), page.total_count
        found += [repo.name for repo in page.repos]
        token = page.next_page_token
        if not token:
            break
    assert found == names, found

    # REST returns the same list.
    path = f"/registry/v2/repos?uidp.descendants_of={org}&order_by=name&page_size=200"
    over_rest = server.call("GET", path)["repos"]
    page = repos.ListRepos(repos_pb2.ListReposRequest(order_by="name", page_size=200), metadata=metadata)
    assert [json_format.MessageToDict(repo)["uid"] for repo in page.repos] == [repo["uid"] for repo in over_rest]

    # Updates with a mask, and without one, which updates the populated fields.
    repo = page.repos[0]
    mask = field_mask_pb2.FieldMask(paths=["description"])
    changed = repos_pb2.Repo(uid=repo.uid, name="ignored", description="a web server")
    updated = repos.UpdateRepo(repos_pb2.UpdateRepoRequest(repo=changed, update_mask=mask), metadata=metadata)
    assert (updated.name, updated.description) == (repo.name, "a web server")
    assert updated.create_time == repo.create_time and updated.update_time.ToMilliseconds() > 0
    changed = repos_pb2.Repo(uid=repo.uid, catalog_tier=repos_pb2.CATALOG_TIER_BASE)
    updated = repos.UpdateRepo(repos_pb2.UpdateRepoRequest(repo=changed), metadata=metadata)
    assert (updated.description, updated.catalog_tier) == ("a web server", repos_pb2.CATALOG_TIER_BASE)
    assert server.call("GET", f"/registry/v2/repos/{repo.uid}")["catalogTier"] == "CATALOG_TIER_BASE"

    digest = "sha256:" + "0" * 64
    tag = tags_pb2.Tag(name="latest", digest=digest, deprecated=True)
    tags.CreateTag(tags_pb2.CreateTagRequest(parent=repo.uid, tag=tag), metadata=metadata)
    uidp = uidp_pb2.UIDPFilter(children_of=repo.uid)
    listed = tags.ListTags(tags_pb2.ListTagsRequest(uidp=uidp), metadata=metadata).tags
    assert [(one.name, one.digest, one.deprecated) for one in listed] == [("latest", digest, True)]

    # Creates an identity, finds the built-in role by name, and creates a binding, whose response has all three.
    match = identities_pb2.Identity.ClaimMatch(issuer="https://issuer.example.com", subject="me", claims={"a": "b"})
    identity = identities_pb2.Identity(name="ci", claim_match=match)
    request = identities_pb2.CreateIdentityRequest(parent=org, identity=identity)
    identity = identities.CreateIdentity(request, metadata=metadata)
    assert identity.claim_match == match and identity.HasField("last_seen_time")
    viewer = roles.ListRoles(roles_pb2.ListRolesRequest(name="viewer"), metadata=metadata).roles[0]
    binding = role_bindings_pb2.RoleBinding(identity_uid=identity.uid, role_uid=viewer.uid)
    request = role_bindings_pb2.CreateRoleBindingRequest(parent=org, role_binding=binding)
    binding = bindings.CreateRoleBinding(request, metadata=metadata)
    assert (binding.identity.name, binding.role.name, binding.group.uid) == ("ci", "viewer", org)
    bindings.DeleteRoleBinding(role_bindings_pb2.DeleteRoleBindingRequest(uid=binding.uid), metadata=metadata)

    # Errors with their details.
    bad = identities_pb2.CreateIdentityRequest(parent=org, identity=identities_pb2.Identity(name="Bad Name"))
    code, details = rejected(lambda: identities.CreateIdentity(bad, metadata=metadata))
    assert code == grpc.StatusCode.INVALID_ARGUMENT
    assert details["ErrorInfo"].reason == "INVALID_ARGUMENT" and details["ErrorInfo"].domain.startswith("iam.")
    assert [one.field for one in details["BadRequest"].field_violations][0] == "name"
    code, details = rejected(lambda: groups.DeleteGroup(groups_pb2.DeleteGroupRequest(uid=folder.uid), metadata=metadata))
    assert code == grpc.StatusCode.FAILED_PRECONDITION
    assert details["PreconditionFailure"].violations[0].type == "RESOURCE_NOT_EMPTY"
    missing = repos_pb2.GetRepoRequest(uid=f"{org}/{'0' * 16}")
    code, details = rejected(lambda: repos.GetRepo(missing, metadata=metadata))
    assert code == grpc.StatusCode.NOT_FOUND and details["ResourceInfo"].resource_name == missing.uid
    assert details["ResourceInfo"].resource_type.endswith("/Repo")
    code, _ = rejected(lambda: repos.GetRepo(missing))
    assert code == grpc.StatusCode.UNAUTHENTICATED

    assert repos.DeleteRepo(repos_pb2.DeleteRepoRequest(uid=repo.uid), metadata=metadata).ByteSize() == 0
    try:
        server.call("GET", f"/registry/v2/repos/{repo.uid}")
        raise AssertionError("the repo is still there")
    except urllib.error.HTTPError as error:
        assert error.code == 404, error


def rejected(call):
    """Makes a call that must fail. Returns its status code, and its error details by type name."""
    try:
        call()
    except grpc.RpcError as error:
        status = rpc_status.from_call(error)
        details = {}
        for detail in status.details if status else []:
            name = detail.TypeName().rsplit(".", 1)[-1]
            message = getattr(error_details_pb2, name)()
            assert detail.Unpack(message)
            details[name] = message
        return error.code(), details
    raise AssertionError("the call did not fail")


def audited(log: pathlib.Path, server) -> None:
    """The audit log has the calls that write, exchange a token or are denied, and no others."""
    text = read_audit_log(log)
    entries = [entry for entry in map(json.loads, text.splitlines()) if entry["transport"] == "grpc"]
    assert {entry["event"] for entry in entries} == {"write", "exchange", "denied"}, entries
    for entry in entries:
        assert entry["request"].startswith("POST /chainguard.platform.") and entry["requestId"] and entry["time"], entry
    by_code = {(entry["method"], entry["code"]): entry for entry in entries}
    created = by_code["ReposService.CreateRepo", "OK"]
    caller = jwt.decode(server.token, options={"verify_signature": False})
    assert (created["identity"], created["token"]) == (caller["sub"], caller["jti"]), created
    assert created["changed"][0]["put"][0] == "Repo", created
    assert any("deleted" in change for change in by_code["ReposService.DeleteRepo", "OK"]["changed"])
    denied = by_code["ReposService.GetRepo", "UNAUTHENTICATED"]
    assert denied["event"] == "denied" and "identity" not in denied, denied
    [issued] = [entry["issued"] for entry in entries if entry["event"] == "exchange" and entry["code"] == "OK"]
    assert issued["upstream"]["jti"] == caller["jti"] and issued["token"] != caller["jti"], issued
    reads = [entry for entry in entries if entry["method"].split(".")[1].startswith(("Get", "List", "Validate"))]
    assert all(entry["event"] == "denied" for entry in reads), reads
    assert "eyJ" not in text, "a token is in the audit log"


def exchange(channel, metadata, server) -> None:
    from chainguard.platform.auth import auth_pb2_grpc
    from chainguard.platform.oidc import security_token_pb2, security_token_pb2_grpc
    from google.protobuf import empty_pb2

    # Exchanges a token for one with fewer capabilities, which is then sent without `Bearer`, like the contents of token files.
    tokens = security_token_pb2_grpc.SecurityTokenServiceStub(channel)
    request = security_token_pb2.ExchangeRequest(aud=[server.url], cap=["groups.list"])
    token = tokens.Exchange(request, metadata=metadata)
    assert token.token.count(".") == 2 and token.expiry.seconds > 0
    caller = auth_pb2_grpc.AuthStub(channel).Validate(empty_pb2.Empty(), metadata=[("authorization", token.token)])
    assert caller.issuer == server.url and list(caller.audience) == [server.url]
    held = {one.group.id: (one.role.name, list(one.capabilities)) for one in caller.capabilities}
    assert held[server.organization] == ("", ["groups.list"]), held
    code, details = rejected(lambda: tokens.Exchange(security_token_pb2.ExchangeRequest(), metadata=metadata))
    assert code == grpc.StatusCode.INVALID_ARGUMENT
    assert details["BadRequest"].field_violations[0].description == "Audience must be specified"


def beta(channel, metadata, server) -> None:
    """Calls v2beta1, whose packages have the same messages as v2."""
    from chainguard.platform.iam.v2 import groups_pb2

    get = channel.unary_unary(
        "/chainguard.platform.iam.v2beta1.GroupsService/GetGroup",
        request_serializer=groups_pb2.GetGroupRequest.SerializeToString,
        response_deserializer=groups_pb2.Group.FromString,
    )
    group = get(groups_pb2.GetGroupRequest(uid=server.organization), metadata=metadata)
    assert group.uid == server.organization and group.name


def reflection_and_health(channel) -> None:
    """Lists services by reflection, like tools without .proto files, and checks health."""
    database = ProtoReflectionDescriptorDatabase(channel)
    services = set(database.get_services())
    for version in ("v2", "v2beta1"):
        assert f"chainguard.platform.iam.{version}.GroupsService" in services, services
    file = database.FindFileContainingSymbol("chainguard.platform.registry.v2beta1.ReposService")
    assert file.name == "chainguard/platform/registry/v2beta1/repos.proto", file.name
    health = health_pb2_grpc.HealthStub(channel)
    reply = health.Check(health_pb2.HealthCheckRequest(service="chainguard.platform.iam.v2.GroupsService"))
    assert reply.status == health_pb2.HealthCheckResponse.SERVING


def create_certificate(folder: pathlib.Path) -> pathlib.Path:
    """Creates a certificate for this machine, with its key in the same directory."""
    certificate = folder / "server.pem"
    command = "openssl req -x509 -newkey rsa:2048 -nodes -days 1 -subj /CN=localhost -addext subjectAltName=IP:127.0.0.1"
    files = ["-keyout", certificate.with_suffix(".key"), "-out", certificate]
    subprocess.run([*command.split(), *files], check=True, capture_output=True)
    return certificate


def secure(server, certificate: pathlib.Path) -> None:
    """Calls the server over TLS with a client that trusts the certificate."""
    from chainguard.platform.iam.v2 import groups_pb2, groups_pb2_grpc

    assert server.url.startswith("https://127.0.0.1:"), server.url
    credentials = grpc.ssl_channel_credentials(certificate.read_bytes())
    with retried_calls.channel(server.url.removeprefix("https://"), credentials) as channel:
        request = groups_pb2.GetGroupRequest(uid=server.organization)
        metadata = [("authorization", f"Bearer {server.token}")]
        assert groups_pb2_grpc.GroupsServiceStub(channel).GetGroup(request, metadata=metadata).uid == server.organization


if __name__ == "__main__":
    main()
