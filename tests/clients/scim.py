"""Checks the SCIM endpoint with scim2-tester, which compares the replies to scim2-client with RFC 7643 and RFC 7644.

Fails if a check fails that is not in `EXCEPTIONS`, and if one of these passes.
"""

import time

import httpx2
from scim2_client.engines.httpx2 import SyncSCIMClient
from scim2_tester import Status, check_server
from server import Server, running

# What the server does differently, by the check and a part of its reason.
EXCEPTIONS = {
    # The server keeps one address, and shows it as primary and of type "work"; /Schemas announces both as read-only.
    # The tester compares the whole value with the one that it sent, which has neither.
    ("check_add_attribute", "'emails'"),
    ("check_replace_attribute", "'emails'"),
    # A user without `active` is one who cannot sign in, which the server shows as false and not as absent.
    ("check_remove_attribute", "'active'"),
}


def directory(server: Server) -> tuple[str, str]:
    """Creates an identity provider with SCIM enabled. Returns its endpoint and token."""
    organization = server.organization
    # Enabling SCIM requires two owners.
    claims = {"issuer": "https://issuer.example.com", "subject": "second"}
    second = server.call("POST", f"/iam/v2/identities/{organization}", {"name": "second", "claimMatch": claims})
    roles = {name: server.call("GET", f"/iam/v2/roles?name={name}")["roles"][0]["uid"] for name in ("owner", "viewer")}
    binding = {"identityUid": second["uid"], "roleUid": roles["owner"]}
    server.call("POST", f"/iam/v2/roleBindings/{organization}", binding)
    oidc = {"issuer": "https://issuer.example.com", "clientId": "client", "pkceEnabled": True}
    body = {"name": "directory", "defaultRole": roles["viewer"], "oidc": oidc}
    uid = server.call("POST", f"/iam/v2/identityProviders/{organization}", body)["uid"]
    token = server.call("POST", f"/iam/v2/identityProviders/{uid}:generateScimToken", {})
    enable = {"enabled": True, "etag": token["etag"]}
    server.call("POST", f"/iam/v2/identityProviders/{uid}:setScimEnabled", enable)
    return token["endpointUrl"], token["token"]


def exception(result) -> tuple[str, str] | None:
    """Returns the exception that a failed check is, if it is one."""
    return next((one for one in EXCEPTIONS if one[0] == result.title and one[1] in result.reason), None)


def main() -> None:
    started = time.monotonic()
    with running() as server:
        endpoint, token = directory(server)
        with httpx2.Client(base_url=endpoint, headers={"Authorization": f"Bearer {token}"}, timeout=30) as http:
            results = check_server(SyncSCIMClient(http))
    passed = [one for one in results if one.status in (Status.SUCCESS, Status.COMPLIANT, Status.ACCEPTABLE)]
    failed = [one for one in results if one not in passed]
    unexpected = [one for one in failed if not exception(one)]
    for one in unexpected:
        print(f"{one.status.name} {one.title}: {one.reason}")
    if unexpected:
        raise SystemExit(f"{len(unexpected)} of {len(results)} checks failed")
    if unused := EXCEPTIONS - {exception(one) for one in failed}:
        raise SystemExit(f"no longer exceptions: {sorted(unused)}")
    titles = {one.title for one in passed}
    missing = {"search_with_attributes", "check_replace_attribute", "object_replacement"} - titles
    if missing:
        raise SystemExit(f"did not run: {sorted(missing)}")
    seconds = time.monotonic() - started
    print(f"scim2-tester: {len(passed)} checks passed, {len(failed)} documented exceptions, {seconds:.1f} s")


main()
