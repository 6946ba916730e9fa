"""Hooks for schemathesis: most requests are for resources that stand, so that they get further than 404.

What is made on the way is used as well. Which uid a request gets follows from what was generated, so that a seed
repeats a run.
"""

import json
import os
import pathlib
import random
import urllib.parse

import schemathesis

# Uids by the collection they are of; the organisation is under the empty name, and under "kept" what must not be
# changed or deleted, or the rest of the run is refused.
UIDS: dict[str, list[str]] = json.loads(pathlib.Path(os.environ["PLATFORM_UIDS"]).read_text())

# The collections whose resources hang in no group.
PARENTS = {"tags": "repos"}

# How many of a collection are remembered, the newest.
REMEMBERED = 50


def collection(operation) -> str:
    """Returns the path's segment behind domain and version."""
    segments = operation.path.split("/")
    return segments[3].split(":")[0] if len(segments) > 3 else ""


def standing(name: str, generated: object) -> str | None:
    """Returns a uid of a collection three times in four."""
    chance = random.Random(repr(generated))
    uids = UIDS.get(name)
    return chance.choice(uids) if uids and chance.random() < 0.75 else None


@schemathesis.hook
def map_path_parameters(context, path_parameters):
    operation = context.operation
    name = collection(operation)
    if operation.method.lower() == "post":
        name = PARENTS.get(name, "" if ":" not in operation.path else name)
    for key in path_parameters or {}:
        if key.lower().endswith("uid") and (uid := standing(name, path_parameters)):
            path_parameters[key] = uid
    return path_parameters


@schemathesis.hook
def map_query(context, query):
    if query and "parent" in query and (uid := standing("", query)):
        query["parent"] = uid
    return query


@schemathesis.serializer("application/x-ndjson")
def ndjson(ctx, value):
    """Lines are sent as they were generated."""
    return (value if isinstance(value, str) else json.dumps(value)).encode("utf-8", "surrogatepass")


@schemathesis.hook
def map_body(context, body):
    if isinstance(body, dict):
        for key, name in (("identityUid", "identities"), ("roleUid", "roles"), ("parent", "")):
            if key in body and (uid := standing(name, body)):
                body[key] = uid
    return body


def half(value: object) -> object:
    if isinstance(value, (str, list)):
        return value[: len(value) // 2]
    return dict(list(value.items())[: len(value) // 2]) if isinstance(value, dict) else value


def shortened(query: dict) -> dict:
    """Returns a query with fewer and shorter values, until the server reads its path: it takes 32 KiB."""
    for _ in range(20):
        if len(urllib.parse.urlencode(query, doseq=True)) > 30_000:
            query = {key: half(value) for key, value in query.items()}
    return query


@schemathesis.hook
def before_call(context, case, kwargs):
    if case.query:
        case.query = shortened(dict(case.query))
    if case.operation.method.lower() in ("delete", "patch"):
        for key, value in (case.path_parameters or {}).items():
            if value in UIDS["kept"]:
                case.path_parameters[key] = "0" * 40


@schemathesis.hook
def after_call(context, case, response):
    if case.operation.method.lower() == "post" and response.status_code == 200:
        try:
            uid = response.json().get("uid")
        except (ValueError, AttributeError):
            return
        if uid:
            uids = UIDS.setdefault(collection(case.operation), [])
            uids.append(uid)
            del uids[1:-REMEMBERED]
