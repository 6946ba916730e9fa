"""Hooks for schemathesis: most requests use uids of existing resources, since others would only get 404.

This includes resources created during the run. The uid depends only on the generated value, so that a seed repeats a run.
"""

import json
import os
import pathlib
import random
import urllib.parse

import retries
import schemathesis

retries.repeat_with_requests()

# Uids by collection. The organization has the empty name. "protected" lists the uids that must not be changed or
# deleted, since the rest of the run would be denied.
UIDS: dict[str, list[str]] = json.loads(pathlib.Path(os.environ["PLATFORM_UIDS"]).read_text())

# The parent collections of resources whose parent is not a group.
PARENTS = {"tags": "repos"}

# Maximum number of uids per collection; the oldest except the first are dropped.
MAX_UIDS = 50


def collection(operation) -> str:
    """Returns the segment of the path after domain and version."""
    segments = operation.path.split("/")
    return segments[3].split(":")[0] if len(segments) > 3 else ""


def existing(name: str, generated: object) -> str | None:
    """Returns an existing uid of a collection in three of four cases."""
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
        if key.lower().endswith("uid") and (uid := existing(name, path_parameters)):
            path_parameters[key] = uid
    return path_parameters


@schemathesis.hook
def map_query(context, query):
    if query and "parent" in query and (uid := existing("", query)):
        query["parent"] = uid
    return query


@schemathesis.serializer("application/x-ndjson")
def ndjson(ctx, value):
    """Sends lines as they were generated."""
    return (value if isinstance(value, str) else json.dumps(value)).encode("utf-8", "surrogatepass")


@schemathesis.hook
def map_body(context, body):
    if isinstance(body, dict):
        for key, name in (("identityUid", "identities"), ("roleUid", "roles"), ("parent", "")):
            if key in body and (uid := existing(name, body)):
                body[key] = uid
    return body


def half(value: object) -> object:
    if isinstance(value, (str, list)):
        return value[: len(value) // 2]
    return dict(list(value.items())[: len(value) // 2]) if isinstance(value, dict) else value


def shortened(query: dict) -> dict:
    """Returns a query with fewer and shorter values, below the server's limit of 32 KiB."""
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
            if value in UIDS["protected"]:
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
            del uids[1:-MAX_UIDS]
