"""Makes the calls of the Terraform provider from the Go program in go/terraform, with stubs from our .proto files.

Prints NOT RUN for the provider itself, which depends on the Go SDK: the Go module proxy does not have it.
"""

import base64
import json
import os
import pathlib
import shutil
import subprocess
import sys
import urllib.request

from sdk import FOLDER, GENERATORS, LIBRARIES, PROTO, SDK, go, run
from server import running

HERE = pathlib.Path(__file__).resolve().parent
MODULE = "example.com/calls"

# The import path of each package of the program, and those that they need. The provider calls v2beta1, whose files are
# those of v2 with another name.
PATHS = {
    "chainguard/capabilities": f"{MODULE}/capabilities",
    "chainguard/platform/common": f"{MODULE}/common",
    "chainguard/platform/oidc": f"{MODULE}/oidc",
    "chainguard/platform/events": f"{MODULE}/events",
    "chainguard/platform/iam": f"{MODULE}/iam",
    "chainguard/platform/iam/v2beta1": f"{MODULE}/iam/v2beta1",
    "chainguard/platform/registry": f"{MODULE}/registry",
    "chainguard/platform/registry/v2beta1": f"{MODULE}/registry/v2beta1",
    "chainguard/platform/tenant": f"{MODULE}/tenant",
    "contract": f"{MODULE}/contract",
    "google/api": f"{MODULE}/google/api",
}


def sources(folder: pathlib.Path) -> pathlib.Path:
    """Copies our .proto files, those of v2 as v2beta1."""
    copy = folder / "proto"
    shutil.copytree(PROTO, copy)
    for file in sorted(copy.glob("chainguard/platform/*/v2/*.proto")):
        text = file.read_text().replace("/v2/", "/v2beta1/")
        package = f"chainguard.platform.{file.parent.parent.name}.v2"
        beta = file.parent.parent / "v2beta1" / file.name
        beta.parent.mkdir(exist_ok=True)
        beta.write_text(text.replace(package, f"{package}beta1"))
    return copy


def program() -> pathlib.Path:
    """Creates the module of the program and its stubs, and returns the binary."""
    folder = FOLDER / "calls"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for file in (HERE / "go" / "terraform").glob("*.go"):
        shutil.copy(file, folder)
    run(go(), "mod", "init", MODULE, cwd=folder, check=True, capture_output=True)
    for generator in GENERATORS:
        run(go(), "install", generator, cwd=folder, check=True)
    copy = sources(folder)
    files = {file: path for place, path in PATHS.items() for file in sorted(copy.glob(f"{place}/*.proto"))}
    names = [str(file.relative_to(copy)) for file in files]
    mapped = [f"M{name}={path}" for name, path in zip(names, files.values())]
    options = [f"--{plugin}_opt={one}" for plugin in ("go", "go-grpc") for one in (f"module={MODULE}", *mapped)]
    generate = [sys.executable, "-m", "grpc_tools.protoc", f"-I{copy}", f"--go_out={folder}", f"--go-grpc_out={folder}"]
    run(*generate, *options, *names, cwd=folder, check=True)
    run(go(), "get", *LIBRARIES, cwd=folder, check=True, capture_output=True)
    binary = folder / "calls"
    run(go(), "build", "-mod=mod", "-o", binary, ".", cwd=folder, check=True)
    return binary


def give_deployments(server) -> None:
    """Gives the operator the capabilities of deployments, which no built-in role has."""

    def post(path: str, body: dict) -> dict:
        headers = {"Authorization": f"Bearer {server.token}", "Content-Type": "application/json"}
        request = urllib.request.Request(server.url + path, json.dumps(body).encode(), headers)
        with urllib.request.urlopen(request, timeout=30) as reply:
            return json.load(reply)

    names = [f"CAP_REGISTRY_DEPLOYMENTS_{verb}" for verb in ("CREATE", "UPDATE", "LIST")]
    role = {"name": "deployer", "capabilities": ["CAP_INTERNAL", *names]}
    role = post(f"/iam/v2/roles/{server.organization}", role)
    claims = server.token.split(".")[1]
    operator = json.loads(base64.urlsafe_b64decode(claims + "=" * (-len(claims) % 4)))["sub"]
    binding = {"identityUid": operator, "roleUid": role["uid"]}
    post(f"/iam/v2/roleBindings/{server.organization}", binding)


def main() -> None:
    if not go():
        print("NOT RUN: Go is not installed, so the calls of the Terraform provider were not made")
        return
    binary = program()
    with running() as server:
        give_deployments(server)
        values = {"API": server.url, "ORG_ID": server.organization, "TOKEN": server.token}
        done = subprocess.run([binary], env={**os.environ, **values}, stdout=subprocess.PIPE, text=True)
        if done.returncode:
            raise SystemExit(server.log.read_text()[-4000:])
    found = run(go(), "list", "-m", f"{SDK}@latest", cwd=binary.parent, capture_output=True, timeout=480)
    why = "its SDK is available now, so this stage can be extended"
    if found.returncode:
        why = f"it needs the SDK, which is not available: {found.stderr.strip()}"
    print(f"NOT RUN: the Terraform provider with OpenTofu: {why}")
    print(f"passed: the calls of the Terraform provider with grpc-go, {done.stdout.strip()}")


if __name__ == "__main__":
    main()
