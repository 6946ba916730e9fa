"""Makes the screenshots of README.md and docs/how-to/console.md: the console in headless Chromium, with sample data.

Each is at most 250 KB.
"""

import datetime
import json
import pathlib
import tempfile
import urllib.request

from console_browser import Browser, browser, serving
from server import ROOT, Server

MAX_BYTES = 250_000
README = """# nginx

A web server and reverse proxy. It runs without root, from `/usr/share/nginx/html`.

| Port | Protocol |
|---|---|
| 8080 | HTTP |
| 8443 | HTTPS |
"""
PLATFORMS = (("amd64", 48_400_000), ("arm64", 44_100_000), ("riscv64", 40_900_000))


def imported(server: Server, kind: str, parent: str, *documents: dict) -> None:
    """Imports documents of a kind into a parent."""
    request = urllib.request.Request(
        f"{server.url}/import/{kind}" + (f"?parent={parent.replace('/', '%2F')}" if parent else ""),
        data="".join(json.dumps(one) + "\n" for one in documents).encode(),
        method="POST",
        headers={"Authorization": f"Bearer {server.token}"},
    )
    with urllib.request.urlopen(request, timeout=60) as reply:
        answer = reply.read().decode()
    batches = [json.loads(line) for line in answer.splitlines()]
    assert batches and not any(batch.get("refused") or "error" in batch for batch in batches), answer


def day(ago: int) -> str:
    """Returns a time of the day that was this many days ago."""
    at = datetime.datetime.now(datetime.timezone.utc) - datetime.timedelta(days=ago)
    return at.strftime("%Y-%m-%dT00:00:00Z")


def advisories(count: int = 60) -> list[dict]:
    """Returns advisories that are detected and resolved over the last weeks."""
    forms = ("fixed", "fixed", "falsePositiveDetermination", "fixed", "fixNotPlanned")
    found = []
    for index in range(count):
        seen = (index * 7) % 45
        events = [{"createTime": day(seen), "detection": {"manual": {}}, "reviewState": "REVIEW_STATE_APPROVED"}]
        resolved = seen - 4 - index % 9
        if resolved >= 0 and index % 6:
            form = forms[index % len(forms)]
            content = {"fixedVersion": "1.2.3-r0"} if form == "fixed" else {}
            events.append({"createTime": day(resolved), form: content, "reviewState": "REVIEW_STATE_APPROVED"})
        names = {"advisoryId": f"CGA-{index:04}", "artifactName": f"package-{index % 12}", "artifactType": "apk"}
        found.append({**names, "aliases": [f"CVE-2026-{1000 + index}"], "events": events})
    return found


VECTORS = (
    "CVSS:3.1/AV:N/AC:L/PR:N/UI:N/S:U/C:H/I:H/A:H",
    "CVSS:3.1/AV:N/AC:L/PR:N/UI:N/S:U/C:H/I:N/A:N",
    "CVSS:3.1/AV:N/AC:L/PR:N/UI:R/S:U/C:L/I:L/A:N",
    "CVSS:3.1/AV:L/AC:H/PR:L/UI:R/S:U/C:L/I:N/A:N",
)


def metadata(count: int = 60) -> list[dict]:
    """Returns the severities of most of the vulnerabilities of the advisories."""
    ranks = (0, 1, 1, 2, 2, 2, 3, 3)
    scored = (index for index in range(count) if index % 9)
    return [
        {"id": f"CVE-2026-{1000 + index}", "severities": [{"type": "TYPE_CVSS_V3", "score": VECTORS[ranks[index % len(ranks)]]}]}
        for index in scored
    ]


def reports(digest: str) -> list[dict]:
    """Returns scanner reports of an image, with fewer vulnerabilities in each."""
    levels = ("CRITICAL", "HIGH", "HIGH", "MEDIUM", "MEDIUM", "MEDIUM", "LOW", "LOW")
    found = []
    for ago in range(32, -1, -4):
        vulnerabilities = [
            {"id": f"CVE-2026-{2000 + index}", "severity": f"LEVEL_{level}", "purls": ["pkg:apk/wolfi/nginx@1.29"]}
            for index, level in enumerate(levels * 3)
            if index < 4 + ago * 2 // 3
        ]
        found.append({"digest": digest, "scanner": {"name": "SCANNER_GRYPE"}, "createTime": day(ago), "vulnerabilities": vulnerabilities})
    return found


