"""Types the commands of README.md, CONTRIBUTING.md and all pages below docs and benches.

Each page gets a server and a shell of its own, in which its blocks are typed in their order.

- In a `console` block, the output of each command is compared with the output on the page: an ellipsis matches any text, and
  uids, times and the port may differ. With `UPDATE_EXPECT=1`, the output on the pages is replaced by the server's, shortened.
- In an `sh` block, every command must succeed. A request that is answered with an error fails. A server that a command
  starts is stopped as soon as it listens.
- A block after a comment `<!-- not typed: REASON -->` is not typed; the reasons are printed. There is no other exception, so
  that a new block is typed or has a reason.

`PLATFORM_PAGES="api.md console.md"` selects pages.
"""

import contextlib
import os
import pathlib
import pty
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field

from database import install
from server import ROOT, Server, binary, built, running

PAGES = (
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted((ROOT / "docs" / "how-to").glob("*.md")),
    ROOT / "benches" / "README.md",
)
# Options of the servers of pages that need other ones.
OPTIONS = {
    "backup.md": ("--store", "sqlite"),
    "observe.md": ("--metrics-listen", "127.0.0.1:0", "--slow-request", "1s"),
    "operate.md": ("--store", "sqlite"),
}
# Writes the example of a page in YAML into a file.
EXAMPLE = f"sed -n '/^```yaml/,/^```/{{{{/^```/d;p}}}}' {ROOT}/docs/how-to/{{page}} > {{name}}"
ACME = """
    export PLATFORM_API="$API" PLATFORM_TOKEN="$TOKEN"
    ACME=$(platformctl create groups --name acme -o name)
    TEAM=$(platformctl create groups --under "$ACME" --name team -o name)
    for name in robot ci; do
      api -o /dev/null -d '{"name":"'$name'","claimMatch":{"issuer":"https://issuer.example.com","subject":"'$name'"}}' \\
        "$API/iam/v2/identities/$ACME"
    done
"""
# What a reader has at the `sh` blocks of these pages that begin with these words, as commands that are typed before them.
GIVEN = {
    "api.md": {
        "": """
            ROBOT='{"name":"robot","claimMatch":{"issuer":"https://issuer.example.com","subject":"robot"}}'
            DIGEST=sha256:$(openssl rand -hex 32)
            REPO=$(api -d "{\\"name\\":\\"web-$RANDOM\\"}" "$API/registry/v2/repos/$ORG_ID" | jq -r .uid)
            IDENTITY=$(api -d "$ROBOT" "$API/iam/v2/identities/$ORG_ID" | jq -r .uid)
        """
    },
    "command-line.md": {
        "platformctl create repos --under acme/team": f"""{ACME}
            platformctl create role-bindings --under "$ACME" --identity-uid acme/ci --role-uid viewer
            echo 'A web server.' > README.md
            export EDITOR="sed -i 's/a web server/a proxy/'"
        """,
        "platformctl apply -f team.yaml": EXAMPLE.format(page="command-line.md", name="team.yaml"),
    },
    "concepts.md": {"": "REPO=$(platformctl --api $API --token $TOKEN create repos --under $ORG_ID --name nginx -o name)"},
    "console.md": {"platformctl find": f"{ACME} platformctl create repos --under acme/team --name nginx"},
    "search.md": {"platformctl get repos --filter 'description": ACME},
    "emulator.md": {"SEEDED=": EXAMPLE.format(page="emulator.md", name="seed.yaml")},
    "operate.md": {
        "curl -X PUT": """
            ROBOT='{"name":"robot","claimMatch":{"issuer":"https://issuer.example.com","subject":"robot"}}'
            IDENTITY=$(api -d "$ROBOT" "$API/iam/v2/identities/$ORG_ID" | jq -r .uid)
            JTI=$(openssl rand -hex 16)
        """,
        "platform-server keys revoke": "KEY=$(platform-server keys list | awk '/webhook +old/ { key = $NF } END { print key }')",
    },
}
END = "--- end of the output ---"
FAILED = "--- failed: "
BLOCK = re.compile(
    r"^(?:<!-- not typed: (?P<reason>[^>]+) -->\n)?```(?P<language>console|sh)\n(?P<text>.*?)^```\n", re.M | re.S
)

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
        self.server, self.folder = server, pathlib.Path(folder)
        self.shell = subprocess.Popen(
            ["bash"], cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        programs = binary().parent
        self.run(
            f"""PROGRAMS='{programs}'
            platform-server() {{ started '{binary()}' "$@"; }}
            # Of `cargo run OPTIONS -- ARGUMENTS`, what a build has made before. Everything else has no other form here.
            cargo() {{
              local name=platform-server
              test "$1" = run || return
              while test $# -gt 0 && test "$1" != --; do
                case "$1" in -p | --bin) name=$2 ;; --example) name=examples/$2 ;; esac
                shift
              done
              shift
              case "$name" in own-server) name=ticket-server ;; esac
              started "$PROGRAMS/$name" "$@"
            }}
            started() {{
              case "$2" in
              serve | dev) '{sys.executable}' '{__file__}' started "$@" ;;
              *) "$@" ;;
              esac
            }}
            export PLATFORM_DATA_DIR='{server.data}'
            # "no" is an answer, too.
            platformctl() {{
              '{built("platformctl")}' "$@"
              local status=$?
              test "$1 $status" = "can-i 1" || return $status
            }}
            export PLATFORMCTL_CONFIG='{folder}/platformctl.toml'
            # Where a page prints the status, it is the answer.
            curl() {{
              case " $* " in
              *" -w "*) command curl "$@" ;;
              *) command curl --fail-with-body "$@" ;;
              esac
            }}
            api() {{ curl -s -H "Authorization: Bearer $TOKEN" "$@"; }}
            export API={server.url} ORG_ID={server.organization} TOKEN={server.token}"""
        )
        metrics = re.search(r"serving metrics address=(\S+)", server.log.read_text())
        if metrics:
            self.run(f"export METRICS=http://{metrics[1]}")

    def run(self, command: str) -> str:
        self.shell.stdin.write(f"{command}\necho; echo '{END}'\n")
        self.shell.stdin.flush()
        lines = iter(self.shell.stdout.readline, f"{END}\n")
        return "".join(lines).strip("\n")

    def run_block(self, text: str) -> str:
        """Runs a block of commands without standard input. Its output has `FAILED` before each that did not succeed."""
        block = self.folder / "block"
        block.write_text(text)
        return self.run(
            f"""set -o pipefail; trap 'echo "{FAILED}$BASH_COMMAND"' ERR
            source {block} < /dev/null
            trap - ERR; set +o pipefail
            api() {{ curl -s -H "Authorization: Bearer $TOKEN" "$@"; }}; export API={self.server.url}"""
        )


@contextlib.contextmanager
def emulated():
    """Starts an emulator, and stops it at the end."""
    with tempfile.TemporaryDirectory() as folder:
        log = pathlib.Path(folder) / "log"
        command = [binary(), "dev", "--listen", "127.0.0.1:0"]
        with log.open("w") as errors, subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True) as process:
            values = {}
            for line in process.stdout:
                values |= dict(re.findall(r"(\w+)='?([^\s']+)", line))
                if "TOKEN" in values:
                    break
            yield Server(values["API"], pathlib.Path(folder), values["ORG_ID"], values["TOKEN"], log)
            process.terminate()


