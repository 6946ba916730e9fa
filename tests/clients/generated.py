"""Calls every operation of the OpenAPI document with two clients generated from it.

One is in Python (openapi-python-client, whose models reject a reply that lacks a required field or has a wrong type), the
other in TypeScript (openapi-ts, which validates every reply with Zod schemas). Both send `Accept: application/json`.
Without Node.js, only the first is tested, and NOT RUN is printed.
"""

import datetime
import enum
import importlib
import inspect
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import time
import types
import typing
import urllib.request

from server import ROOT, running

HERE = pathlib.Path(__file__).resolve().parent
FOLDER = ROOT / "target" / "clients-generated"

# Tags whose operations are not called, with the reason.
SKIPPED_TAGS = {
    "Scim": "SCIM clients have their own models, from RFC 7643",
    "Import": "bodies and replies are NDJSON, which the generators do not support",
    "Feeds": "replies are read by scanners, and one of them is a zip archive",
}


class ApiError(Exception):
    """A response other than a success."""

    def __init__(self, status: int, body: dict):
        super().__init__(f"{status} {body}")
        self.status = status
        self.body = body


def plain(name: str) -> str:
    """Returns a name in lower case and without punctuation, which the generators change."""
    return re.sub("[^a-z0-9]", "", name.lower())


