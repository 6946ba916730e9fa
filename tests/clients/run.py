#!/usr/bin/env python3
"""Checks a running platform-server with public clients.

    tests/clients/run.py document      the OpenAPI document is valid, and its examples and orders are of their schemas
    tests/clients/run.py operations    schemathesis: no 5xx, no undocumented status or body
    tests/clients/run.py generated     two clients generated from the document walk every operation of it
    tests/clients/run.py page          headless Chromium: /docs loads and tries an operation
    tests/clients/run.py events        a receiver by the CloudEvents SDK takes events, and only those that the server vouches for
    tests/clients/run.py readme        the sessions in README.md and docs/tutorial.md give the output that they show
    tests/clients/run.py grpc          grpcio with stubs from our .proto files: the same state and errors as REST
    tests/clients/run.py sdk           a Go program with the published SDK, where Go and the SDK can be had

What they need from PyPI goes into a virtual environment under target/, what they need from Debian is installed when
it is missing. `PLATFORM_SERVER` is the binary to check; without it, a debug build.
"""

import hashlib
import os
import pathlib
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
# A file that is called grpc.py would hide the library of that name.
CHECKS = {
    "document": "document.py",
    "operations": "operations.py",
    "generated": "generated.py",
    "page": "page.py",
    "events": "events.py",
    "readme": "readme.py",
    "grpc": "calls.py",
    "sdk": "sdk.py",
}


def environment() -> pathlib.Path:
    """Returns the Python of a virtual environment that has the requirements."""
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
