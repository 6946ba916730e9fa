"""Compares the order of versions with the programs of their ecosystems, in random pairs.

- Alpine: `apk version --test` of apk-tools 3, if it is in PATH or `APK` names it, else NOT RUN.
- Python: the package `packaging`.
- Java: `ComparableVersion` of maven-artifact, with Maven's resolver for the figures. NOT RUN without Maven.

Other orders than those of the reference are explained by named rules (`PYTHON_RULES`, `JAVA_RULES`), which docs/api.md
states: a rule rewrites a version, and the reference must then have our order. Other differences fail the check, and so does
a rule that changes no order. The server does not compare versions of other ecosystems.

`PLATFORM_VERSIONS` is the number of pairs of each ecosystem (default 20,000), `PLATFORM_SEED` repeats them.
"""

import concurrent.futures
import os
import pathlib
import random
import re
import shutil
import subprocess
import time
from collections.abc import Callable

from packaging.version import Version
from server import ROOT, built

SOURCE = pathlib.Path(__file__).resolve().parent / "versions"
FOLDER = ROOT / "target" / "clients-versions"
Pair = tuple[str, str]
Make = Callable[[random.Random], str]


def digits(choice: random.Random) -> str:
    """Returns a number, at times with a leading zero."""
    zeros = choice.choice(["", "", "", "", "0", "00"])
    return zeros + choice.choice(["0", "1", "2", "9", "10", "11", "100", "20260101", str(choice.randrange(1000))])


def numbers(choice: random.Random) -> str:
    return ".".join(digits(choice) for _ in range(choice.choice([1, 2, 2, 3, 3, 4])))


def alpine(choice: random.Random) -> str:
    """Returns a version such as `1.2.3a_rc1_p2~0abc12-r0`."""
    text = numbers(choice) + choice.choice(["", "", "", "a", "b", "z"])
    for _ in range(choice.choice([0, 0, 0, 1, 1, 2])):
        text += "_" + choice.choice(["alpha", "beta", "pre", "rc", "cvs", "svn", "git", "hg", "p"])
        text += choice.choice(["", digits(choice)])
    text += choice.choice(["", "", "", "", "~" + choice.choice(["0", "abc", "0abc12", "b1"])])
    return text + choice.choice(["", f"-r{digits(choice)}"])


def python(choice: random.Random) -> str:
    """Returns a version in one of the spellings that PEP 440 accepts. One of its numbers has 65 bits at times."""

    def separator() -> str:
        return choice.choice(["", ".", "-", "_"])

    text = choice.choice(["", "", "", "", "v", "1!", "2!"]) + numbers(choice)
    if choice.random() < 0.002:
        text += f".{2**64}"
    if choice.random() < 0.35:
        name = choice.choice(["a", "b", "rc", "c", "alpha", "beta", "pre", "preview", "RC"])
        text += separator() + name + choice.choice(["", separator() + digits(choice)])
    if choice.random() < 0.25:
        name = separator() + choice.choice(["post", "rev", "r"])
        text += choice.choice([f"-{digits(choice)}", name, name + separator() + digits(choice)])
    if choice.random() < 0.2:
        text += separator() + "dev" + choice.choice(["", digits(choice)])
    if choice.random() < 0.2:
        parts = [choice.choice(["1", "01", "10", "abc", "A", "ubuntu1", "1abc"]) for _ in range(choice.choice([1, 2, 3]))]
        text += "+" + choice.choice(".-_").join(parts)
    return text


WORDS = (
    "alpha beta milestone rc cr snapshot ga final release sp a b m jre android jdk8 redhat pfd incubating x "
    "Final SNAPSHOT RELEASE GA"
).split()


def java(choice: random.Random) -> str:
    """Returns a version as projects publish it, or numbers, qualifiers and separators in any order."""
    if choice.random() < 0.5:
        end = choice.choice(["", "", "1", "-1", ".2", "10", "_3", "-SNAPSHOT", "-jre"])
        return numbers(choice) + choice.choice(["", choice.choice(".-_") + choice.choice(WORDS) + end])
    text = digits(choice)
    for _ in range(choice.choice([1, 2, 3, 4])):
        part = choice.choice([digits(choice), choice.choice(WORDS)])
        text += choice.choice(".-_" if part[0].isdigit() else ["", ".", "-", "_"]) + part
    return text


