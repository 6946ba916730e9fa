"""Builds the programs of a check in several languages. Their sources are in a folder beside the check, the builds in target/."""

import os
import pathlib
import shutil
import subprocess

from sdk import go
from server import ROOT


def run(*command: object, cwd: pathlib.Path, env: dict | None = None) -> None:
    """Runs a command, whose output is shown only if it fails."""
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, env={**os.environ, **(env or {})})
    if done.returncode:
        raise SystemExit(f"{command}: {done.stdout[-5000:]}{done.stderr[-5000:]}")


def lacking(programs: list[str]) -> list[str]:
    """Returns those of these programs that are not installed."""
    return [program for program in programs if not (go() if program == "go" else shutil.which(program))]


class Programs:
    """The programs of a check. The methods build one and return its command."""

    def __init__(self, check: str):
        self.source = pathlib.Path(__file__).resolve().parent / check
        self.folder = ROOT / "target" / f"clients-{check}"

    def copied(self, language: str, *files: str) -> pathlib.Path:
        """Returns the folder in which a program is built, with its files."""
        made = self.folder / language
        made.mkdir(parents=True, exist_ok=True)
        for file in files:
            shutil.copy(self.source / file, made)
        return made

    def node(self, name: str) -> list:
        at = self.copied("node", "package.json", f"{name}.mjs")
        run("npm", "install", "--silent", "--no-fund", "--no-audit", "--no-package-lock", cwd=at)
        return ["node", at / f"{name}.mjs"]

    def go(self, name: str, *libraries: str) -> list:
        at = self.copied("go", "main.go")
        if not (at / "go.mod").exists():
            run(go(), "mod", "init", f"example.com/{name}", cwd=at)
        run(go(), "get", *libraries, cwd=at)
        # `go mod tidy` would download what only the tests of dependencies need.
        run(go(), "build", "-mod=mod", "-o", name, ".", cwd=at)
        return [at / name]

    def java(self, name: str) -> list:
        at = self.copied("java", "java/pom.xml", f"java/{name}.java")
        run("mvn", "--quiet", "--batch-mode", "dependency:copy-dependencies", "-DoutputDirectory=lib", cwd=at)
        return ["java", "-cp", f"{at}/lib/*", at / f"{name}.java"]
