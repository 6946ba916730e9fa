"""Validates the OpenAPI document, its examples against their schemas, and its `order_by` patterns against the server."""

import json
import re
import urllib.error
import urllib.parse

import jsonschema
from openapi_spec_validator import OpenAPIV31SpecValidator
from server import ROOT, operations, running


def examples(node: object, where: str = "#"):
    """Yields every example of the document with its schema and its location."""
    if isinstance(node, dict):
        if "schema" in node:
            if "example" in node:
                yield node["schema"], node["example"], where
            for name, example in node.get("examples", {}).items():
                yield node["schema"], example["value"], f"{where}/examples/{name}"
        for key, value in node.items():
            if key not in ("example", "examples"):
                yield from examples(value, f"{where}/{key.replace('/', '~1')}")
    elif isinstance(node, list):
        for index, value in enumerate(node):
            yield from examples(value, f"{where}/{index}")


def orders(server, document: dict) -> tuple[int, list[str]]:
    """Sends valid and invalid orders. Returns their number, and where the server and the documented pattern disagree."""
    count, faults = 0, []
    for path, methods in document["paths"].items():
        parameters = methods.get("get", {}).get("parameters", [])
        pattern = next((one["schema"]["pattern"] for one in parameters if one.get("name") == "order_by"), None)
        required = any(one.get("required") for one in parameters)
        if not pattern or required:
            continue
        names = ["uid", "name", "createTime", "create_time", "createdAt", "created_at", "updated_at", "nosuch"]
        texts = [name + direction for name in names for direction in ("", " desc", " asc", " up")]
        for text in (*texts, "", " ", "  uid   desc "):
            count += 1
            try:
                server.call("GET", f"{path}?{urllib.parse.urlencode({'order_by': text})}")
                accepted = True
            except urllib.error.HTTPError as error:
                accepted = error.code != 400
            if accepted != bool(re.search(pattern, text)):
                faults.append(f"{path}: order_by={text!r} is {'accepted' if accepted else 'rejected'}, unlike by {pattern}")
    return count, faults


def main() -> None:
    with running() as server:
        served = server.call("GET", "/openapi.json")
        ordered, faults = orders(server, served)
    committed = json.loads((ROOT / "docs" / "openapi.json").read_text())
    assert served == committed, "docs/openapi.json differs from the served document"
    OpenAPIV31SpecValidator(served).validate()

    count = 0
    for schema, example, where in examples(served):
        count += 1
        whole = {**schema, "components": served["components"]}
        for fault in jsonschema.Draft202012Validator(whole).iter_errors(example):
            faults.append(f"{where}: {fault.json_path}: {fault.message}")
    if faults:
        raise SystemExit("\n".join(faults))
    print(f"{operations(served)} operations, {count} examples and {ordered} orders are valid")


if __name__ == "__main__":
    main()