def pairs(choice: random.Random, count: int, make: Make, is_valid: Callable[[str], bool]) -> list[Pair]:
    """Returns pairs of which most begin alike, so that what follows decides."""
    made = []
    while len(made) < count:
        one, other = make(choice), make(choice)
        if choice.random() < 0.7:
            tokens, others = (re.findall(r"\d+|[a-zA-Z]+|.", version) for version in (one, other))
            keep = choice.randrange(len(tokens) + 1)
            other = "".join(tokens[:keep] + others[keep:])
        if is_valid(one) and is_valid(other):
            made.append((one, other))
    return made


def sign(order: int) -> str:
    return "<" if order < 0 else ">" if order > 0 else "="


def ours(ecosystem: str, compared: list[Pair]) -> list[str]:
    lines = "".join(f"{ecosystem} {one} {other}\n" for one, other in compared)
    done = subprocess.run([built("examples/compare_versions")], input=lines, stdout=subprocess.PIPE, text=True, check=True)
    return done.stdout.split()


def compare(ecosystem: str, compared: list[Pair], expected: list[str]) -> None:
    """Fails if the platform orders a pair otherwise."""
    found = ours(ecosystem, compared)
    assert len(found) == len(expected) == len(compared), (len(found), len(expected))
    wrong = [(*pair, one, other) for pair, one, other in zip(compared, found, expected) if one != other]
    for one, other, order, right in wrong[:20]:
        print(f"{ecosystem}: {one} {order} {other}, expected {right}")
    if wrong:
        raise SystemExit(f"{ecosystem}: {len(wrong)} of {len(compared)} pairs have another order")


def check_alpine(choice: random.Random, count: int) -> None:
    program = os.environ.get("APK") or shutil.which("apk")
    if not program:
        print("NOT RUN: the order of Alpine package versions: apk is not installed, and APK does not name it")
        return
    version = subprocess.run([program, "--version"], stdout=subprocess.PIPE, text=True, check=True).stdout.split()[1].strip(",")
    assert version.startswith(("3.", "v3.")), f"apk-tools {version} has another order"

    def order(pair: Pair) -> str:
        # Nothing is printed about an invalid version.
        done = subprocess.run([program, "version", "--test", *pair], stdout=subprocess.PIPE, text=True)
        return done.stdout.strip() or "!"

    # Also invalid versions, which arise where two are joined. One that is equal to itself is equal in the platform.
    compared = [(one, other) for one, other in pairs(choice, count, alpine, lambda _: True) if one != other]
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        expected = list(pool.map(order, compared))
    compare("apk", compared, expected)
    print(f"apk-tools {version}: {len(compared)} pairs, {expected.count('!')} of them with an invalid version")


def is_python(text: str) -> bool:
    try:
        return bool(Version(text))
    except ValueError:
        return False


def python_key(text: str) -> tuple:
    """Returns the order of `packaging`, and a version with a number of 65 bits before all others, as text."""
    is_long = any(int(number) >= 2**64 for number in re.findall(r"\d+", text))
    return (0, text) if is_long else (1, Version(text))


def check_python(choice: random.Random, count: int) -> None:
    compared = pairs(choice, count, python, is_python)
    keys = [(python_key(one), python_key(other)) for one, other in compared]
    compare("python", compared, [sign((one > other) - (one < other)) for one, other in keys])
    long = sum(one[0] + other[0] < 2 for one, other in keys)
    assert long, "no pair has a number of 65 bits"
    print(f"packaging: {len(compared)} pairs, {long} of them with a number of 65 bits, which counts as invalid")


def until_equal(rewrite: Callable[[str], str], version: str) -> str:
    while (other := rewrite(version)) != version:
        version = other
    return version


