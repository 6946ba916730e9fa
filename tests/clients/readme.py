"""Checks the sessions in README.md, docs/quick-start.md, docs/tutorial.md and some pages of docs/how-to against a running server.

Each page gets a server and a shell of its own. Every command of the page's `console` blocks is typed into the shell, in
order, and its output is compared with the output on the page: an ellipsis matches any text, and uids, times and the port
may differ. With `UPDATE_EXPECT=1`, the output on the pages is replaced by the server's, shortened.
"""

import contextlib
import os
import pathlib
import pty
import re
import subprocess
import tempfile
from dataclasses import dataclass, field

from server import ROOT, Server, binary, built, running

HOW_TO = ROOT / "docs" / "how-to"
PAGES = (
    ROOT / "README.md",
    ROOT / "docs" / "quick-start.md",
    ROOT / "docs" / "tutorial.md",
    *(HOW_TO / name for name in ("version-1.md", "backup.md", "command-line.md", "search.md", "observe.md")),
)
# Options of the servers of pages that need other ones.
OPTIONS = {"backup.md": ("--store", "sqlite"), "observe.md": ("--metrics-listen", "127.0.0.1:0", "--slow-request", "1s")}
END = "--- end of the output ---"

# Patterns of values that differ from one run to the next.
VARIABLE = (
    r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z",
    r"[0-9a-f]{40}",
    r"[0-9a-f]{16}",
    r"127\.0\.0\.1:\d+",
)

# Values that are too long to print; the groups before the value are kept.
LONG = (
    r'("nextPageToken":")[\w-]+',
    r"(eyJ)[\w.-]{40,}",
    r"(cgscim_)[0-9a-f]+",
    r'("code":"invite_)[\w-]+',
    r'("capabilities":\["[A-Z_]+",)("[A-Z_]+",?)+',
    r"(sha256:0000)0+(?=0001)",
    r"(request id: )[0-9a-f-]{36}",
)


@dataclass
class Command:
    """A command with all of its lines, and the output under it."""

    text: str
    output: list[str] = field(default_factory=list)


def commands(block: str) -> list[Command]:
    """Splits a block into commands: a `$` starts a command, which includes its here-document if it has one."""
    found: list[Command] = []
    until = None
    for line in block.splitlines():
        if until:
            found[-1].text += f"\n{line}"
            until = None if line == until else until
        elif line.startswith("$ "):
            found.append(Command(line[2:]))
            begun = re.search(r"<<'(\w+)'", line)
            until = begun and begun[1]
        elif line:
            found[-1].output.append(line)
    return found


def matches(expected: str, output: str) -> bool:
    """Returns whether an output equals the expected one, except in values that may differ."""
    parts = re.split("(…|" + "|".join(VARIABLE) + ")", expected)
    forms = ("…", *VARIABLE)
    pattern = ""
    for part in parts:
        form = next((form for form in forms if re.fullmatch(form, part)), None)
        pattern += ".*" if form == "…" else form or re.escape(part)
    return re.fullmatch(pattern, output) is not None


def printed(output: str) -> str:
    """Returns an output as the pages print it: shortened, and with the server's default port."""
    for long in LONG:
        output = re.sub(long, r"\1…", output)
    return re.sub(r"127\.0\.0\.1:\d+", "127.0.0.1:8080", output)


class Shell:
    """A shell in which `platform-server` is the binary of the running server, and `platformctl` has no contexts yet."""

    def __init__(self, server: Server, folder: str):
        self.shell = subprocess.Popen(
            ["bash"], cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        self.run(
            f"""platform-server() {{ '{binary()}' "$@"; }}
            export PLATFORM_DATA_DIR='{server.data}'
            platformctl() {{ '{built("platformctl")}' "$@"; }}
            export PLATFORMCTL_CONFIG='{folder}/platformctl.toml'
            api() {{ curl -s -H "Authorization: Bearer $TOKEN" "$@"; }}
            eval "$(platform-server env)"; export API={server.url}"""
        )
        metrics = re.search(r"serving metrics address=(\S+)", server.log.read_text())
        if metrics:
            self.run(f"export METRICS=http://{metrics[1]}")

    def run(self, command: str) -> str:
        self.shell.stdin.write(f"{command}\necho; echo '{END}'\n")
        self.shell.stdin.flush()
        lines = iter(self.shell.stdout.readline, f"{END}\n")
        return "".join(lines).strip("\n")


def run_page(page: pathlib.Path) -> tuple[str, list[str], int]:
    """Runs the session of a page; returns the page with the server's output, the differences and the number of commands."""
    faults, count = [], 0

    def typed(block: re.Match) -> str:
        nonlocal count
        shown = []
        for command in commands(block[1]):
            count += 1
            output = shell.run(command.text)
            expected = "\n".join(command.output)
            if not matches(expected, output):
                faults.append(f"{page.name}: $ {command.text}\nexpected: {expected}\nactual: {output}\n")
            answered = printed(output)
            shown.append(f"$ {command.text}" + (f"\n{answered}\n" if answered else ""))
        return "```console\n" + "\n".join(shown).rstrip("\n") + "\n```\n"

    with running(*OPTIONS.get(page.name, ())) as server, tempfile.TemporaryDirectory() as folder:
        shell = Shell(server, folder)
        text = re.sub(r"^```console\n(.*?)^```\n", typed, page.read_text(), flags=re.M | re.S)
    return text, faults, count


def on_a_terminal(command: list) -> str:
    """Runs a command, and returns what it draws on a terminal as standard error. Its output is a pipe."""
    ours, theirs = pty.openpty()
    # Wide enough for a bar.
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "100"}
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=theirs, env=environment) as process:
        os.close(theirs)
        parts = []
        # At the end, Linux reports an error instead of an empty read.
        with contextlib.suppress(OSError):
            while part := os.read(ours, 65536):
                parts.append(part)
        os.close(ours)
    drawn = b"".join(parts).decode(errors="replace")
    assert process.returncode == 0, drawn
    return drawn


def check_progress() -> None:
    """Commands on backups show their progress on a terminal, and nothing where standard error is none."""
    with running("--store", "sqlite") as server, tempfile.TemporaryDirectory() as folder:
        backup = ["backup", "--data-dir", server.data, "--to", f"{folder}/a.tar"]
        verify = ["backup", "verify", f"{folder}/a.tar"]
        restore = ["restore", "--from", f"{folder}/a.tar", "--data-dir", f"{folder}/restored"]
        for arguments, shown in ((backup, "wrote"), (verify, "unpacked"), (restore, "unpacked")):
            drawn = on_a_terminal([binary(), *arguments])
            assert shown in drawn, (arguments, drawn)
        quiet = subprocess.run([binary(), *verify], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=True)
        assert not quiet.stderr, quiet.stderr
    print("backup, verify and restore show their progress on a terminal alone")


def main() -> None:
    check_progress()
    update = os.environ.get("UPDATE_EXPECT")
    failed = []
    for page in PAGES:
        text, faults, count = run_page(page)
        # A page without commands would pass without checking anything.
        assert count, f"{page.name} has no console block"
        if update:
            page.write_text(text)
        else:
            failed += faults
        print(f"{page.name}: {count} commands, {len(faults)} of them with another output than on the page")
    if failed:
        raise SystemExit("\n".join(failed))


if __name__ == "__main__":
    main()
