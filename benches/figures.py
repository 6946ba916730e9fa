#!/usr/bin/env python3
"""Runs the programs of this folder and writes their figures as one document.

    cargo build --profile dist --workspace --bins
    benches/figures.py FILE [ROW...]        all rows, or some: the numbers of ROWS below

The document has the commands, the environment variables and what each figure was before. `BENCH_PROFILE` is the folder of
the programs under target/ (dist by default), `BENCH_STATE` describes the machine in the document, and the variables of
README.md set the sizes. A program that fails is named in the document, and ends the run with an error at the end.
"""

import os
import pathlib
import re
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent
TARGET = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")).resolve()
PROFILE = os.environ.get("BENCH_PROFILE", "dist")
VARIABLES = ("BENCH_", "BULK_")

# Number, program with its figures, the figures that belong to the row (a prefix of their names), and what they were.
ROWS = [
    (1, "load creates", "http creates: 64 clients / one", "3.4 to 4.3"),
    (2, "load creates", "http creates: 64 clients, us", "290 to 317"),
    (3, "ratio written", "written: on", "23 to 35 KB"),
    (4, "ratio creates", "creates: one client", ""),
    (5, "bulk advisories", "bulk advisories", "37 minutes, 84 GB written for a file of 4 GB"),
    (6, "bulk repos", "bulk repos", "one order: 21 (507 s, 24 s), file 2.3 (1.3 GB)"),
    (7, "events recording creates", "recording:|creates with delivery:", "0.80, 0.76; with delivery 0.73, 0.69"),
    (7, "load recording", "recording over HTTP", ""),
    (8, "ratio cold", "cold: page", "4.1 to 5.0 against the covering index"),
    (9, "ratio cold-disk", "cold-disk: page", ""),
    (10, "ratio cold", "cold: get", "2.0 to 2.6"),
    (11, "load many", "http list: [0-9]+ organizations", ""),
    (12, "load skip", "http skip: SQLite", "3,240 a second, 476 us"),
    (13, "load list-sqlite list-memory", "http list: (SQLite of|memory)", "memory 2.7 to 3.2, SQLite 4.1 to 4.8"),
    (14, "load get", "http get: [^s]", "2.4 in turn, 3.3 at random"),
    (15, "grpc", "grpc", "list 1.14, get 1.13"),
    (16, "ratio memory", "memory:", "324 bytes"),
    (17, "ratio flat-memory flat-sqlite total", "flat: |total:", "to 1,000,000 only"),
    (18, "ratio writers", "writers:", "1.34"),
    (19, "ratio neighbor", "neighbor:", ""),
    (20, "ratio walk", "walk:", ""),
    (21, "ratio open", "open:", ""),
    (22, "load start", "start:", "200 ms, 50 MB"),
    (23, "load sled", "http .*sled", "list 275 us, skip 20 ms, 2,070 creates a second"),
    (23, "ratio sled flat-sled", ".*sled", ""),
    (24, "ratio engines", "engines:", ""),
]


def run(command: str) -> tuple[list[list[str]], str]:
    """Runs a program. Returns the fields of its lines, and why it has failed, if it has."""
    program, *figures = command.split()
    path = TARGET / PROFILE / program
    if not path.exists():
        return [], f"{path.name} is not built"
    print(command, file=sys.stderr)
    done = subprocess.run([path, *figures], env={**os.environ, "BENCH_TSV": "1"}, stdout=subprocess.PIPE, text=True)
    lines = [line.split("\t") for line in done.stdout.splitlines() if line.count("\t") == 7]
    return lines, f"ended with {done.returncode}" if done.returncode else ""


def main() -> None:
    if len(sys.argv) < 2 or sys.argv[1].startswith("-"):
        sys.exit(__doc__)
    wanted = [int(number) for number in sys.argv[2:]] or [row for row, *_ in ROWS]
    rows = [row for row in ROWS if row[0] in wanted]
    done: dict[str, tuple[list[list[str]], str]] = {}
    failed = []
    for _, command, _, _ in rows:
        if command not in done:
            done[command] = run(command)
            # After each, so that a run that is interrupted leaves what it has.
            failed = write(pathlib.Path(sys.argv[1]), [row for row in rows if row[1] in done], done)
    if failed:
        sys.exit("\n".join(failed))


def write(path: pathlib.Path, rows: list, done: dict[str, tuple[list[list[str]], str]]) -> list[str]:
    """Writes the document. Returns the rows without figures, with the reasons."""
    settings = sorted(f"{name}={value}" for name, value in os.environ.items() if name.startswith(VARIABLES))
    settings = [one for one in settings if not one.startswith(("BENCH_STATE", "BENCH_PROFILE", "BENCH_TSV"))]
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    lines = [
        "# Figures",
        "",
        f"Written by `benches/figures.py` at commit {commit.stdout.strip()}, profile `{PROFILE}`. "
        f"State of the machine: {os.environ.get('BENCH_STATE', 'not stated')}.",
        f"Sizes: {', '.join(f'`{one}`' for one in settings) or 'the defaults'}; README.md has the defaults. Data and",
        "requests are pseudorandom, by `mix` in `src/data.rs`, so each run has the same.",
        "",
        "README.md describes A and B. Values are ratios of A to B, or quantities in the unit of the name.",
        "",
        "| Row | Figure | A | B | Value | CPU | Must | Aim | Verdict | Before |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    failed = []
    for number, command, pattern, before in rows:
        found, why = done[command]
        matching = [one for one in found if re.match(pattern, one[0])]
        if why or not matching:
            failed.append(f"row {number}: `{command}` {why or 'has printed no such figure'}")
            lines.append(f"| {number} | `{command}`: {failed[-1]} | | | | | | | NOT RUN | {before} |")
        lines += [f"| {number} | " + " | ".join(one) + f" | {before} |" for one in matching]
    lines += ["", "| Rows | Command |", "|---|---|"]
    for command in done:
        of = ", ".join(str(number) for number, of, _, _ in rows if of == command)
        lines.append(f"| {of} | `target/{PROFILE}/{command}` |")
    path.write_text("\n".join(lines) + "\n")
    return failed


if __name__ == "__main__":
    main()
