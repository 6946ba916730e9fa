"""Exchanges signed requests of AWS for tokens with the programs of docs/how-to/sign-in.md, with the emulator as the STS of AWS.

Each program signs with the library of its language and prints a token. The server sends the signed request to the
emulator, which verifies the signature with the key of the seed, and names the account and ARN of the seed. A wrong key, a
session token, throttling and an outage are those of the emulator, too. The programs also exchange their requests at the
emulator itself, whose API answers for the endpoints of AWS in process.

`PLATFORM_AWS_CLIENTS` chooses programs (default: python,javascript,go,curl; rust takes longer to build).
"""

import concurrent.futures
import contextlib
import json
import os
import pathlib
import re
import shutil
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable

from programs import Programs, lacking, run
from server import ROOT, Server, binary, running
from signin import claims, who_am_i

PAGE = ROOT / "docs" / "how-to" / "sign-in.md"
OURS, OF_PAGE = Programs("aws"), Programs("aws-page")
GO_LIBRARY = "github.com/aws/aws-sdk-go-v2@v1.48.0"
VIEWER = "63921b2c44617e3f2603851537be0123af4a57d7"
ACCOUNT, ARN, USER_ID = "123456789012", "arn:aws:sts::123456789012:assumed-role/deploy/run-7", "AROAEXAMPLE:run-7"
# The keys of the examples in the documentation of AWS, and a temporary one.
KEYS = {"AWS_ACCESS_KEY_ID": "AKIAIOSFODNN7EXAMPLE", "AWS_SECRET_ACCESS_KEY": "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"}
TEMPORARY = {
    "AWS_ACCESS_KEY_ID": "ASIAIOSFODNN7EXAMPLE",
    "AWS_SECRET_ACCESS_KEY": "another/Secret+Key",
    "AWS_SESSION_TOKEN": "a/b+c==",
}
SEED = {
    "awsPrincipals": [
        {"accessKeyId": key["AWS_ACCESS_KEY_ID"], "secretAccessKey": key["AWS_SECRET_ACCESS_KEY"],
         "sessionToken": key.get("AWS_SESSION_TOKEN", ""), "account": ACCOUNT, "arn": ARN, "userId": USER_ID}
        for key in (KEYS, TEMPORARY)
    ],
}  # fmt: skip
AWS_IDENTITY = {"name": "deploy", "awsIdentity": {
    "awsAccount": ACCOUNT, "arnPattern": "arn:aws:sts::123456789012:assumed-role/deploy/.*", "userIdPattern": "AROAEXAMPLE:.*",
}}  # fmt: skip


def on_page(heading: str, file: str) -> pathlib.Path:
    """Writes the program of the page under a heading to a file from which it is built."""
    text = re.search(rf"^### {re.escape(heading)}\n.*?^```\w+\n(.*?)^```$", PAGE.read_text(), re.M | re.S)[1]
    at = OF_PAGE.source = OF_PAGE.folder / "source"
    (at / file).parent.mkdir(parents=True, exist_ok=True)
    (at / file).write_text(text)
    return at / file


def python() -> list:
    return [sys.executable, on_page("Python with botocore", "aws.py")]


def javascript() -> list:
    at = on_page("JavaScript with @smithy/signature-v4", "aws.mjs").parent
    shutil.copy(OURS.source / "package.json", at)
    return OF_PAGE.node("aws")


def golang() -> list:
    on_page("Go with aws-sdk-go-v2", "main.go")
    return OF_PAGE.go("aws", GO_LIBRARY)


def rust() -> list:
    at = on_page("Rust with aws-sigv4", "rust/src/main.rs").parent.parent
    for name in ("Cargo.toml", "Cargo.lock"):
        shutil.copy(OURS.source / "rust" / name, at)
    # A build of its own: its features must not change those of the workspace.
    run("cargo", "build", "--quiet", "--locked", cwd=at, env={"CARGO_TARGET_DIR": str(OF_PAGE.folder / "rust")})
    return [OF_PAGE.folder / "rust" / "debug" / "aws"]