class Page:
    """A page, whose blocks are typed into the shell of a server."""

    def __init__(self, path: pathlib.Path):
        self.path, self.text = path, path.read_text()
        self.faults, self.reasons, self.count = [], [], 0
        self.shell: Shell

    def type(self) -> str:
        """Types the blocks. Returns the page with the output of the server."""
        blocks = [block for block in BLOCK.finditer(self.text) if not block["reason"]]
        self.reasons = [block["reason"] for block in BLOCK.finditer(self.text) if block["reason"]]
        if not blocks:
            return self.text
        start = emulated() if self.path.name == "emulator.md" else running(*OPTIONS.get(self.path.name, ()))
        with start as server, tempfile.TemporaryDirectory() as folder:
            self.shell = Shell(server, folder)
            return BLOCK.sub(self.typed, self.text)

    def typed(self, block: re.Match) -> str:
        if block["reason"]:
            return block[0]
        for start, given in GIVEN.get(self.path.name, {}).items():
            if block["language"] == "sh" and block["text"].startswith(start):
                self.succeeds(given)
        return self.compared(block["text"]) if block["language"] == "console" else self.succeeds(block["text"]) or block[0]

    def compared(self, text: str) -> str:
        """Types the commands of a `console` block, and compares their output with the one on the page."""
        shown = []
        for command in commands(text):
            self.count += 1
            output = self.shell.run(command.text)
            expected = "\n".join(command.output)
            if not matches(expected, output):
                self.faults.append(f"{self.path.name}: $ {command.text}\nexpected: {expected}\nactual: {output}\n")
            answered = printed(output)
            shown.append(f"$ {command.text}" + (f"\n{answered}\n" if answered else ""))
        return "```console\n" + "\n".join(shown).rstrip("\n") + "\n```\n"

    def succeeds(self, text: str) -> None:
        """Types the commands of an `sh` block, each of which must succeed."""
        self.count += 1
        output = self.shell.run_block(text)
        # The trap of the shell also sees that the block as a whole failed.
        if failed := [line for line in output.splitlines() if line.startswith(FAILED) and " source " not in line]:
            self.faults.append(f"{self.path.name}:\n{text}{output[:4000]}\n{failed}\n")


