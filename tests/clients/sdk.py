"""Calls the API from the Go program in go/ with the published Go SDK.

If the SDK is not available, prints NOT RUN and runs the same program with a stand-in for the few functions that it calls:
grpc-go, with stubs generated from our .proto files under the SDK's import paths. That tests the server against grpc-go as
the SDK uses it, and not against the SDK.
"""

import os
import pathlib
import shutil
import subprocess
import sys

from server import ROOT, running

HERE = pathlib.Path(__file__).resolve().parent
PROTO = ROOT / "platform-core" / "proto"
FOLDER = ROOT / "target" / "clients-go"
SDK = "chainguard.dev/sdk"

# Pinned generators and libraries of the stand-in. The SDK has its own requirements.
GENERATORS = (
    "google.golang.org/protobuf/cmd/protoc-gen-go@v1.36.12",
    "google.golang.org/grpc/cmd/protoc-gen-go-grpc@v1.6.0",
)
LIBRARIES = (
    "google.golang.org/grpc@v1.85.0",
    "google.golang.org/protobuf@v1.36.12",
    "google.golang.org/genproto/googleapis/rpc@v0.0.0-20260817212433-ac3dfec99bb1",
)

# The SDK's import path of each of our packages.
PATHS = {
    "chainguard/capabilities": f"{SDK}/proto/capabilities",
    "chainguard/platform/common": f"{SDK}/proto/platform/common/v1",
    "chainguard/platform/oidc": f"{SDK}/proto/platform/oidc/v1",
    "chainguard/platform/iam/v2": f"{SDK}/proto/chainguard/platform/iam/v2",
    "chainguard/platform/registry/v2": f"{SDK}/proto/chainguard/platform/registry/v2",
    "contract": f"{SDK}/contract",
    "google/api": f"{SDK}/google/api",
}

# The directories of the parts of the stand-in in its module.
PARTS = {
    "auth": "auth",
    "sts": "sts",
    "pages": "pages",
    "clients": "proto/chainguard/platform/clients/v2",
    "iam": "proto/chainguard/platform/iam/v2",
    "registry": "proto/chainguard/platform/registry/v2",
}


def go() -> str | None:
    """Returns the Go command, from PATH or from the default directory of its installer."""
    return shutil.which("go") or shutil.which("/usr/local/go/bin/go")


def run(*command: object, cwd: pathlib.Path, **options) -> subprocess.CompletedProcess:
    path = f"{FOLDER / 'bin'}:{pathlib.Path(go()).parent}:{os.environ['PATH']}"
    env = {**os.environ, "GOBIN": str(FOLDER / "bin"), "PATH": path}
    return subprocess.run(command, cwd=cwd, env=env, text=True, **options)


def program() -> pathlib.Path:
    """Creates a module with the program only."""
    folder = FOLDER / "walk"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    shutil.copy(HERE / "go" / "main.go", folder)
    run(go(), "mod", "init", "example.com/walk", cwd=folder, check=True, capture_output=True)
    return folder


def stand_in() -> pathlib.Path:
    """Creates a module with the name of the SDK from the stubs and the parts."""
    folder = FOLDER / "standin"
    shutil.rmtree(folder, ignore_errors=True)
    for part, place in PARTS.items():
        shutil.copytree(HERE / "go" / "standin" / part, folder / place)
    run(go(), "mod", "init", SDK, cwd=folder, check=True, capture_output=True)
    for generator in GENERATORS:
        run(go(), "install", generator, cwd=folder, check=True)
    files = {file: path for place, path in PATHS.items() for file in sorted(PROTO.glob(f"{place}/*.proto"))}
    names = [str(file.relative_to(PROTO)) for file in files]
    mapped = [f"M{name}={path}" for name, path in zip(names, files.values())]
    options = [f"--{plugin}_opt={one}" for plugin in ("go", "go-grpc") for one in (f"module={SDK}", *mapped)]
    generate = [sys.executable, "-m", "grpc_tools.protoc", f"-I{PROTO}", f"--go_out={folder}", f"--go-grpc_out={folder}"]
    run(*generate, *options, *names, cwd=folder, check=True)
    run(go(), "get", *LIBRARIES, cwd=folder, check=True, capture_output=True)
    return folder


def main() -> None:
    if not go():
        print("NOT RUN: Go is not installed, so neither the Go SDK nor grpc-go was tested")
        return
    walk = program()
    fetched = run(go(), "get", f"{SDK}@latest", cwd=walk, capture_output=True)
    if fetched.returncode:
        print(f"NOT RUN: the published Go SDK is not available: {fetched.stderr.strip()}")
        run(go(), "mod", "edit", f"-require={SDK}@v0.0.0", f"-replace={SDK}={stand_in()}", cwd=walk, check=True)
        run(go(), "get", *LIBRARIES, cwd=walk, check=True, capture_output=True)
    binary = walk / "walk"
    run(go(), "build", "-mod=mod", "-o", binary, ".", cwd=walk, check=True)
    with running() as server:
        values = {"API": server.url, "ORG_ID": server.organization, "TOKEN": server.token}
        done = subprocess.run([binary], env={**os.environ, **values})
        if done.returncode:
            raise SystemExit(server.log.read_text()[-4000:])
    client = "grpc-go with a stand-in for the SDK" if fetched.returncode else "the published Go SDK"
    print(f"passed: pages, creates, updates, errors and an exchange with {client}")


if __name__ == "__main__":
    main()