def filled(server: Server) -> dict[str, str]:
    """Creates the sample data. Returns the uids that the screens need."""
    call, org = server.call, server.organization
    team = {}
    for name, description in (("web", "Websites and their proxies"), ("data", "Databases"), ("platform", "Base images")):
        team[name] = call("POST", f"/iam/v2/groups/{org}", {"name": name, "description": description})["uid"]
    for name in ("staging", "production"):
        team[name] = call("POST", f"/iam/v2/groups/{team['web']}", {"name": name})["uid"]
    repos = {}
    for group, names in (("web", ("nginx", "caddy", "haproxy")), ("data", ("postgres", "valkey")), ("platform", ("python", "jre", "static"))):
        for name in names:
            repos[name] = call("POST", f"/registry/v2/repos/{team[group]}", {"name": name, "description": f"The image of {name}"})["uid"]
    nginx = repos["nginx"]
    quoted = nginx.replace("/", "%2F")
    call("PATCH", f"/registry/v2/repos/{quoted}", {"description": "A web server and reverse proxy", "bundles": ["base", "fips"]})
    call("PATCH", f"/registry/v2/repos/{quoted}/readme", {"content": README})
    digest = f"sha256:{'a1' * 32}"
    packages = [{"name": f"package-{index}", "version": "1.2.3-r0"} for index in range(12)]
    platforms = [
        {"architecture": name, "digest": f"sha256:{index:02x}{'b' * 62}", "size": str(size), "packages": packages}
        for index, (name, size) in enumerate(PLATFORMS)
    ]
    imported(server, "images", nginx, {"digest": digest, "index": True, "platforms": platforms})
    for name in ("latest", "1.29", "1.28"):
        call("POST", f"/registry/v2/tags/{quoted}", {"name": name, "digest": digest})
    imported(server, "advisories", team["web"], *advisories())
    imported(server, "vulnerabilityMetadata", "", *metadata())
    imported(server, "vulnerabilityReports", nginx, *reports(digest))
    roles = {role["name"]: role["uid"] for role in call("GET", "/iam/v2/roles?page_size=100")["roles"]}
    bound = (("ada", "editor", org), ("grace", "viewer", org), ("deploy", "editor", team["web"]), ("audit", "viewer", team["web"]))
    identities = {}
    for name, role, group in bound:
        match = {"issuer": "https://issuer.example.com", "subject": f"repo:acme/{name}"}
        identities[name] = call("POST", f"/iam/v2/identities/{org}", {"name": name, "claimMatch": match})["uid"]
        call("POST", f"/iam/v2/roleBindings/{group}", {"identityUid": identities[name], "roleUid": roles[role]})
    return {"repo": nginx, "web": team["web"], "deploy": identities["deploy"], "org": org}


def shoot(at: Browser, name: str, theme: str, address: str, heading: str) -> None:
    """Writes a screen to docs."""
    at.go(address, heading)
    at.page.execute_script("document.documentElement.dataset.theme = arguments[0]; document.activeElement.blur()", theme)
    path = ROOT / "docs" / f"{name}.png"
    at.page.save_screenshot(str(path))
    size = path.stat().st_size
    assert size <= MAX_BYTES, f"{path.name} has {size} bytes"
    print(f"{path.name}: {size:,} bytes")


def main() -> None:
    # It uses the functions of this file.
    import console_data

    with tempfile.TemporaryDirectory() as folder, serving(pathlib.Path(folder), "memory") as server:
        uids = filled(server)
        with browser(server, "") as at:
            at.sign_in(server.token)
            shoot(at, "console-repo", "light", f"/repos/item?uid={uids['repo']}", "nginx")
            shoot(at, "console-hierarchy", "dark", f"/hierarchy?uid={uids['web']}", "Hierarchy")
            address = f"/access?uid={uids['web']}&identityUid={uids['deploy']}&capability=repo.update"
            shoot(at, "console-access", "light", address, "Access")
    with tempfile.TemporaryDirectory() as folder, serving(pathlib.Path(folder), "memory") as server:
        console_data.fill(server)
        with browser(server, "") as at:
            at.sign_in(server.token)
            shoot(at, "console-vulnerabilities", "light", "/vulnerabilities", "Vulnerabilities")
            shoot(at, "console-advisories", "light", "/advisories?f.severity=critical&size=20", "Advisories")


if __name__ == "__main__":
    main()