def started(command: list[str]) -> int:
    """Runs a server, on a free port and with data of its own, until it listens. Returns 0 if it then stops without an error."""
    if "--listen" in command:
        command[command.index("--listen") + 1] = "127.0.0.1:0"
    else:
        command += ["--listen", "127.0.0.1:0"]
    environment = {**os.environ, "PLATFORM_DATA_DIR": tempfile.mkdtemp(dir=".")}
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, env=environment) as process:
        line = process.stdout.readline()
        process.terminate()
    print(line)
    return process.returncode if line.startswith("Listening on ") else 1


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


def check_embed() -> None:
    """The request on the page about embedding is answered by the example, which listens on a port of its own choice."""
    page = (ROOT / "docs" / "how-to" / "embed.md").read_text()
    request = re.search(r"^curl .*http://127\.0\.0\.1:8081/\S+$", page, re.M)[0]
    with tempfile.TemporaryDirectory() as folder, subprocess.Popen([built("embed")], cwd=folder) as process:
        command = f"{request} --silent --fail --retry 20 --retry-connrefused"
        answer = subprocess.run(command, shell=True, stdout=subprocess.PIPE, text=True)
        process.kill()
    assert answer.returncode == 0 and '"viewer"' in answer.stdout, (command, answer)


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
    if not shutil.which("jq"):
        install("jq")
    check_progress()
    check_embed()
    update = os.environ.get("UPDATE_EXPECT")
    failed = []
    chosen = os.environ.get("PLATFORM_PAGES", "").split()
    for path in (path for path in PAGES if not chosen or path.name in chosen):
        page = Page(path)
        text = page.type()
        if update:
            path.write_text(text)
        failed += page.faults
        print(f"{path.name}: {page.count} commands and blocks were typed, {len(page.faults)} of them not as on the page")
        for reason in page.reasons:
            print(f"    a block was not typed: {reason}")
    if failed:
        raise SystemExit("\n".join(failed))


if __name__ == "__main__":
    if sys.argv[1:2] == ["started"]:
        sys.exit(started(sys.argv[2:]))
    main()
