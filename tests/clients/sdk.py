"""The Go program of go/ walks the API with the published Go SDK.

Where the SDK cannot be had, it says so and the same program runs with a stand-in for the few functions that it calls:
grpc-go, with stubs made from our .proto files under the SDK's import paths. That shows that a server answers grpc-go as
the SDK uses it, and not that it answers the SDK.
"""

import os
import pathlib
import shutil
import subprocess
import sys

from server import ROOT, running

HERE = pathlib.Path(__file__).resolve().parent
PROTO = ROOT / "platform-grpc" / "proto"
FOLDER = ROOT / "target" / "clients-go"
SDK = "chainguard.dev/sdk"

# What the stand-in is made by and of, pinned. With the SDK, its own requirements hold.
GENERATORS = (
    "google.golang.org/protobuf/cmd/protoc-gen-go@v1.36.12",
    "google.golang.org/grpc/cmd/protoc-gen-go-grpc@v1.6.0",
)
LIBRARIES = (
    "google.golang.org/grpc@v1.85.0",
    "google.golang.org/protobuf@v1.36.12",
    "google.golang.org/genproto/googleapis/rpc@v0.0.0-20260817212433-ac3dfec99bb1",
)

# The import paths of our files' packages in the SDK.
PATHS = {
    "chainguard/capabilities": f"{SDK}/proto/capabilities",
    "chainguard/platform/common": f"{SDK}/proto/platform/common/v1",
    "chainguard/platform/oidc": f"{SDK}/proto/platform/oidc/v1",
    "chainguard/platform/iam/v2": f"{SDK}/proto/chainguard/platform/iam/v2",
    "chainguard/platform/registry/v2": f"{SDK}/proto/chainguard/platform/registry/v2",
    "contract": f"{SDK}/contract",
    "google/api": f"{SDK}/google/api",
}

# Where the parts of the stand-in go.
PARTS = {
    "auth": "auth",
    "sts": "sts",
    "pages": "pages",
    "clients": "proto/chainguard/platform/clients/v2",
    "iam": "proto/chainguard/platform/iam/v2",
    "registry": "proto/chainguard/platform/registry/v2",
}


def go() -> str | None:
    """Returns the Go command, which may be where its installer puts it."""
    return shutil.which("go") or shutil.which("/usr/local/go/bin/go")


def run(*command: object, cwd: pathlib.Path, **options) -> subprocess.CompletedProcess:
    path = f"{FOLDER / 'bin'}:{pathlib.Path(go()).parent}:{os.environ['PATH']}"
    env = {**os.environ, "GOBIN": str(FOLDER / "bin"), "PATH": path}
    return subprocess.run(command, cwd=cwd, env=env, text=True, **options)


def program() -> pathlib.Path:
    """Makes a module of the program alone."""
    folder = FOLDER / "walk"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    shutil.copy(HERE / "go" / "main.go", folder)
    run(go(), "mod", "init", "example.com/walk", cwd=folder, check=True, capture_output=True)
    return folder


def stand_in() -> pathlib.Path:
    """Makes a module of the SDK's name: stubs, and the parts."""
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
        print("NOT RUN: there is no Go here, and so neither the Go SDK nor grpc-go was tried")
        return
    walk = program()
    had = run(go(), "get", f"{SDK}@latest", cwd=walk, capture_output=True)
    if had.returncode:
        print(f"NOT RUN: the published Go SDK cannot be had here: {had.stderr.strip()}")
        run(go(), "mod", "edit", f"-require={SDK}@v0.0.0", f"-replace={SDK}={stand_in()}", cwd=walk, check=True)
        run(go(), "get", *LIBRARIES, cwd=walk, check=True, capture_output=True)
    binary = walk / "walk"
    run(go(), "build", "-mod=mod", "-o", binary, ".", cwd=walk, check=True)
    with running() as server:
        values = {"API": server.url, "ORG_ID": server.organisation, "TOKEN": server.token}
        done = subprocess.run([binary], env={**os.environ, **values})
        if done.returncode:
            raise SystemExit(server.log.read_text()[-4000:])
    by = "grpc-go with a stand-in for the SDK" if had.returncode else "the published Go SDK"
    print(f"passed: pages, creates, updates, refusals and an exchange by {by}")


if __name__ == "__main__":
    main()
