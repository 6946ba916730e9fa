"""Calls every operation of the document with valid and invalid input (schemathesis): no 5xx, no undocumented response.

`PLATFORM_REQUESTS` sets the minimum number of requests (default 5,000), and `PLATFORM_PHASES` the phases of the first run
of schemathesis (default: all). `PLATFORM_SEED` repeats a run.
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

# Undeclared methods are tested by platform-http: a POST without a parent is rejected with 400 instead of 405.
CHECKS = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_headers_conformance",
    "response_schema_conformance",
)

# They would invalidate the token or delete the caller of all other requests.
LEFT_OUT = ("EndSignIns", "RevokeTokens", "Delete")


def resources(server: Server) -> dict[str, list[str]]:
    """Creates one resource of each kind that others need as parent or reference. Returns uids by collection."""
    organization = server.organization
    uids = {"": [organization], "groups": [organization]}
    # The initial bindings are those of the operator.
    bindings = server.call("GET", "/iam/v2/roleBindings")["roleBindings"]
    uids["protected"] = [uid for one in bindings for uid in (one["uid"], one["identityUid"])]
    for collection, parent, body in (
        ("iam/v2/groups", organization, {"name": "folder"}),
        ("iam/v2/roles", organization, {"name": "reader", "capabilities": ["CAP_REPO_LIST"]}),
        (
            "iam/v2/identities",
            organization,
            {"name": "ci", "claimMatch": {"issuer": "https://issuer.example.com", "subject": "ci"}},
        ),
        ("registry/v2/repos", organization, {"name": "nginx"}),
    ):
        made = server.call("POST", f"/{collection}/{parent}", body)
        uids.setdefault(collection.rsplit("/", 1)[1], []).append(made["uid"])
    tag = {"name": "latest", "digest": "sha256:" + "0" * 64}
    uids["tags"] = [server.call("POST", f"/registry/v2/tags/{uids['repos'][0]}", tag)["uid"]]
    binding = {"identityUid": uids["identities"][0], "roleUid": uids["roles"][0]}
    uids["roleBindings"] = [server.call("POST", f"/iam/v2/roleBindings/{organization}", binding)["uid"]]
    return uids


def statuses_in_log(server: Server) -> list[int]:
    """Returns the statuses of all responses from the log of the server."""
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
        phases = os.environ.get("PLATFORM_PHASES", "examples,coverage,fuzzing,stateful")
        while (sent := len(statuses_in_log(server))) < wanted:
            each = max(1, (wanted - sent) // count)
            command = [
                sys.executable, "-m", "schemathesis.cli", "run", f"{server.url}/openapi.json",
                "--header", f"Authorization: Bearer {server.token}",
                # With this header a delete returns JSON, as documented.
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
                raise SystemExit(f"failures found; PLATFORM_SEED={seed} repeats them")
            # The other two phases have the same cases in each run.
            phases, seed = "fuzzing,stateful", seed + 1
        statuses = statuses_in_log(server)
        # Fails if the operator has lost its permissions during the run, so that most requests tested nothing.
        server.call("GET", "/iam/v2/groups")
    counts = {status: statuses.count(status) for status in sorted(set(statuses))}
    print(f"{len(statuses)} requests: " + ", ".join(f"{count} of {status}" for status, count in counts.items()))
    if any(status >= 500 for status in statuses):
        raise SystemExit("the server returned 5xx")


if __name__ == "__main__":
    main()
