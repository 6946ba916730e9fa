"""Generates clients from the OpenAPI document with further generators, compiles them, and calls the methods of groups.

By default the fast ones, in TypeScript: openapi-typescript with openapi-fetch, and orval. `PLATFORM_GENERATORS=all` adds
the slow ones: ogen (Go), and openapi-generator (Python, TypeScript, Go, Java, Rust). The clients in Java and Rust are
compiled only. What needs a program that is not installed is NOT RUN. The clients are in target/clients-generators.
"""

import json
import os
import pathlib
import shutil
import sys
import time
import venv
from collections.abc import Callable

from programs import run
from server import ROOT, Server, running

HERE = pathlib.Path(__file__).resolve().parent / "generators"
FOLDER = ROOT / "target" / "clients-generators"
DOCUMENT = ROOT / "docs" / "openapi.json"
OPENAPI_GENERATOR = "openapi-generator-cli==7.17.0"
OGEN = "github.com/ogen-go/ogen/cmd/ogen@v1.24.0"


def npm() -> pathlib.Path:
    """Returns the folder of the programs of the packages."""
    installed, packages = FOLDER / "package.json", (HERE / "package.json").read_text()
    if not installed.exists() or installed.read_text() != packages:
        FOLDER.mkdir(parents=True, exist_ok=True)
        installed.write_text(packages)
        run("npm", "install", "--silent", "--no-fund", "--no-audit", "--no-package-lock", cwd=FOLDER)
    return FOLDER / "node_modules" / ".bin"


def openapi_generator(language: str, folder: pathlib.Path, *more: str) -> pathlib.Path:
    """Generates a client. Returns the interpreter of a virtual environment with the generator."""
    environment = FOLDER / "environment"
    if not (environment / "bin" / "openapi-generator-cli").exists():
        venv.create(environment, with_pip=True)
        packages = [OPENAPI_GENERATOR, "pydantic", "python-dateutil", "typing-extensions", "urllib3"]
        run(environment / "bin" / "pip", "install", "--quiet", *packages, cwd=FOLDER)
    generate = ["generate", "-i", DOCUMENT, "-g", language, "-o", folder, *more]
    run(environment / "bin" / "openapi-generator-cli", *generate, cwd=FOLDER)
    return environment / "bin" / "python"


def typescript(name: str, folder: pathlib.Path, env: dict) -> None:
    """Compiles the program of a client and runs it."""
    program = FOLDER / name
    shutil.copy(HERE / f"{name}.ts", program / "main.ts")
    shutil.copy(HERE / "walk.ts", program)
    options = ["--strict", "--target", "es2022", "--module", "esnext", "--moduleResolution", "bundler", "--noEmit"]
    # Node.js has types of its own, of which the programs use only `process`.
    (program / "node.d.ts").write_text("declare const process: { env: Record<string, string | undefined> };\n")
    run(npm() / "tsc", *options, "--lib", "es2022,dom", "--skipLibCheck", "node.d.ts", "main.ts", cwd=program)
    bundle = ["--bundle", "--platform=node", "--format=esm", "--log-level=error", "--outfile=main.mjs"]
    run(npm() / "esbuild", "main.ts", *bundle, cwd=program)
    run("node", "main.mjs", cwd=program, env=env)


def go(name: str, folder: pathlib.Path, env: dict) -> None:
    """Compiles the program of a client in Go and runs it."""
    # A module of its own would have another name.
    for file in ("go.mod", "go.sum"):
        (folder / file).unlink(missing_ok=True)
    for tests in folder.rglob("test"):
        shutil.rmtree(tests)
    shutil.copy(HERE / name / "main.go", folder.parent)
    run("go", "mod", "init", "generated", cwd=folder.parent)
    run("go", "mod", "tidy", cwd=folder.parent)
    run("go", "run", ".", cwd=folder.parent, env=env)


def openapi_typescript(folder: pathlib.Path, env: dict) -> None:
    run(npm() / "openapi-typescript", DOCUMENT, "-o", folder.with_suffix(".ts"), cwd=FOLDER)
    typescript("openapi-typescript", folder, env)


def orval(folder: pathlib.Path, env: dict) -> None:
    output = {"mode": "single", "target": str(folder.with_suffix(".ts")), "client": "fetch"}
    config = {"api": {"input": {"target": str(DOCUMENT)}, "output": output}}
    file = folder.parent / "orval.config.cjs"
    file.write_text(f"module.exports = {json.dumps(config)};\n")
    run(npm() / "orval", "--config", file, cwd=FOLDER)
    typescript("orval", folder, env)


def typescript_fetch(folder: pathlib.Path, env: dict) -> None:
    openapi_generator("typescript-fetch", folder)
    typescript("typescript-fetch", folder, env)


def python(folder: pathlib.Path, env: dict) -> None:
    interpreter = openapi_generator("python", folder)
    run(interpreter, HERE / "walk.py", cwd=folder, env={**env, "PYTHONPATH": str(folder)})


def openapi_generator_go(folder: pathlib.Path, env: dict) -> None:
    openapi_generator("go", folder, "--additional-properties=packageName=client")
    go("openapi-generator-go", folder, env)


def ogen(folder: pathlib.Path, env: dict) -> None:
    run("go", "install", OGEN, cwd=FOLDER, env={"GOBIN": str(FOLDER / "bin")})
    run(FOLDER / "bin" / "ogen", "--target", folder, "--package", "client", "--clean", DOCUMENT, cwd=FOLDER)
    go("ogen", folder, env)


def java(folder: pathlib.Path, _env: dict) -> None:
    openapi_generator("java", folder)
    run("mvn", "--quiet", "compile", cwd=folder)


def rust(folder: pathlib.Path, _env: dict) -> None:
    openapi_generator("rust", folder)
    (folder / "Cargo.toml").open("a").write("\n[workspace]\n")
    run("cargo", "check", "--quiet", cwd=folder, env={"CARGO_TARGET_DIR": str(FOLDER / "rust-target")})


# The name of each, the programs that it needs, and what generates, compiles and runs it.
FAST: list[tuple[str, list[str], Callable]] = [
    ("openapi-typescript", ["npm"], openapi_typescript),
    ("orval", ["npm"], orval),
]
SLOW: list[tuple[str, list[str], Callable]] = [
    ("openapi-generator-python", ["java"], python),
    ("typescript-fetch", ["java", "npm"], typescript_fetch),
    ("openapi-generator-go", ["java", "go"], openapi_generator_go),
    ("ogen", ["go"], ogen),
    ("openapi-generator-java", ["java", "mvn"], java),
    ("openapi-generator-rust", ["java", "cargo"], rust),
]


def check(server: Server, name: str, programs: list[str], test: Callable) -> None:
    missing = [program for program in programs if not shutil.which(program)]
    if missing:
        print(f"NOT RUN: the client of {name}: {', '.join(missing)} is not installed")
        return
    started = time.monotonic()
    shutil.rmtree(FOLDER / name, ignore_errors=True)
    (FOLDER / name).mkdir(parents=True)
    test(FOLDER / name / "client", {"API": server.url, "TOKEN": server.token, "ORG": server.organization})
    print(f"{name}: generated, compiled and called in {time.monotonic() - started:.0f} s")


def main() -> None:
    wanted = os.environ.get("PLATFORM_GENERATORS", "fast")
    chosen = {"fast": FAST, "all": FAST + SLOW}.get(wanted)
    if chosen is None:
        chosen = [one for one in FAST + SLOW if one[0] in wanted.split(",")]
    with running() as server:
        for name, programs, test in chosen:
            check(server, name, programs, test)


if __name__ == "__main__":
    sys.exit(main())
