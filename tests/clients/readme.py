"""Compares the session in the README with the actual output.

Runs the commands of all `console` blocks of the README in one shell, and compares the output of each with the text below
it: an ellipsis matches anything, and uids, times and the port may differ. With `UPDATE_EXPECT=1` the README is updated
with the actual output, shortened.
"""

import os
import re
import subprocess
import tempfile
from dataclasses import dataclass, field

from server import ROOT, Server, binary, running

README = ROOT / "README.md"
END = "--- end of the output ---"

# Patterns of values that differ between runs.
VARIABLE = (
    r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z",
    r"[0-9a-f]{40}",
    r"[0-9a-f]{16}",
    r"127\.0\.0\.1:\d+",
)

# Values too long to print; the first group is the part that is shown.
LONG = (
    r'("nextPageToken":")[\w-]+',
    r"(eyJ)[\w.-]{40,}",
    r"(cgscim_)[0-9a-f]+",
    r'("code":"invite_)[\w-]+',
    r'("capabilities":\["[A-Z_]+",)("[A-Z_]+",?)+',
    r"(sha256:0000)0+(?=0001)",
)


@dataclass
class Command:
    """A command with all of its lines, and its expected output."""

    text: str
    output: list[str] = field(default_factory=list)


def commands(block: str) -> list[Command]:
    """Parses a block: each `$` starts a command, which includes its here-document if it has one."""
    found: list[Command] = []
    until = None
    for line in block.splitlines():
        if until:
            found[-1].text += f"\n{line}"
            until = None if line == until else until
        elif line.startswith("$ "):
            found.append(Command(line[2:]))
            heredoc = re.search(r"<<'(\w+)'", line)
            until = heredoc and heredoc[1]
        elif line:
            found[-1].output.append(line)
    return found


def matches(expected: str, output: str) -> bool:
    """Returns whether an output matches the expected one, except for values that may differ."""
    parts = re.split("(…|" + "|".join(VARIABLE) + ")", expected)
    forms = ("…", *VARIABLE)
    pattern = ""
    for part in parts:
        form = next((form for form in forms if re.fullmatch(form, part)), None)
        pattern += ".*" if form == "…" else form or re.escape(part)
    return re.fullmatch(pattern, output) is not None


def printed(output: str) -> str:
    """Returns an output as the README shows it: shortened, and with the default port."""
    for long in LONG:
        output = re.sub(long, r"\1…", output)
    return re.sub(r"127\.0\.0\.1:\d+", "127.0.0.1:8080", output)


class Shell:
    """A shell in which `platform-server` runs the checked binary."""

    def __init__(self, server: Server, folder: str):
        self.shell = subprocess.Popen(
            ["bash"], cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        self.run(
            f"""platform-server() {{ '{binary()}' "$@" --data-dir '{server.data}'; }}
            api() {{ curl -s -H "Authorization: Bearer $TOKEN" "$@"; }}
            eval "$(platform-server env)"; export API={server.url}"""
        )

    def run(self, command: str) -> str:
        self.shell.stdin.write(f"{command}\necho; echo '{END}'\n")
        self.shell.stdin.flush()
        lines = iter(self.shell.stdout.readline, f"{END}\n")
        return "".join(lines).strip("\n")


def main() -> None:
    update = os.environ.get("UPDATE_EXPECT")
    text = README.read_text()
    faults, count = [], 0

    def run_block(block: re.Match) -> str:
        nonlocal count
        shown = []
        for command in commands(block[1]):
            count += 1
            output = shell.run(command.text)
            expected = "\n".join(command.output)
            if not matches(expected, output):
                faults.append(f"$ {command.text}\nexpected: {expected}\nactual: {output}\n")
            actual = printed(output)
            shown.append(f"$ {command.text}" + (f"\n{actual}\n" if actual else ""))
        return "```console\n" + "\n".join(shown).rstrip("\n") + "\n```\n"

    with running() as server, tempfile.TemporaryDirectory() as folder:
        shell = Shell(server, folder)
        text = re.sub(r"^```console\n(.*?)^```\n", run_block, text, flags=re.M | re.S)
    if update:
        README.write_text(text)
    elif faults:
        raise SystemExit("\n".join(faults))
    print(f"{count} commands of the README have the output that it shows")


if __name__ == "__main__":
    main()