def comparable(value: object) -> object:
    """Returns JSON with times in a comparable form."""
    if isinstance(value, dict):
        return {key: comparable(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [comparable(inner) for inner in value]
    if isinstance(value, str) and re.match(r"\d{4}-\d\d-\d\dT", value):
        return datetime.datetime.fromisoformat(value)
    return value


def run(*command: object, cwd: pathlib.Path) -> None:
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{command}: {done.stdout}{done.stderr}")


class PythonClient:
    """The client of openapi-python-client."""

    name = "openapi-python-client"

    def __init__(self, document: pathlib.Path):
        folder = FOLDER / "python"
        shutil.rmtree(folder, ignore_errors=True)
        config = FOLDER / "python.yaml"
        config.write_text("package_name_override: generated_client\npost_hooks: []\n")
        generate = [pathlib.Path(sys.executable).parent / "openapi-python-client", "generate", "--meta", "none"]
        files = ["--path", document, "--output-path", folder / "generated_client", "--config", config]
        run(*generate, *files, cwd=FOLDER)
        sys.path.insert(0, str(folder))
        files = (folder / "generated_client" / "api").glob("*/*.py")
        self.modules = {plain(file.stem): f"generated_client.api.{file.parent.name}.{file.stem}" for file in files}

    def connect(self, server) -> None:
        client = importlib.import_module("generated_client.client")
        headers = {"Accept": "application/json"}
        self.client = client.AuthenticatedClient(base_url=server.url, token=server.token, headers=headers)

    def call(self, operation: str, path: dict, query: dict, body: dict | None) -> dict:
        module = importlib.import_module(self.modules[plain(operation)])
        hints = typing.get_type_hints(module.sync_detailed)
        names = {plain(name): name for name in inspect.signature(module.sync_detailed).parameters}
        arguments = {}
        for name, value in {**path, **query}.items():
            argument = names[plain(name)]
            arguments[argument] = converted(hints[argument], value)
        if body is not None:
            model = next(one for one in alternatives(hints["body"]) if hasattr(one, "from_dict"))
            arguments["body"] = model.from_dict(body)
        response = module.sync_detailed(client=self.client, **arguments)
        raw = json.loads(response.content)
        if response.parsed is None:
            raise AssertionError(f"{operation}: the client does not know the response {response.status_code} {raw}")
        # A reply that is a plain value is not a model.
        known = response.parsed.to_dict() if hasattr(response.parsed, "to_dict") else response.parsed
        assert comparable(known) == comparable(raw), f"{operation}: read {known} of {raw}"
        if response.status_code != 200:
            raise ApiError(int(response.status_code), raw)
        return raw

    def close(self) -> None:
        pass


def alternatives(hint: object) -> tuple:
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        return typing.get_args(hint)
    return (hint,)


def converted(hint: object, value: object) -> object:
    """Converts a value to the type that the generated function expects."""
    for one in alternatives(hint):
        if typing.get_origin(one) is list and isinstance(value, list):
            return [converted(typing.get_args(one)[0], inner) for inner in value]
        if isinstance(one, type) and issubclass(one, enum.Enum):
            return one(value)
        if one is datetime.datetime:
            return datetime.datetime.fromisoformat(value)
    return value


class TypeScriptClient:
    """The client of openapi-ts, in a process of Node.js."""

    name = "openapi-ts with Zod"

    def __init__(self, document: pathlib.Path):
        folder = FOLDER / "typescript"
        folder.mkdir(parents=True, exist_ok=True)
        packages = (HERE / "ts" / "package.json").read_text()
        installed = folder / "package.json"
        if not installed.exists() or installed.read_text() != packages:
            installed.write_text(packages)
            run("npm", "install", "--silent", "--no-fund", "--no-audit", "--no-package-lock", cwd=folder)
        shutil.rmtree(folder / "client", ignore_errors=True)
        sdk = "{ name: '@hey-api/sdk', validator: { response: 'zod' } }"
        plugins = f"['@hey-api/client-fetch', '@hey-api/typescript', 'zod', {sdk}]"
        config = f"export default {{ input: {json.dumps(str(document))}, output: 'client', plugins: {plugins} }}"
        (folder / "openapi-ts.config.mjs").write_text(config)
        run("npx", "openapi-ts", cwd=folder)
        shutil.copy(HERE / "ts" / "main.ts", folder)
        bundle = ["--bundle", "--platform=node", "--format=esm", "--log-level=error", "--outfile=main.mjs"]
        run("npx", "esbuild", "main.ts", *bundle, cwd=folder)
        self.program = folder / "main.mjs"
        text = (folder / "client" / "sdk.gen.ts").read_text()
        self.functions = {plain(name): name for name in re.findall(r"^export const (\w+) =", text, flags=re.M)}

    def connect(self, server) -> None:
        env = {**os.environ, "API": server.url, "TOKEN": server.token}
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(["node", self.program], stdin=pipe, stdout=pipe, text=True, env=env)

    def call(self, operation: str, path: dict, query: dict, body: dict | None) -> dict:
        options = {"path": path, "query": query, "body": body, "operation": self.functions[plain(operation)]}
        self.process.stdin.write(json.dumps({key: value for key, value in options.items() if value}) + "\n")
        self.process.stdin.flush()
        outcome = json.loads(self.process.stdout.readline())
        if "thrown" in outcome:
            raise AssertionError(f"{operation}: {outcome['thrown']}")
        if outcome["status"] != 200:
            raise ApiError(outcome["status"], outcome["body"])
        return outcome["body"]

    def close(self) -> None:
        self.process.stdin.close()
        self.process.wait(timeout=30)


def schema_of(operation: dict) -> dict:
    """Returns the schema of the reply of an operation."""
    return operation["responses"].get("200", {}).get("content", {}).get("application/json", {}).get("schema", {})


def items_of(schema: dict) -> str:
    """Returns the reference to the elements of the only list of a reply."""
    [field] = schema["properties"].values()
    return field["items"]["$ref"]


class Walk:
    """Calls operations and records which ones."""

    def __init__(self, client, document: dict):
        self.client = client
        self.called: set[str] = set()
        self.operations = {}
        for path, methods in document["paths"].items():
            # Parameters shared by all methods of a path are a list.
            for operation in (one for one in methods.values() if isinstance(one, dict)):
                self.operations[operation["operationId"]] = (path, operation)
        # The batch get of each get, by the resource that both return.
        described = {name: schema_of(operation) for name, (_, operation) in self.operations.items()}
        batches = {items_of(schema): name for name, schema in described.items() if name.startswith("BatchGet")}
        gets = {name: schema.get("$ref") for name, schema in described.items() if name.startswith("Get")}
        self.batches = {name: batches[ref] for name, ref in gets.items() if ref in batches}

    def __call__(self, operation: str, *path: str, body: dict | None = None, **query: object) -> dict:
        """Calls an operation with its path variables in order, and query parameters with `__` for dots."""
        self.called.add(operation)
        template, described = self.operations[operation]
        if "requestBody" in described and body is None:
            body = {}
        names = re.findall(r"{(\w+)}", template)
        assert len(names) == len(path), f"{operation}: {names} {path}"
        query = {name.replace("__", "."): value for name, value in query.items()}
        try:
            reply = self.client.call(operation, dict(zip(names, path)), query, body)
        except ApiError as error:
            if operation in self.batches:
                self.fails(error.status, self.batches[operation], body={"uids": [*path]})
            raise
        if operation in self.batches:
            [[found]] = self(self.batches[operation], body={"uids": [*path]}).values()
            # The server changes some resources at any time, such as the status of a delivery.
            assert found == reply or reply != self.client.call(operation, dict(zip(names, path)), query, body), (found, reply)
        return reply

    def fails(self, status: int, operation: str, *path: str, **more: object) -> dict:
        """Calls an operation that must fail with this status. Returns the error that the client parsed."""
        try:
            response = self(operation, *path, **more)
        except ApiError as error:
            assert error.status == status, error
            return error.body
        raise AssertionError(f"{operation} did not fail: {response}")

    def expected(self) -> set[str]:
        return {name for name, (_, operation) in self.operations.items() if operation["tags"][0] not in SKIPPED_TAGS}


def imported(server, plural: str, parent: str, *resources: dict) -> None:
    """Imports data like `platform-server import --api`."""
    request = urllib.request.Request(
        f"{server.url}/import/{plural}" + (f"?parent={parent}" if parent else ""),
        data="".join(json.dumps(resource) + "\n" for resource in resources).encode(),
        headers={"Authorization": f"Bearer {server.token}"},
    )
    with urllib.request.urlopen(request, timeout=30) as reply:
        lines = [json.loads(line) for line in reply]
    assert all(not line.get("refused") and "error" not in line for line in lines), lines


def walk(call: Walk, server) -> None:
    """Calls every operation. Created resources are read, listed, updated and deleted."""
    org = server.organization
    call("Ping")
    call("Validate")
    call("GetOpenidConfiguration")
    call("GetOauthAuthorizationServer")
    call("GetJwks")
    call("GetLiveness")
    call("GetReadiness")
    call("GetStartup")
    iam(call, server, org)
    registry(call, server, org)
    data(call, server, org)
    events(call, org)
    tokens(call, server)
    others(call, org)


def others(call: Walk, org: str) -> None:
    """Calls the standard methods that have no calls of their own, of kinds in groups, with the document's examples."""
    for create in sorted(name for name in call.expected() - call.called if name.startswith("Create")):
        kind = create.removeprefix("Create")
        path, described = call.operations[create]
        body = described["requestBody"]["content"]["application/json"]["example"]
        uid = call(create, org, body=body)["uid"]
        collection = path.split("/{")[0]
        for name in [name for name, (path, _) in call.operations.items() if path == collection]:
            call(name)
        for name in (f"Get{kind}", f"Update{kind}", f"Delete{kind}"):
            if name in call.operations:
                call(name, uid, **({"body": body} if name.startswith("Update") else {}))


def iam(call: Walk, server, org: str) -> None:
    folder = call("CreateGroup", org, body={"name": "team", "description": "ours"})["uid"]
    other = call("CreateGroupWithoutParent", body={"name": "other"})["uid"]
    assert call("UpdateGroup", folder, body={"description": ""}, updateMask="description")["name"] == "team"
    call("GetGroup", folder)
    page = call("ListGroups", uidp__descendants_of=org, order_by="created_at desc", page_size=1, skip=0)
    assert page["totalCount"] == "2" and page["nextPageToken"], page
    assert "nextPageToken" not in call("ListGroups", uidp__descendants_of=org, order_by="created_at desc", page_token=page["nextPageToken"])
    call.fails(404, "LookupGroup")
    call("CheckEligibility")
    call.fails(404, "RequestGroupAccess", folder)
    call("ListGroupAccessRequests")
    call.fails(404, "GetGroupAccessRequest", f"{org}/{'0' * 16}")
    call.fails(404, "DeleteGroupAccessRequest", f"{org}/{'0' * 16}")

    match = {"issuer": "https://issuer.example.com", "subject": "me", "claims": {"a": "b"}}
    identity = call("CreateIdentity", org, body={"name": "ci", "claimMatch": match})["uid"]
    call("UpdateIdentity", identity, body={"description": "Builds images"})
    call("GetIdentity", identity)
    assert call("ListIdentities", name="ci", relationshipType="RELATIONSHIP_TYPE_CLAIM_MATCH")["totalCount"] == "1"
    assert call("RepairOwner", org, body={"identityUid": identity})["roleBinding"]["role"]["name"] == "owner"
    assert call("RevokeTokens", identity, body={"tokenId": "0" * 32})["endedSignIns"] == 0
    assert call("SetResourceLimit", org, body={"kind": "Role", "limit": 500})["group"]["resourceLimits"] == {"Role": 500}
    assert call("ListResourceLimits", org)["limits"][0]["limit"] == 500
    assert not call("RemoveResourceLimit", org, body={"kind": "Role"})["group"].get("resourceLimits")
    call("LookupIdentity", issuer="https://issuer.example.com", subject="me")
    call("UpdateIdentityMetadata", body={"identityMetadata": {"company": "Example"}})
    trend = call("CountAdvisories", uid=folder, days=2, state="FIXED")
    assert len(trend["days"]) == 2 and trend["days"][0]["unrated"] == 0, trend
    explained = call("ExplainAccess", uid=folder, identityUid=identity, capability="repo.list")
    assert explained["decision"] == "ALLOWED" and explained["complete"] is True, explained
    call("ListDirectoryUsers")
    call.fails(404, "GetDirectoryUser", f"{org}/{'0' * 16}/{'0' * 16}")
    call("EndSignIns", body={"identityUid": server.subject})

    # Checks that the client knows the capabilities of the built-in roles.
    viewer = call("ListRoles", name="viewer")["roles"][0]["uid"]
    assert int(call("ListRoles", page_size=200)["totalCount"]) > 5
    role = call("CreateRole", org, body={"name": "reader", "capabilities": ["CAP_REPO_LIST"]})["uid"]
    call("UpdateRole", role, body={"description": "Reads repos"})
    call("GetRole", role)
    binding = call("CreateRoleBinding", org, body={"identityUid": identity, "roleUid": viewer})["uid"]
    again = call.fails(409, "CreateRoleBinding", org, body={"identityUid": identity, "roleUid": viewer})
    assert again["details"][1]["resourceName"] == binding, again
    call("UpdateRoleBinding", binding, body={"roleUid": role})
    call("GetRoleBinding", binding)
    call("ListRoleBindings", identity=identity, group=org, role=role)
    batch = {"parent": folder, "roleUid": viewer, "requests": [{"roleBinding": {"identityUid": identity}}]}
    assert len(call("BatchCreateRoleBindings", body=batch)["roleBindings"]) == 1
    call("DeleteRoleBinding", binding)
    call.fails(404, "DeleteRoleBinding", binding)

    invite = call("CreateGroupInvite", org, body={"roleUid": viewer, "ttl": "3600s", "email": "ada@example.com"})
    assert invite["ttl"] is None and invite["code"], invite
    call("GetGroupInvite", invite["uid"])
    assert call("ListGroupInvites", keyId=invite["keyId"])["groupInvites"][0]["ttl"] is None
    call("DeleteGroupInvite", invite["uid"])

    oidc = {"issuer": "https://sso.example.com", "clientId": "platform", "pkceEnabled": True}
    provider = call("CreateIdentityProvider", org, body={"name": "sso", "oidc": oidc, "defaultRole": viewer})["uid"]
    call("UpdateIdentityProvider", provider, body={"description": "ours"})
    call("GetIdentityProvider", provider)
    call("ListIdentityProviders", name="sso")
    scim = call("GenerateScimToken", provider)
    scim = call("RegenerateScimToken", provider, body={"etag": scim["etag"], "overlap": "60s"})
    scim = call("SetScimEnabled", provider, body={"enabled": False, "etag": scim["etag"]})
    call("RevokeScimToken", provider, body={})
    mapping = {"externalGroupId": "admins", "roleUid": viewer, "scope": org}
    first = call("CreateExternalGroupRoleMapping", provider, body=mapping)["uid"]
    second = call("CreateExternalGroupRoleMapping", provider, body={**mapping, "externalGroupId": "others"})["uid"]
    call("GetExternalGroupRoleMapping", first)
    call("ListExternalGroupRoleMappings", identityProviderUid=provider)
    call("DeleteExternalGroupRoleMapping", first)
    call("BatchDeleteExternalGroupRoleMappings", body={"parent": provider, "names": [second]})
    call("DeleteIdentityProvider", provider)

    cloud = {"name": "cloud", "amazon": {"account": "123456789012"}, "azure": {"tenantId": "t", "clientIds": {"a": "b"}}}
    call("CreateAccountAssociation", folder, body=cloud)
    call("UpdateAccountAssociation", folder, body={"description": "ours"})
    call("GetAccountAssociation", folder)
    call("ListAccountAssociations", name="cloud")
    call("CheckAccountAssociation", folder, body={"providerType": "ACCOUNT_PROVIDER_TYPE_AMAZON"})
    call("DeleteAccountAssociation", folder)
    call.fails(404, "DeleteAccountAssociation", folder)
    call.fails(400, "AcceptTerms", folder, body={"documentIds": ["unknown"]})
    call("ListTermsAcceptances", folder)

    call("DeleteRole", role)
    call("DeleteIdentity", identity)
    call("DeleteGroup", folder)
    call("DeleteGroup", other)


def registry(call: Walk, server, org: str) -> None:
    overlay = {"contents": {"packages": ["curl"]}, "accounts": {"users": [{"username": "me", "uid": 1}]}}
    body = {"name": "base", "catalogTier": "CATALOG_TIER_BASE", "bundles": ["base"], "aliases": ["library/base:latest"]}
    source = call("CreateRepo", org, body=body)["uid"]
    repo = call("CreateRepo", org, body={"name": "mine", "syncConfig": {"source": source}, "customOverlay": overlay})
    assert repo["syncConfig"]["source"] == source, repo
    call("GetRepo", repo["uid"])
    [follower] = call("ListRepoFollowers", uidp__children_of=source)["repoFollowers"]
    assert call("GetRepoFollower", follower["uid"])["repoUid"] == repo["uid"], follower
    call("DeleteRepoFollower", follower["uid"])
    call("ListRepos", uidp__children_of=org, order_by="name desc", page_size=1)
    call("UpdateRepo", source, body={"description": "A base image"}, updateMask="description")
    call("UpdateRepoReadme", source, body={"content": "# base"})
    assert call("GetRepoReadme", source)["content"] == "# base"
    digest = "sha256:" + "1" * 64
    tag = call("CreateTag", source, body={"name": "latest", "digest": digest})["uid"]
    call("GetTag", tag)
    call("ListTags", uidp__children_of=source, digest=digest, includeDates=True)
    platform = {"architecture": "amd64", "digest": "sha256:" + "2" * 64, "size": "123"}
    imported(server, "images", source, {"digest": digest, "index": True, "platforms": [platform]})
    assert call("GetArchitectures", source, digest)["architectures"] == ["amd64"]
    assert call("GetSize", source, digest, architecture="amd64")["size"] == "123"
    assert call("ListImageSizes", repoUid=source, digest=digest)["sizes"][0]["size"] == "123"
    call("DeleteTag", tag)
    call("DeleteRepo", repo["uid"])
    call("DeleteRepo", source)


def data(call: Walk, server, org: str) -> None:
    # Fields that the source lacks are present in the reply, and empty.
    event = {"createTime": "2026-01-02T03:04:05Z", "reviewState": "REVIEW_STATE_APPROVED", "fixed": {"fixedVersion": "1"}}
    advisory = {"advisoryId": "CGA-3gfc-9462-mc8m", "artifactName": "openssl", "aliases": ["CVE-2022-4203"]}
    imported(server, "advisories", org, {**advisory, "events": [event]})
    severity = {"type": "TYPE_CVSS_V3", "score": "CVSS:3.1/AV:N/AC:H/PR:N/UI:R/S:U/C:N/I:N/A:H"}
    imported(server, "vulnerabilityMetadata", "", {"id": "CVE-2022-4203", "severities": [severity]})
    artifact = {"name": "requests", "ecosystem": "ECOSYSTEM_PYTHON", "latestVersion": "2.9.0", "versionCount": 1}
    imported(server, "artifacts", "", artifact)
    version = {"artifact": "python:requests", "name": "requests", "version": "2.9.0"}
    imported(server, "artifactVersions", "", version)

    found = call("ListAdvisories", artifactNames=["openssl"], latestEventType="EVENT_TYPE_FILTER_FIXED")["advisories"]
    assert found[0]["author"] == "" == found[0]["events"][0]["author"], found
    call("GetAdvisory", found[0]["uid"])
    call("ListDocuments")
    call("ListVulnerabilityMetadata", ids=["CVE-2022-4203"])
    times = {"startTime": "2026-01-01T00:00:00Z", "endTime": "2026-01-02T00:00:00Z"}
    assert len(call("ListResolvedVulnsReports", imageRefs=["nosuch"], **times)["resolvedVulnsReports"]) == 2
    call("ListArtifacts", ecosystems=["ECOSYSTEM_PYTHON"], query="req")
    call("ListArtifactVersions", "python:requests")
    call("GetArtifactCount", ecosystems=["ECOSYSTEM_PYTHON"])


def events(call: Walk, org: str) -> None:
    subscription = call("CreateSubscription", org, body={"sink": "https://sink.example.com/"})["uid"]
    call("GetSubscription", subscription)
    call("ListSubscriptions")
    # The status exists from the first event on, which is delivered asynchronously.
    group = call("CreateGroup", org, body={"name": "notified"})["uid"]
    until = time.monotonic() + 20
    while not call("ListDeliveryStatuses")["deliveryStatuses"] and time.monotonic() < until:
        pass
    call("GetDeliveryStatus", subscription)
    call("ResumeDelivery", subscription)
    assert int(call("GetBacklog", subscription)["waiting"]) >= 0
    sent = call("SendTestEvent", subscription)["eventId"]
    call("RedeliverEvent", subscription, body={"eventId": sent})
    call("DeleteGroup", group)
    call("ListDeliveries")
    call("ListDeadLetters")
    for operation in ("GetDelivery", "GetDeadLetter", "RedeliverDeadLetter"):
        call.fails(404, operation, f"{subscription}/{'0' * 16}")
    call("DeleteSubscription", subscription)


def tokens(call: Walk, server) -> None:
    assert call("Exchange", body={"aud": [server.url], "cap": ["groups.list"]})["token"]
    assert call("ExchangeByQuery", aud=[server.url])["token"]
    exchange = {
        "grantType": "urn:ietf:params:oauth:grant-type:token-exchange", "subjectToken": server.token,
        "subjectTokenType": "urn:ietf:params:oauth:token-type:access_token", "audience": [server.url],
    }
    assert call("OAuthToken", body=exchange)["access_token"]
    call.fails(400, "OAuthToken", body={"grantType": "refresh_token", "refreshToken": "unknown"})
    call.fails(401, "ExchangeRefreshToken", body={"aud": [server.url]})
    call.fails(404, "GetHeadlessSession", code="A" * 43)
    assert call("CheckOrganization", name="nobody.example") is False
    call.fails(401, "Register", body={"code": "unknown"})
    call.fails(403, "Delete", "0" * 40)


# The names of the operations of version 1 begin with the names of its services.
VERSION_1 = re.compile(r"V1[A-Z]")


def main() -> None:
    FOLDER.mkdir(parents=True, exist_ok=True)
    document = ROOT / "docs" / "openapi.json"
    kinds = [PythonClient]
    if shutil.which("npm"):
        kinds.append(TypeScriptClient)
    else:
        print("NOT RUN: Node.js is not installed, so the TypeScript client was not tested")
    for kind in kinds:
        client = kind(document)
        with running() as server:
            client.connect(server)
            server.subject = server.call("GET", "/auth/v1/ok")["subject"]
            call = Walk(client, json.loads(document.read_text()))
            try:
                walk(call, server)
            finally:
                client.close()
        # Version 1 has published clients of its own, whose calls terraform_calls.py makes.
        missing = {operation for operation in call.expected() - call.called if not VERSION_1.search(operation)}
        assert not missing, f"operations that are not called: {sorted(missing)}"
        print(f"{client.name}: {len(call.called)} operations called")


if __name__ == "__main__":
    main()
