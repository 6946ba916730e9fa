"""Makes a project of templates/own-kind, builds it, runs its tests and uses its server.

The project is made in examples/, where it is a member of the workspace as long as it exists, so that the dependencies that the
tests have built are not built again. python-liquid fills in the template; with PLATFORM_CARGO_GENERATE=1 so does
cargo-generate, which is installed if it is missing, and both projects must be equal.
"""

import filecmp
import json
import os
import pathlib
import shutil
import subprocess
import tempfile

import liquid
from programs import run
from server import ROOT, built

TEMPLATE = ROOT / "templates" / "own-kind"
PROJECT = ROOT / "examples" / "fleet"
LOCK = ROOT / "Cargo.lock"
VALUES = {"kind": "Vehicle", "plural": "vehicles", "platform": "../.."}
# The newest version that Rust 1.95 compiles.
CARGO_GENERATE = "0.23.10"


def rendered(text: str) -> str:
    return liquid.render(text, **VALUES, **{"project-name": PROJECT.name, "crate_name": PROJECT.name})


def make() -> None:
    for source in TEMPLATE.rglob("*"):
        path = source.relative_to(TEMPLATE)
        if source.is_dir() or path.name == "cargo-generate.toml":
            continue
        made = PROJECT / rendered(str(path))
        made.parent.mkdir(parents=True, exist_ok=True)
        if source.suffix == ".binpb":
            shutil.copy(source, made)
        else:
            made.write_text(rendered(source.read_text()))


def compare() -> None:
    """Makes the project with cargo-generate, and compares it."""
    if not shutil.which("cargo-generate"):
        run("cargo", "install", "cargo-generate", "--version", CARGO_GENERATE, "--locked", cwd=ROOT)
    with tempfile.TemporaryDirectory() as folder:
        defined = [word for name, value in VALUES.items() for word in ("--define", f"{name}={value}")]
        command = ["cargo-generate", "generate", "--path", TEMPLATE, "--name", PROJECT.name, "--destination", folder]
        run(*command, "--vcs", "none", "--silent", *defined, cwd=pathlib.Path(folder))
        made = pathlib.Path(folder) / PROJECT.name
        files = sorted(str(file.relative_to(made)) for file in made.rglob("*") if file.is_file())
        ours = sorted(str(file.relative_to(PROJECT)) for file in PROJECT.rglob("*") if file.is_file())
        assert files == ours, (files, ours)
        _, different, failed = filecmp.cmpfiles(made, PROJECT, files, shallow=False)
        assert not different and not failed, (different, failed)
    print(f"passed: cargo-generate {CARGO_GENERATE} makes the same project, {len(files)} files")


def use() -> None:
    """Builds and tests the project, and calls its server with its command line."""
    # Adds the project to the lock file, with the versions that it has.
    run("cargo", "update", "--workspace", cwd=ROOT)
    run(built("proto"), cwd=PROJECT)
    run("cargo", "test", "--workspace", "--locked", "--test", "own_kinds", cwd=ROOT)
    server, ctl = built(PROJECT.name), built("ctl")
    with tempfile.TemporaryDirectory() as data:
        command = [server, "--data-dir", data, "--listen", "127.0.0.1:0"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
            url = process.stdout.readline().split()[2]
            token = subprocess.run([server, "token", "--data-dir", data], stdout=subprocess.PIPE, text=True, check=True)

            def call(*words: str) -> str:
                command = [ctl, "--api", url, "--token", token.stdout.strip(), *words]
                done = subprocess.run(command, stdout=subprocess.PIPE, text=True, env={**os.environ, "HOME": data})
                assert done.returncode == 0, words
                return done.stdout

            group = call("get", "groups", "-o", "name").split()[0]
            uid = call("create", "vehicles", "--under", group, "--name", "first", "-o", "name").strip()
            assert json.loads(call("get", "vehicles", uid, "-o", "json"))["name"] == "first"
            process.terminate()
        assert process.returncode == 0
    print("passed: the project of templates/own-kind is built, passes its tests and serves its kind")


def main() -> None:
    lock = LOCK.read_bytes()
    shutil.rmtree(PROJECT, ignore_errors=True)
    # A server that was given was built without the project.
    os.environ.pop("PLATFORM_SERVER", None)
    try:
        make()
        if os.environ.get("PLATFORM_CARGO_GENERATE"):
            compare()
        use()
    finally:
        shutil.rmtree(PROJECT, ignore_errors=True)
        LOCK.write_bytes(lock)


if __name__ == "__main__":
    main()
