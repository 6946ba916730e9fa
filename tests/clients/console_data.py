"""Sample data for the checks of the console: three organizations with 60 repos and 2,000 advisories."""

import dataclasses
import hashlib

from screenshots import VECTORS, day, imported
from server import Server

ORGANIZATIONS = ("acme", "globex", "initech")
TEAMS = ("payments", "web")
NAMES = ("nginx", "caddy", "haproxy", "postgres", "valkey", "python", "jre", "static", "node", "go")
ADVISORIES = 2000
FORMS = ("detection", "fixed", "fixed", "falsePositiveDetermination", "fixNotPlanned", "pendingUpstreamFix", "fixed")


@dataclasses.dataclass
class Data:
    """The uids that the checks need."""

    organization: str
    groups: dict[str, str]
    repos: dict[str, str]
    identities: dict[str, str]


def digest(*parts: object) -> str:
    return "sha256:" + hashlib.sha256(repr(parts).encode()).hexdigest()


def advisory(index: int) -> dict:
    form = FORMS[index % len(FORMS)]
    events = [{"createTime": day(40 + index % 20), "detection": {"manual": {}}, "reviewState": "REVIEW_STATE_APPROVED"}]
    if form != "detection":
        content = {"fixedVersion": f"1.{index % 9}.3-r0"} if form == "fixed" else {}
        events.append({"createTime": day(1 + index % 30), form: content, "reviewState": "REVIEW_STATE_APPROVED"})
    names = {"advisoryId": f"CGA-{index:04}", "artifactName": f"package-{index % 40}", "artifactType": "apk"}
    times = {"createTime": day(40 + index % 20), "updateTime": day(1 + index % 30)}
    return {**names, **times, "aliases": [f"CVE-2026-{10000 + index}"], "events": events}


def metadata(index: int) -> dict:
    rank = (0, 1, 1, 2, 2, 2, 3, 3)[index % 8]
    text = {"summary": f"A flaw in package-{index % 40}", "details": "An attacker can read *more* than they should."}
    pages = [{"type": "TYPE_ADVISORY", "url": f"https://nvd.example.com/CVE-2026-{10000 + index}"}]
    scores = [{"type": "TYPE_CVSS_V3", "score": VECTORS[rank]}] if index % 9 else []
    return {"id": f"CVE-2026-{10000 + index}", **text, "references": pages, "severities": scores}


def report(repo: int, image: str) -> dict:
    """Returns a scanner's report of an image; every fourth repo has critical vulnerabilities."""
    levels = ("CRITICAL", "HIGH", "MEDIUM", "LOW") if repo % 4 == 0 else ("HIGH", "MEDIUM", "LOW", "LOW")
    found = []
    for index in range(3 + repo * 7 % 23):
        level = levels[index % 4]
        fix = {"versions": [f"1.{index % 9}.3-r0"], "state": "STATE_FIXED"} if index % 3 else {"state": "STATE_NOT_FIXED"}
        number = 8 * (repo * 3 + index) % ADVISORIES if level == "CRITICAL" else 8 * ((repo + index) % 200) + 1 + index % 3
        name = f"package-{number % 40}"
        cvss = [{"score": {"CRITICAL": "9.8", "HIGH": "7.5", "MEDIUM": "5.4", "LOW": "2.2"}[level], "version": "3.1"}]
        one = {"id": f"CVE-2026-{10000 + number}", "severity": f"LEVEL_{level}", "cvss": cvss, "fix": fix}
        found.append({**one, "purls": [f"pkg:apk/wolfi/{name}@1.{index % 4}.0-r1?arch=x86_64"]})
    unique = {one["id"]: one for one in found}
    return {"digest": image, "scanner": {"name": "SCANNER_GRYPE", "version": "0.90.0"}, "createTime": day(0), "vulnerabilities": list(unique.values())}


def fill(server: Server) -> Data:
    """Creates the sample data."""
    call = server.call
    data = Data(server.organization, {}, {}, {})
    number = 0
    for organization in ORGANIZATIONS:
        top = call("POST", "/iam/v2/groups", {"name": organization})["uid"]
        data.groups[organization] = top
        for team in TEAMS:
            group = data.groups[f"{organization}/{team}"] = call("POST", f"/iam/v2/groups/{top}", {"name": team})["uid"]
            for name in NAMES:
                repo = call("POST", f"/registry/v2/repos/{group}", {"name": f"{name}-{team}", "description": f"The image of {name}"})["uid"]
                data.repos[f"{organization}/{team}/{name}-{team}"] = repo
                image, old = digest(organization, team, name), digest(organization, team, name, "old")
                packages = [{"name": f"package-{(number + index) % 40}", "version": "1.2.3-r0"} for index in range(4)]
                platforms = [{"architecture": "amd64", "digest": digest(image), "size": "48400000", "packages": packages}]
                imported(server, "images", repo, *({"digest": one, "index": True, "platforms": platforms} for one in (image, old)))
                imported(server, "vulnerabilityReports", repo, report(number, image), report(number + 1, old))
                quoted = repo.replace("/", "%2F")
                for tag, one in (("latest", image), ("1.29", image), ("1.28", old)):
                    call("POST", f"/registry/v2/tags/{quoted}", {"name": tag, "digest": one})
                number += 1
    for at, organization in enumerate(ORGANIZATIONS):
        imported(server, "advisories", data.groups[organization], *(advisory(index) for index in range(at, ADVISORIES, len(ORGANIZATIONS))))
    imported(server, "vulnerabilityMetadata", "", *(metadata(index) for index in range(ADVISORIES)))
    roles = {role["name"]: role["uid"] for role in call("GET", "/iam/v2/roles?page_size=100")["roles"]}
    for path, role, group in (("acme/ada", "editor", "acme"), ("acme/grace", "viewer", "acme/payments"), ("acme/robot", "viewer", "acme/web"), ("acme/lin", "", ""), ("globex/sam", "", "")):
        organization, name = path.split("/")
        match = {"issuer": "https://issuer.example.com", "subject": name}
        uid = data.identities[name] = call("POST", f"/iam/v2/identities/{data.groups[organization]}", {"name": name, "claimMatch": match})["uid"]
        if role:
            call("POST", f"/iam/v2/roleBindings/{data.groups[group].replace('/', '%2F')}", {"identityUid": uid, "roleUid": roles[role]})
    return data
