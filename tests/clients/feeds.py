"""Reads feeds of advisories with the libraries of scanners, and compares what they know with the advisories.

- OSV: the published JSON schema, Python's and Go's readers of zip archives, and the OSV source of trivy-db.
- secdb: the sources of trivy-db for Wolfi and Alpine, with a file for each package as vuln-list-update writes them.
- OpenVEX: go-vex validates each statement and matches it with installed versions.

For each package and vulnerability, a reader must have the fixed version, the denial or the open state that follows from the
advisory's events here. `DIFFERENCES` names what a reader does not take, with the reason. The libraries are pinned modules
of the Go proxy. NOT RUN without Go.

`PLATFORM_ADVISORIES` is an archive or a directory of advisory documents of Wolfi to compare instead of the fixture.
"""

import collections
import io
import json
import os
import pathlib
import re
import subprocess
import tempfile
import urllib.error
import urllib.request
import zipfile

import jsonschema
from programs import lacking, run
from sdk import go
from server import ROOT, Server, binary, running

SOURCE = pathlib.Path(__file__).resolve().parent / "feeds"
FOLDER = ROOT / "target" / "clients-feeds"
LIBRARIES = (
    "github.com/aquasecurity/trivy-db@v0.0.0-20260813095258-0e0340a01b57",
    "github.com/openvex/go-vex@v0.2.9",
)
SCHEMA = "github.com/ossf/osv-schema@v1.9.0"
NAMESPACE = "wolfi"

# The readers that leave out ids, and which ones they take.
DIFFERENCES = {
    "trivy-db wolfi": ("only ids of CVEs", lambda id: id.startswith("CVE-")),
    "trivy-db alpine": ("only ids of CVEs and of GitHub", lambda id: id.startswith(("CVE-", "GHSA-"))),
}


def event(day: int, **of_type: object) -> dict:
    return {
        "createTime": f"2026-01-{day:02}T00:00:00Z",
        "reviewState": "REVIEW_STATE_APPROVED",
        **of_type,
    }


def fixture() -> list[dict]:
    """Returns advisories of two packages in every state, with every kind of id."""
    fixed = {"fixed": {"fixedVersion": "3.1.0-r0"}}
    denied = {"falsePositiveDetermination": {"type": "TYPE_VULNERABLE_CODE_NOT_INCLUDED_IN_PACKAGE", "note": "No."}}
    contested = {"falsePositiveDetermination": {"type": "TYPE_VULNERABILITY_RECORD_ANALYSIS_CONTESTED"}}
    open_states = ("detection", "truePositiveDetermination", "pendingUpstreamFix", "fixNotPlanned", "analysisNotPlanned")
    histories = [
        [fixed],
        [{"detection": {"manual": {}}}, fixed, {"fixed": {"fixedVersion": "3.0.9-r0"}}],
        [{"fixed": {"fixedVersion": "0"}}],
        [fixed, denied],
        [contested],
        *([fixed, {state: {"note": "A note."} if state != "detection" else {"manual": {}}}] for state in open_states),
        *([{state: {"manual": {}} if state == "detection" else {}}] for state in open_states),
    ]
    aliases = (["CVE-2026-{}"], ["GHSA-2222-2222-{}", "CVE-2026-{}"], ["GHSA-3333-3333-{}"], [])
    made = []
    for name in ("openssl", "libstdc++"):
        for history in histories:
            for of_one in aliases:
                number = f"{len(made) + 1000}"
                made.append(
                    {
                        "advisoryId": f"CGA-2222-2222-{number}",
                        "artifactName": name,
                        "packageNamespace": NAMESPACE,
                        "aliases": [alias.format(number) for alias in of_one],
                        "events": [event(day + 1, **one) for day, one in enumerate(history)],
                    }
                )
    return made


def fetch(server: Server, path: str, etag: str | None = None) -> tuple[int, bytes, str]:
    headers = {"Authorization": f"Bearer {server.token}", **({"If-None-Match": etag} if etag else {})}
    try:
        with urllib.request.urlopen(urllib.request.Request(server.url + path, headers=headers), timeout=600) as reply:
            assert reply.headers["Cache-Control"] == "private, no-cache", dict(reply.headers)
            return reply.status, reply.read(), reply.headers["ETag"]
    except urllib.error.HTTPError as error:
        return error.code, error.read(), error.headers["ETag"]


def put(server: Server) -> None:
    """Puts the advisories into the first organization."""
    real = os.environ.get("PLATFORM_ADVISORIES")
    if real:
        command = [binary(), "import", "advisories", "--group", server.organization, "--namespace", NAMESPACE, real]
        env = {**os.environ, "PLATFORM_API": server.url, "PLATFORM_TOKEN": server.token}
        subprocess.run(command, env=env, check=True)
        return
    lines = "".join(json.dumps(one) + "\n" for one in fixture())
    path = f"/import/advisories?parent={server.organization}"
    headers = {"Authorization": f"Bearer {server.token}"}
    with urllib.request.urlopen(urllib.request.Request(server.url + path, lines.encode(), headers, method="POST")) as reply:
        results = [json.loads(line) for line in reply]
    assert all("error" not in one and not one["refused"] for one in results), results


