"""Reads feeds of advisories with the libraries of scanners, and compares what they know with the advisories.

- OSV: the published JSON schema, Python's and Go's readers of zip archives, the OSV source of trivy-db, the library by
  which osv-scanner matches offline, and grype with a database of the records.
- secdb: the sources of trivy-db for Wolfi and Alpine, with a file for each package as vuln-list-update writes them, and
  grype with a database of the records that vunnel makes.
- OpenVEX: go-vex validates each statement and matches it with installed versions.

For each package and vulnerability, a reader must have the fixed version, the denial or the open state that follows from the
advisory's events here. `DIFFERENCES` names what a reader does not take, with the reason. The libraries are pinned modules
of the Go proxy, and a package of PyPI. NOT RUN without Go.

`PLATFORM_ADVISORIES` is an archive or a directory of advisory documents of Wolfi to compare instead of the fixture.
`PLATFORM_FEED_READERS` are the programs of readers: by default trivy (with go-vex) and osv-scanner. grype compiles for
minutes.
"""

import collections
import io
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request
import zipfile

import jsonschema
from programs import Programs, lacking, run
from sdk import go
from server import Server, binary, running

# The programs of readers, and their libraries.
READERS = {
    "trivy": ("github.com/aquasecurity/trivy-db@v0.0.0-20260813095258-0e0340a01b57", "github.com/openvex/go-vex@v0.2.9"),
    "osv-scanner": ("github.com/google/osv-scalibr@v0.5.3",),
    "grype": ("github.com/anchore/grype@v0.121.2",),
}
# The last one for Python 3.11.
VUNNEL = "vunnel==0.44.0"
SCHEMA = "github.com/ossf/osv-schema@v1.9.0"
NAMESPACE = "wolfi"

# Fixed versions of every form that those of Wolfi have.
VERSIONS = (
    "3.1.0-r0",
    "3.1.10-r10",
    "1.2-r0",
    "1.2.3.4-r1",
    "5.15.0.0.1-r0",
    "20260101-r2",
    "0_git20260102-r3",
    "1.9_git20260102-r0",
    "2.0.0_alpha3-r0",
    "2.0.0_beta20-r1",
    "2.0.0_rc1-r0",
    "2.0_p1-r0",
)

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
        *([{"fixed": {"fixedVersion": version}}] for version in VERSIONS),
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


