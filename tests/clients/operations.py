"""schemathesis calls every operation of the document, well and badly: no 5xx, no undocumented status or body.

`PLATFORM_REQUESTS` says how many requests are sent at least: 5,000 unless it is set. `PLATFORM_SEED` repeats a run.
"""

import json
import os
import pathlib
import random
import re
import subprocess
import sys
import tempfile

from server import Server, operations, running

# Methods that are not declared are tests of platform-http: a POST without a parent is refused by 400 and not by 405.
CHECKS = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_headers_conformance",
    "response_schema_conformance",
)

# One is always refused, with 501; the others would end the token, or the caller, that all the rest need.
LEFT_OUT = ("GetHeadlessSession", "EndSignIns", "Delete")


def resources(server: Server) -> dict[str, list[str]]:
    """Creates one resource of the kinds that others hang in; returns uids by their collections."""
    organisation = server.organisation
    uids = {"": [organisation], "groups": [organisation]}
    # What stands from the start is the operator and what it may do.
    bindings = server.call("GET", "/iam/v2/roleBindings")["roleBindings"]
    uids["kept"] = [uid for one in bindings for uid in (one["uid"], one["identityUid"])]
    for collection, parent, body in (
        ("iam/v2/groups", organisation, {"name": "folder"}),
        ("iam/v2/roles", organisation, {"name": "reader", "capabilities": ["CAP_REPO_LIST"]}),
        (
            "iam/v2/identities",
            organisation,
            {"name": "ci", "claimMatch": {"issuer": "https://issuer.example.com", "subject": "ci"}},
        ),
        ("registry/v2/repos", organisation, {"name": "nginx"}),
    ):
        made = server.call("POST", f"/{collection}/{parent}", body)
        uids.setdefault(collection.rsplit("/", 1)[1], []).append(made["uid"])
    tag = {"name": "latest", "digest": "sha256:" + "0" * 64}
    uids["tags"] = [server.call("POST", f"/registry/v2/tags/{uids['repos'][0]}", tag)["uid"]]
    binding = {"identityUid": uids["identities"][0], "roleUid": uids["roles"][0]}
    uids["roleBindings"] = [server.call("POST", f"/iam/v2/roleBindings/{organisation}", binding)["uid"]]
    return uids


def answered(server: Server) -> list[int]:
    """Returns the statuses of all requests that the server has answered, from its log."""
    plain = re.sub(r"\x1b\[[0-9;]*m", "", server.log.read_text())
    return [int(status) for status in re.findall(r"answered status=(\d+)", plain)]


def main() -> None:
    wanted = int(os.environ.get("PLATFORM_REQUESTS", "5000"))
    seed = int(os.environ.get("PLATFORM_SEED", random.randrange(1 << 32)))
    print(f"at least {wanted} requests, seed {seed}", flush=True)
    with running() as server, tempfile.TemporaryDirectory() as folder:
        uids = pathlib.Path(folder) / "uids.json"
        uids.write_text(json.dumps(resources(server)))
        count = operations(server.call("GET", "/openapi.json"))
        phases = "examples,coverage,fuzzing,stateful"
        while (sent := len(answered(server))) < wanted:
            each = max(1, (wanted - sent) // count)
            command = [
                sys.executable, "-m", "schemathesis.cli", "run", f"{server.url}/openapi.json",
                "--header", f"Authorization: Bearer {server.token}",
                # A delete then answers JSON, as the document says.
                "--header", "Accept: application/json",
                "--checks", ",".join(CHECKS),
                *(word for one in LEFT_OUT for word in ("--exclude-operation-id", one)),
                "--phases", phases,
                "--max-examples", str(each),
                "--seed", str(seed),
                "--generation-database", "none",
                "--generation-allow-x00", "true",
                "--generation-with-security-parameters", "false",
                "--suppress-health-check", "all",
                "--request-timeout", "20",
                "--warnings", "off",
                "--continue-on-failure",
                "--no-color",
            ]
            env = {**os.environ, "SCHEMATHESIS_HOOKS": "hooks", "PLATFORM_UIDS": str(uids)}
            if subprocess.run(command, env=env).returncode:
                raise SystemExit(f"faults were found; PLATFORM_SEED={seed} repeats them")
            # The cases of these two are the same each time.
            phases, seed = "fuzzing,stateful", seed + 1
        statuses = answered(server)
        # Else the operator has lost its powers on the way, and most requests tested nothing.
        server.call("GET", "/iam/v2/groups")
    counts = {status: statuses.count(status) for status in sorted(set(statuses))}
    print(f"{len(statuses)} requests: " + ", ".join(f"{count} of {status}" for status, count in counts.items()))
    if any(status >= 500 for status in statuses):
        raise SystemExit("the server had a fault")


if __name__ == "__main__":
    main()