# How ComparableVersion differs from its documentation. Each rule writes a version as the documentation reads it. They are
# applied in this order, to lower case; two of them only prepare a version for the others.
JAVA_RULES: dict[str, Callable[[str], str]] = {
    "an underscore is a hyphen": lambda version: version.replace("_", "-"),
    "a, b and m before a digit are abbreviations": lambda version: re.sub(
        r"(?<![a-z])[abm](?=\d)", lambda found: {"a": "alpha", "b": "beta", "m": "milestone"}[found[0]], version
    ),
    "a hyphen is between digits and letters": lambda version: re.sub(
        r"(?<=\d)(?=[a-z])|(?<=[a-z])(?=\d)", "-", version
    ),
    "an empty part is a zero": lambda version: re.sub(r"(?<=[.-])(?=[.-]|$)", "0", version),
    "a dot before a qualifier is a hyphen": lambda version: re.sub(r"\.(?=[a-z])", "-", version),
    "zeros and releases before a hyphen are dropped": lambda version: until_equal(
        lambda text: re.sub(r"[.-](?:0+|ga|final|release)(?=-)", "", text), version
    ),
}


def rewritten(version: str, without: str | None = None) -> str:
    version = version.lower()
    for name, rule in JAVA_RULES.items():
        version = version if name == without else rule(version)
    return version


def maven(compared: list[Pair]) -> list[str]:
    """Returns the orders of maven-artifact and of the resolver."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name in ("pom.xml", "Compare.java"):
        if not (FOLDER / name).exists() or (FOLDER / name).read_text() != (SOURCE / name).read_text():
            shutil.rmtree(FOLDER / "lib", ignore_errors=True)
            shutil.copy(SOURCE / name, FOLDER)
    if not (FOLDER / "lib").exists():
        copy = ["mvn", "--quiet", "--batch-mode", "dependency:copy-dependencies", "-DoutputDirectory=lib"]
        done = subprocess.run(copy, cwd=FOLDER, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if done.returncode:
            raise SystemExit(done.stdout)
    lines = "".join(f"{one} {other}\n" for one, other in compared)
    run = ["java", "-cp", f"{FOLDER}/lib/*", FOLDER / "Compare.java"]
    return subprocess.run(run, input=lines, stdout=subprocess.PIPE, text=True, check=True).stdout.split()


def check_java(choice: random.Random, count: int) -> None:
    if missing := [program for program in ("mvn", "java") if not shutil.which(program)]:
        print(f"NOT RUN: the order of Maven versions: {', '.join(missing)} is not installed")
        return
    compared = pairs(choice, count, java, lambda _: True)
    variants = [lambda version: version, rewritten]
    variants += [lambda version, name=name: rewritten(version, name) for name in JAVA_RULES]
    orders = maven([(variant(one), variant(other)) for variant in variants for one, other in compared])
    raw, expected, *without = (orders[at : at + count] for at in range(0, len(orders), count))
    expected = [order[0] for order in expected]
    compare("java", compared, expected)
    artifact = sum(order != one[0] for order, one in zip(expected, raw))
    resolver = sum(order != one[1] for order, one in zip(expected, raw))
    both = sum(one[0] != one[1] for one in raw)
    print(f"maven-artifact: {count} pairs, {artifact} of them by the rules of its documentation:")
    for name, orders in zip(JAVA_RULES, without):
        changed = sum(order != one[0] for order, one in zip(expected, orders))
        print(f"  {changed:5}  {name}")
        assert changed, f"the rule explains nothing: {name}"
    print(f"  {resolver} pairs have another order by the resolver, which differs from maven-artifact in {both}")


def main() -> None:
    count = int(os.environ.get("PLATFORM_VERSIONS", "20000"))
    seed = int(os.environ.get("PLATFORM_SEED", "1"))
    print(f"PLATFORM_SEED={seed}")
    for check in (check_python, check_java, check_alpine):
        started = time.monotonic()
        check(random.Random(seed), count)
        print(f"  {time.monotonic() - started:.0f} s")


if __name__ == "__main__":
    main()