def read(reader: str, folder: pathlib.Path, questions: set[tuple[str, ...]]) -> list[dict]:
    """Returns the answers of a program of Go libraries. A question is a line with its fields."""
    programs = Programs(f"feeds/{reader}")
    program = programs.go(reader, *READERS[reader])
    if reader == "grype":
        python = programs.folder / "vunnel" / "bin" / "python"
        if not python.exists():
            run(sys.executable, "-m", "venv", programs.folder / "vunnel", cwd=folder)
            run(python, "-m", "pip", "install", "--quiet", VUNNEL, cwd=folder)
        run(python, programs.source / "secdb.py", folder, NAMESPACE, cwd=folder)
    lines = "".join("\t".join(question) + "\n" for question in sorted(questions))
    done = subprocess.run([*program, folder, NAMESPACE], input=lines, stdout=subprocess.PIPE, text=True, check=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


def versions(expected: dict, name: str, id: str) -> tuple[str, str]:
    """Returns the versions about which go-vex is asked: that of the fix, and one before it."""
    return (expected[name, id] or "9.9.9-r9", "0.0.1-r0")


def before(version: str) -> str | None:
    """Returns a version that is just before this one: its last number above 0 is one less, and those after it are 99."""
    parts = re.split(r"(\d+)", version)
    for at in range(len(parts) - 2, 0, -2):
        if int(parts[at]):
            parts[at] = str(int(parts[at]) - 1).zfill(len(parts[at]) if parts[at].startswith("0") else 1)
            return "".join(parts)
        parts[at] = "99"
    return None


def installed(version: str | None) -> dict[str, bool]:
    """Returns installed versions, and whether each is affected by a vulnerability with this state."""
    if version in (None, "0"):
        return {"0.0.1-r0": version is None, "9.9.9-r9": version is None}
    earlier = before(version)
    return {version: False, **({earlier: True} if earlier else {})}


class Comparison:
    """Counts and prints how the answers of readers differ from the advisories."""

    def __init__(self) -> None:
        self.wrong = 0

    def check(self, reader: str, about: dict, found: dict) -> None:
        reason, is_read = DIFFERENCES.get(reader, ("", lambda id: True))
        left = {key for key in about if not is_read(key[1])}
        differences = [
            (key, about.get(key), found.get(key))
            for key in about.keys() | found.keys()
            if about.get(key) != found.get(key) and not (key in left and key not in found)
        ]
        for difference in sorted(differences, key=str)[:10]:
            print(f"{reader}: {difference}")
        self.wrong += len(differences)
        named = f", {len(left)} left out: {reason}" if left else ""
        print(f"{reader}: {len(found)} answers about {len(about)} vulnerabilities of packages, {len(differences)} differences{named}")


def compare_trivy(comparison: Comparison, expected: dict, own: dict, answers: list[dict]) -> None:
    of_reader = collections.defaultdict(dict)
    for one in answers:
        of_reader[one["reader"].split()[0] if one["reader"].startswith("go-vex") else one["reader"]][
            one["package"], one["id"], one["reader"].partition(" ")[2]
        ] = one["answer"]
    closed = {key: version for key, version in expected.items() if version is not None}
    for reader in ("trivy-db wolfi", "trivy-db alpine"):
        comparison.check(reader, closed, {key[:2]: answer for key, answer in of_reader[reader].items()})
    # It names a record without a CVE by its id, and not by its first alias.
    ranges = {
        (name, id if id.startswith("CVE-") else own[name, id]): ">=0" if version is None else f"<{version}"
        for (name, id), version in expected.items()
    }
    comparison.check("trivy-db osv", ranges, {key[:2]: answer for key, answer in of_reader["trivy-db osv"].items()})
    # A statement about a fixed version says nothing about others. A denial is about all.
    about = {}
    for (name, id), version in expected.items():
        fixed, old = versions(expected, name, id)
        denied = of_reader["go-vex"].get((name, id, old)) == "not_affected"
        about[name, id, fixed] = "open" if version is None else "not_affected" if version == "0" and denied else "fixed"
        about[name, id, old] = "open" if version is None else "not_affected" if version == "0" and denied else "none"
    status = {"affected": "open", "under_investigation": "open"}
    comparison.check("go-vex", about, {key: status.get(answer, answer) for key, answer in of_reader["go-vex"].items()})


def compare_matches(comparison: Comparison, expected: dict, own: dict, answers: list[dict]) -> None:
    """Compares the ids of the records that a reader has found for installed versions."""
    found = collections.defaultdict(dict)
    for one in answers:
        found[one["reader"]][one["package"], one["version"]] = set(one["ids"])
    for reader, matches in sorted(found.items()):
        is_secdb = reader.endswith("secdb")
        about, known = {}, {}
        for (name, id), state in expected.items():
            # An open vulnerability has no place in secdb.
            for version, is_affected in {} if is_secdb and state is None else installed(state).items():
                names = {id} if is_secdb else {own[name, id], f"{own[name, id]}-{id}"}
                about[name, id, version] = is_affected
                known[name, id, version] = bool(matches[name, version] & names)
        comparison.check(reader, about, known)


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
        comparison = Comparison()
        for reader in os.environ.get("PLATFORM_FEED_READERS", "trivy,osv-scanner").split(","):
            if reader == "trivy":
                questions = {(name, id, version) for (name, id) in expected for version in versions(expected, name, id)}
                compare_trivy(comparison, expected, own, read(reader, folder, questions))
            else:
                questions = {(name, version) for (name, _), state in expected.items() for version in installed(state)}
                compare_matches(comparison, expected, own, read(reader, folder, questions))
        assert not comparison.wrong, f"{comparison.wrong} differences"


if __name__ == "__main__":
    main()