def curl() -> list:
    return ["bash", "-o", "pipefail", "-e", on_page("Shell with curl", "aws.sh")]


# The programs that each needs, and what builds it and returns its command.
CLIENTS: dict[str, tuple[list[str], Callable[[], list]]] = {
    "python": ([], python),
    "javascript": (["npm", "node"], javascript),
    "go": (["go"], golang),
    "rust": (["cargo"], rust),
    "curl": (["curl", "jq", "base64"], curl),
}


def missing(name: str) -> str:
    """Returns why a program cannot run here; empty if it can."""
    programs = lacking(CLIENTS[name][0])
    if programs:
        return f"{', '.join(programs)} is not installed"
    if name == "curl" and "--aws-sigv4" not in subprocess.run(["curl", "--help", "all"], capture_output=True, text=True).stdout:
        return "curl is older than 7.75 and has no --aws-sigv4"
    return ""


def write_certificates(folder: pathlib.Path) -> tuple[pathlib.Path, pathlib.Path]:
    """Makes a certification authority and a certificate of it for 127.0.0.1. Returns it, and the certificate with its key."""
    ca, ca_key, request, certificate = (folder / name for name in ("ca.pem", "ca.key", "request.pem", "server.pem"))
    key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
    run("openssl", "req", "-x509", *key, "-days", "1", "-subj", "/CN=ca", "-keyout", ca_key, "-out", ca, cwd=folder)
    name = ["-subj", "/CN=aws", "-addext", "subjectAltName=IP:127.0.0.1"]
    run("openssl", "req", *key, *name, "-keyout", folder / "server.key", "-out", request, cwd=folder)
    sign = ["-CA", ca, "-CAkey", ca_key, "-days", "1", "-copy_extensions", "copy"]
    run("openssl", "x509", "-req", "-in", request, *sign, "-out", certificate, cwd=folder)
    certificate.write_text(certificate.read_text() + (folder / "server.key").read_text())
    return ca, certificate


@contextlib.contextmanager
def with_tls(target: int, certificate: pathlib.Path):
    """Forwards TLS connections to a port without TLS. Yields the host with its port."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    listener = socket.create_server(("127.0.0.1", 0), backlog=64)

    def copy(source: socket.socket, to: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while part := source.recv(65536):
                to.sendall(part)
        for one in (source, to):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def forward(client: socket.socket) -> None:
        with contextlib.suppress(OSError):
            encrypted = context.wrap_socket(client, server_side=True)
            plain = socket.create_connection(("127.0.0.1", target))
            threading.Thread(target=copy, args=(plain, encrypted), daemon=True).start()
            copy(encrypted, plain)

    def accept() -> None:
        with contextlib.suppress(OSError):
            while True:
                threading.Thread(target=forward, args=(listener.accept()[0],), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    try:
        yield f"127.0.0.1:{listener.getsockname()[1]}"
    finally:
        listener.close()


@contextlib.contextmanager
def emulator(folder: pathlib.Path):
    """Runs the emulator with the principals of the seed."""
    seed = folder / "seed.yaml"
    seed.write_text(json.dumps(SEED))
    command = [binary(), "dev", "--listen", "127.0.0.1:0", "--seed", seed]
    with (folder / "emulator.log").open("w") as log:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
        try:
            line = process.stdout.readline()
            if not line.startswith("Listening on "):
                raise SystemExit(f"the emulator does not start: {line}{(folder / 'emulator.log').read_text()}")
            url, values = line.split()[2], {}
            while "TOKEN" not in values:
                words = process.stdout.readline().split()
                values |= dict(word.split("=", 1) for word in words if words[0] == "export" and "=" in word)
            yield Server(url, folder, values["ORG_ID"], values["TOKEN"], folder / "emulator.log")
        finally:
            process.terminate()
            process.wait(timeout=30)


def exchanged(command: list, server: Server, identity: str, env: dict) -> subprocess.CompletedProcess:
    """Runs a program in an environment that has the keys of AWS and nothing else of it."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    env = clean | {"API": server.url, "IDENTITY": identity, "AWS_REGION": "us-east-1", "AWS_EC2_METADATA_DISABLED": "true"} | env
    # That of curl writes a file into its folder.
    return subprocess.run(command, cwd=server.log.parent, env=env, capture_output=True, text=True, timeout=60)


