"""The README's session does what the README shows.

Every `console` block of the README is typed into one shell, and each command's output is compared with what is printed
under it: an ellipsis stands for anything, and uids, times and the port may be others. With `UPDATE_EXPECT=1` the README
is given what the server answered, shortened.
"""

import os
import re
import subprocess
import tempfile
from dataclasses import dataclass, field

from server import ROOT, Server, binary, running

README = ROOT / "README.md"
END = "--- end of the output ---"

# What differs from one run to the next, and the form it has.
VARIABLE = (
    r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z",
    r"[0-9a-f]{40}",
    r"[0-9a-f]{16}",
    r"127\.0\.0\.1:\d+",
)

# What is too long to print, by what it begins with.
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
    """A command, all of its lines, and what is printed under it."""

    text: str
    output: list[str] = field(default_factory=list)


def commands(block: str) -> list[Command]:
    """Reads a block: a `$` begins a command, which goes on to the end of its here-document if it has one."""
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
    """Tells whether an output is what is expected but for what may differ."""
    parts = re.split("(…|" + "|".join(VARIABLE) + ")", expected)
    forms = ("…", *VARIABLE)
    pattern = ""
    for part in parts:
        form = next((form for form in forms if re.fullmatch(form, part)), None)
        pattern += ".*" if form == "…" else form or re.escape(part)
    return re.fullmatch(pattern, output) is not None


def printed(output: str) -> str:
    """Returns an output as the README prints it: shortened, and as of the port that a server listens on by itself."""
    for long in LONG:
        output = re.sub(long, r"\1…", output)
    return re.sub(r"127\.0\.0\.1:\d+", "127.0.0.1:8080", output)


class Shell:
    """A shell in which `platform-server` is the server's own binary."""

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

    def typed(block: re.Match) -> str:
        nonlocal count
        shown = []
        for command in commands(block[1]):
            count += 1
            output = shell.run(command.text)
            expected = "\n".join(command.output)
            if not matches(expected, output):
                faults.append(f"$ {command.text}\nexpected: {expected}\nanswered: {output}\n")
            answered = printed(output)
            shown.append(f"$ {command.text}" + (f"\n{answered}\n" if answered else ""))
        return "```console\n" + "\n".join(shown).rstrip("\n") + "\n```\n"

    with running() as server, tempfile.TemporaryDirectory() as folder:
        shell = Shell(server, folder)
        text = re.sub(r"^```console\n(.*?)^```\n", typed, text, flags=re.M | re.S)
    if update:
        README.write_text(text)
    elif faults:
        raise SystemExit("\n".join(faults))
    print(f"{count} commands of the README do what it shows")


if __name__ == "__main__":
    main()
