#!/usr/bin/env python3
"""Measures imports of advisories and exports of their feeds: time, processor time and peak memory of each command.

    cargo build --profile dist -p server
    benches/feeds.py [ADVISORIES...]        by default 100,000 and 1,000,000

Makes documents of Wolfi's form with pseudorandom content, imports them into a new SQLite store with `platform-server import
advisories`, and writes each form with `platform-server export advisories`. For each format it prints how the time compares
with that of the import, and how the peak of memory grows from the first number of advisories to the last.
`BENCH_PROFILE` is the folder of the program under target/ (dist by default).
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
TARGET = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")).resolve()
SERVER = TARGET / os.environ.get("BENCH_PROFILE", "dist") / "platform-server"
FORMATS = ("osv", "secdb", "openvex")
# About as many as a package of a distribution has.
PER_PACKAGE = 20
# The latest events, as often as in the advisories of Wolfi.
EVENTS = (
    *[lambda number: {"type": "fixed", "data": {"fixed-version": f"{number % 7}.{number % 40}.{number % 11}-r{number % 4}"}}] * 7,
    lambda _: {
        "type": "false-positive-determination",
        "data": {"type": "vulnerable-code-not-included-in-package", "note": "The code is not in the package."},
    },
    lambda _: {"type": "pending-upstream-fix", "data": {"note": "The upstream project has no release with a fix."}},
    lambda _: {"type": "detection", "data": {"type": "manual"}},
)


def mix(number: int) -> int:
    mixed = number * 0x9E37_79B9_7F4A_7C15 & (1 << 64) - 1
    return (mixed ^ (mixed >> 29)) * 0xBF58_476D_1CE4_E5B9 & (1 << 64) - 1


def document(package: int, advisories: range) -> str:
    """Returns a document as JSON, which is YAML."""

    def advisory(number: int) -> dict:
        spread = mix(number)
        id = "-".join(f"{spread >> 20 * part & 0xFFFFF:05x}"[-4:] for part in range(3))
        at = f"2025-{spread % 12 + 1:02}-{spread % 28 + 1:02}T00:00:00Z"
        events = [{"timestamp": at, "type": "detection", "data": {"type": "manual"}}]
        latest = EVENTS[(spread >> 8) % len(EVENTS)](spread >> 12)
        return {
            "id": f"CGA-{id}",
            "aliases": [f"CVE-2025-{number}", f"GHSA-{number:012x}"],
            "events": [*events, {"timestamp": at.replace("2025", "2026"), **latest}],
        }

    of_package = [advisory(number) for number in advisories]
    return json.dumps({"schema-version": "2.0.2", "package": {"name": f"package-{package}"}, "advisories": of_package})


def measured(*command: object) -> tuple[float, float, float]:
    """Runs a command of the server, and returns its time, its processor time, and its peak of memory in MB."""
    started = time.monotonic()
    process = subprocess.Popen([SERVER, *command], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    errors = process.stderr.read()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        sys.exit(f"{command}: {errors[-3000:]}")
    return time.monotonic() - started, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024 / 1e6


def run(advisories: int, folder: pathlib.Path) -> dict[str, tuple[float, float, float]]:
    """Measures the import and the exports of this number of advisories."""
    documents, data = folder / "documents", folder / "data"
    documents.mkdir()
    for package in range(-(-advisories // PER_PACKAGE)):
        numbers = range(package * PER_PACKAGE, min((package + 1) * PER_PACKAGE, advisories))
        (documents / f"package-{package}.advisories.yaml").write_text(document(package, numbers))
    at = ("--data-dir", data)
    results = {"import": measured("import", "advisories", *at, "--namespace", "wolfi", documents)}
    organization = json.loads((data / "bootstrap.json").read_text())["organization"]
    for format in FORMATS:
        to = folder / format
        command = ("export", "advisories", *at, "--format", format, "--of", organization, "--namespace", "wolfi", "--to", to)
        results[format] = measured(*command)
        print(f"  {format}: {to.stat().st_size / 1e6:.1f} MB", file=sys.stderr)
        to.unlink()
    return results


def main() -> None:
    if any(not one.isdigit() for one in sys.argv[1:]):
        sys.exit(__doc__)
    numbers = [int(one) for one in sys.argv[1:]] or [100_000, 1_000_000]
    print("| Advisories | | Time | CPU | Peak of memory | Time / import |")
    print("|---|---|---|---|---|---|")
    peaks = []
    for advisories in numbers:
        TARGET.mkdir(exist_ok=True)
        with tempfile.TemporaryDirectory(dir=TARGET) as folder:
            results = run(advisories, pathlib.Path(folder))
        imported = results["import"][0]
        for name, (wall, cpu, peak) in results.items():
            print(f"| {advisories:,} | {name} | {wall:.1f} s | {cpu:.1f} s | {peak:.1f} MB | {wall / imported:.2f} |", flush=True)
        peaks.append(results)
    for format in FORMATS:
        first, last = peaks[0][format][2], peaks[-1][format][2]
        print(f"{format}: peak of memory {last:.1f} MB with {numbers[-1]:,}, {last - first:+.1f} MB compared with {numbers[0]:,}")


if __name__ == "__main__":
    main()