def check(name: str, command: list, server: Server, identity: str, env: dict) -> None:
    """Runs a program, and checks that its token is one of the identity, on behalf of the ARN that AWS named."""
    done = exchanged(command, server, identity, env)
    assert done.returncode == 0, f"{name}: {done.stdout}{done.stderr}"
    token = done.stdout.strip()
    found = claims(token)
    act = {"iss": "https://sts.amazonaws.com", "sub": ARN, "aud": server.url}
    assert (found["sub"], found["aud"], found["act"]) == (identity, server.url, act), (name, found)
    assert who_am_i(server, token)["subject"] == identity, name


def refused(command: list, server: Server, emulated: Server, identity: str, env: dict, fault: str) -> str:
    """Returns what the program in Python writes when AWS answers with this fault, once."""
    emulated.call("POST", "/_emulator/faults", {"method": "Aws.GetCallerIdentity", "code": fault, "times": 1})
    done = exchanged(command, server, identity, env)
    assert done.returncode != 0, fault
    return done.stderr


def identity_of(server: Server) -> str:
    """Creates an identity for the principal, which may see its organization."""
    identity = server.call("POST", f"/iam/v2/identities/{server.organization}", AWS_IDENTITY)["uid"]
    server.call("POST", f"/iam/v2/roleBindings/{server.organization}", {"identityUid": identity, "roleUid": VIEWER})
    return identity


def main() -> None:
    chosen = os.environ.get("PLATFORM_AWS_CLIENTS", "python,javascript,go,curl").split(",")
    for name in chosen:
        if why := missing(name):
            print(f"NOT RUN: AWS identities with {name}: {why}")
    chosen = [name for name in chosen if not missing(name)]
    with concurrent.futures.ThreadPoolExecutor() as pool:
        commands = dict(zip(chosen, pool.map(lambda name: CLIENTS[name][1](), chosen)))
    with contextlib.ExitStack() as stack:
        folder = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory()))
        emulated = stack.enter_context(emulator(folder))
        ca, certificate = write_certificates(folder)
        host = stack.enter_context(with_tls(int(emulated.url.rsplit(":", 1)[1]), certificate))
        server = stack.enter_context(running("--outbound-ca", str(ca), "--aws-sts-host", host))
        identity, of_emulator = identity_of(server), identity_of(emulated)
        env = {"AWS_ENDPOINT_URL_STS": f"https://{host}", "CURL_CA_BUNDLE": str(ca)}
        for name, command in commands.items():
            for keys in (KEYS, TEMPORARY):
                check(name, command, server, identity, env | keys)
            # The API of the emulator asks no host: it answers for the signed request itself.
            if name != "curl":
                check(name, command, emulated, of_emulator, KEYS)
            for wrong in (KEYS | {"AWS_SECRET_ACCESS_KEY": "wrong"}, KEYS | {"AWS_ACCESS_KEY_ID": "AKIAUNKNOWN"}):
                assert exchanged(command, server, identity, env | wrong).returncode != 0, f"{name}: a wrong key is accepted"
            print(f"{name} exchanges signed requests of AWS for tokens")
        # A passing failure of AWS is one of the server, too, and a rejection is final.
        for fault, status in [("RESOURCE_EXHAUSTED", 503), ("UNAVAILABLE", 503), ("INTERNAL", 503), ("UNAUTHENTICATED", 401)]:
            found = refused(python(), server, emulated, identity, env | KEYS, fault)
            assert f"HTTP Error {status}" in found, (fault, found)
        asked = emulated.call("GET", "/_emulator/requests?method=Aws.*")["requests"]
        print(f"AWS was asked {len(asked)} times, and its passing failures are UNAVAILABLE")


if __name__ == "__main__":
    main()
