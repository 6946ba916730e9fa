#!/usr/bin/env python3
"""Checks a running platform-server with public clients.

    tests/clients/run.py document      validates the OpenAPI document, its examples and its order_by patterns
    tests/clients/run.py operations    calls all operations with schemathesis: no 5xx, no undocumented response
    tests/clients/run.py generated     calls all operations with two clients generated from the document
    tests/clients/run.py generators    calls groups with clients of further generators; PLATFORM_GENERATORS=all for slow ones
    tests/clients/run.py page          opens /docs in headless Chromium and tries an operation
    tests/clients/run.py console       tests the console in headless Chromium with axe-core; needs Node.js
    tests/clients/run.py screenshots   makes the screenshots of README.md and docs from the console
    tests/clients/run.py signin        signs persons in with headless Chromium and npm's oidc-provider
    tests/clients/run.py scim          checks the SCIM endpoint with scim2-tester
    tests/clients/run.py oauth         signs persons in, refreshes and exchanges with libraries for OAuth 2.0
    tests/clients/run.py aws           exchanges requests that the SDKs of AWS sign; PLATFORM_AWS_CLIENTS chooses
    tests/clients/run.py keysets       verifies tokens with nine JOSE libraries before and after keys rotate; PLATFORM_KEYSETS
    tests/clients/run.py events        receives events with the CloudEvents SDK and rejects forged ones
    tests/clients/run.py receivers     receives events with five CloudEvents SDKs; PLATFORM_RECEIVERS chooses
    tests/clients/run.py watch         watches lists with 12 libraries, while connections are cut; PLATFORM_WATCH_CLIENTS chooses
    tests/clients/run.py caching       reads and writes through caches of Python, Go and Chromium, with If-Match
    tests/clients/run.py protobuf      reads lists and errors with four protobuf runtimes; PLATFORM_PROTOBUF chooses
    tests/clients/run.py gateways      uses a server through nginx and other gateways; PLATFORM_GATEWAYS chooses
    tests/clients/run.py poolers       starts servers through PgBouncer and pgpool-II
    tests/clients/run.py versions      compares the order of versions with packaging, Maven and apk-tools
    tests/clients/run.py feeds         reads feeds of advisories with the libraries of scanners; PLATFORM_FEED_READERS chooses
    tests/clients/run.py readme        types the commands of README.md and of all pages of docs
    tests/clients/run.py grpc          compares state and errors over grpcio with those over REST
    tests/clients/run.py own-kind      walks the kind of examples/own-kind with grpcio by reflection and with REST
    tests/clients/run.py template      makes, builds, tests and uses a project of templates/own-kind
    tests/clients/run.py sdk           runs a Go program with the published SDK, if Go and the SDK are available
    tests/clients/run.py failover      makes a PostgreSQL cluster with Patroni and etcd fail under two servers that work
    tests/clients/run.py terraform-calls  makes the calls of the Terraform provider from a Go program
    tests/clients/run.py fleet         passes some of these checks while servers on one PostgreSQL are killed
    tests/clients/run.py cost          prints what metrics and traces cost in instructions, with Valgrind
    tests/clients/run.py deploy        follows the commands that start servers on PostgreSQL, and checks deploy/

Python dependencies are installed in a virtual environment under target/, missing Debian packages with apt.
`PLATFORM_SERVER` is the binary to check (default: a debug build).
"""

import hashlib
import os
import pathlib
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
# calls.py is not named grpc.py, which would shadow the library.
CHECKS = {
    "document": "document.py",
    "operations": "operations.py",
    "generated": "generated.py",
    "generators": "generators.py",
    "page": "page.py",
    "console": "console.py",
    "screenshots": "screenshots.py",
    "signin": "signin.py",
    "scim": "scim.py",
    "oauth": "oauth.py",
    "aws": "aws.py",
    "keysets": "keysets.py",
    "events": "events.py",
    "receivers": "receivers.py",
    "watch": "watch.py",
    "caching": "caching.py",
    "protobuf": "protobuf.py",
    "gateways": "gateways.py",
    "poolers": "poolers.py",
    "versions": "versions.py",
    "feeds": "feeds.py",
    "readme": "readme.py",
    "grpc": "calls.py",
    "own-kind": "own_kind.py",
    "template": "template.py",
    "sdk": "sdk.py",
    "terraform-calls": "terraform_calls.py",
    "fleet": "fleet.py",
    "cost": "cost.py",
    "deploy": "deploy.py",
    "failover": "failover.py",
}


def environment() -> pathlib.Path:
    """Returns the Python interpreter of a virtual environment with the requirements installed."""
    folder = ROOT / "target" / "clients"
    python = folder / "bin" / "python"
    requirements = HERE / "requirements.txt"
    digest = hashlib.sha256(requirements.read_bytes()).hexdigest()
    stamp = folder / "requirements.sha256"
    if not stamp.exists() or stamp.read_text() != digest:
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", "-r", requirements], check=True)
        stamp.write_text(digest)
    return python


def main() -> None:
    checks = sys.argv[1:]
    if not checks or any(check not in CHECKS for check in checks):
        sys.exit(__doc__)
    python = environment()
    for check in checks:
        done = subprocess.run([python, HERE / CHECKS[check]], cwd=ROOT, env={**os.environ, "PYTHONPATH": str(HERE)})
        if done.returncode:
            sys.exit(f"{check}: failed")


if __name__ == "__main__":
    main()