def states(server: Server) -> tuple[dict[tuple[str, str], str | None], dict[tuple[str, str], str]]:
    """Returns the state of each vulnerability of a package by the API: the fixed version, `0` for a denial, `None` if open.

    And the id of the advisory of each.
    """
    found, own, token = {}, {}, ""
    while True:
        page = server.call("GET", f"/vulnerabilities/v2/advisories?pageSize=200&pageToken={token}")
        for advisory in page["advisories"]:
            ids = [alias for alias in advisory.get("aliases", []) if alias.startswith("CVE-")]
            ids = ids or advisory.get("aliases", [])[:1] or [advisory["advisoryId"]]
            latest = max(reversed(advisory["events"]), key=lambda one: one["createTime"])
            state = "0" if "falsePositiveDetermination" in latest else latest.get("fixed", {}).get("fixedVersion")
            for id in ids:
                key = (advisory["artifactName"], id)
                assert key not in found, f"two advisories have {key}"
                found[key], own[key] = state, advisory["advisoryId"]
        token = page.get("nextPageToken", "")
        if not token:
            return found, own


def validate(archive: bytes) -> int:
    """Validates each record by the published schema, and returns their number."""
    details = subprocess.run([go(), "mod", "download", "-json", SCHEMA], capture_output=True, check=True, text=True)
    schema = json.loads((pathlib.Path(json.loads(details.stdout)["Dir"]) / "validation" / "schema.json").read_text())
    validator = jsonschema.Draft202012Validator(schema)
    with zipfile.ZipFile(io.BytesIO(archive)) as records:
        assert records.testzip() is None
        for name in records.namelist():
            record = json.loads(records.read(name))
            validator.validate(record)
            assert name == f"{record['id']}.json", name
        return len(records.namelist())


def read(folder: pathlib.Path, expected: dict) -> list[dict]:
    """Returns the answers of the Go libraries. Each version is asked for an installed one, and for an old one."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    (FOLDER / "main.go").write_text((SOURCE / "main.go").read_text())
    if not (FOLDER / "go.mod").exists():
        run(go(), "mod", "init", "example.com/feeds", cwd=FOLDER)
    run(go(), "get", *LIBRARIES, cwd=FOLDER)
    run(go(), "mod", "tidy", cwd=FOLDER)
    run(go(), "build", "-o", "feeds", ".", cwd=FOLDER)
    questions = "".join(f"{name}\t{id}\t{version}\n" for (name, id) in expected for version in versions(expected, name, id))
    done = subprocess.run([FOLDER / "feeds", folder, NAMESPACE], input=questions, stdout=subprocess.PIPE, text=True, check=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


def versions(expected: dict, name: str, id: str) -> tuple[str, str]:
    """Returns the versions about which go-vex is asked: that of the fix, and one before it."""
    return (expected[name, id] or "9.9.9-r9", "0.0.1-r0")


def compare(expected: dict, own: dict, answers: list[dict]) -> None:
    of_reader = collections.defaultdict(dict)
    for one in answers:
        of_reader[one["reader"].split()[0] if one["reader"].startswith("go-vex") else one["reader"]][
            one["package"], one["id"], one["reader"].partition(" ")[2]
        ] = one["answer"]
    wrong = 0

    def check(reader: str, about: dict, found: dict) -> None:
        nonlocal wrong
        reason, is_read = DIFFERENCES.get(reader, ("", lambda id: True))
        left = {key for key in about if not is_read(key[1])}
        differences = [
            (key, about.get(key), found.get(key))
            for key in about.keys() | found.keys()
            if about.get(key) != found.get(key) and not (key in left and key not in found)
        ]
        for difference in sorted(differences, key=str)[:10]:
            print(f"{reader}: {difference}")
        wrong += len(differences)
        named = f", {len(left)} left out: {reason}" if left else ""
        print(f"{reader}: {len(found)} answers about {len(about)} vulnerabilities of packages, {len(differences)} differences{named}")

    closed = {key: version for key, version in expected.items() if version is not None}
    for reader in ("trivy-db wolfi", "trivy-db alpine"):
        check(reader, closed, {key[:2]: answer for key, answer in of_reader[reader].items()})
    # It names a record without a CVE by its id, and not by its first alias.
    ranges = {
        (name, id if id.startswith("CVE-") else own[name, id]): ">=0" if version is None else f"<{version}"
        for (name, id), version in expected.items()
    }
    check("trivy-db osv", ranges, {key[:2]: answer for key, answer in of_reader["trivy-db osv"].items()})
    # A statement about a fixed version says nothing about others. A denial is about all.
    about = {}
    for (name, id), version in expected.items():
        fixed, old = versions(expected, name, id)
        denied = of_reader["go-vex"].get((name, id, old)) == "not_affected"
        about[name, id, fixed] = "open" if version is None else "not_affected" if version == "0" and denied else "fixed"
        about[name, id, old] = "open" if version is None else "not_affected" if version == "0" and denied else "none"
    status = {"affected": "open", "under_investigation": "open"}
    check("go-vex", about, {key: status.get(answer, answer) for key, answer in of_reader["go-vex"].items()})
    assert not wrong, f"{wrong} differences"


def main() -> None:
    if lacking(["go"]):
        print("NOT RUN: feeds: go is not installed")
        return
    with running() as server, tempfile.TemporaryDirectory() as folder:
        put(server)
        expected, own = states(server)
        counts = collections.Counter("open" if one is None else "denied" if one == "0" else "fixed" for one in expected.values())
        print(f"{len(expected)} vulnerabilities of packages: {dict(counts)}")
        folder = pathlib.Path(folder)
        for format, name in (("osv", "osv.zip"), ("secdb", "secdb.json"), ("openvex", "openvex.json")):
            path = f"/feeds/{format}?group={server.organization}&namespace={NAMESPACE}"
            status, feed, etag = fetch(server, path)
            assert status == 200 and re.fullmatch(r'W/"[0-9a-f]+"', etag), (status, etag, feed[:500])
            assert fetch(server, path, etag)[0] == 304
            (folder / name).write_bytes(feed)
        print(f"schema of OSV: {validate((folder / 'osv.zip').read_bytes())} records")
        compare(expected, own, read(folder, expected))


if __name__ == "__main__":
    main()
