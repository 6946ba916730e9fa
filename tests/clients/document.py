"""The OpenAPI document is valid, and its examples are of their schemas."""

import json

import jsonschema
from openapi_spec_validator import OpenAPIV31SpecValidator
from server import ROOT, operations, running


def examples(node: object, where: str = "#"):
    """Yields every example of the document with its schema and where it stands."""
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


def main() -> None:
    with running() as server:
        served = server.call("GET", "/openapi.json")
    committed = json.loads((ROOT / "docs" / "openapi.json").read_text())
    assert served == committed, "docs/openapi.json is not what the server serves"
    OpenAPIV31SpecValidator(served).validate()

    faults = []
    count = 0
    for schema, example, where in examples(served):
        count += 1
        whole = {**schema, "components": served["components"]}
        for fault in jsonschema.Draft202012Validator(whole).iter_errors(example):
            faults.append(f"{where}: {fault.json_path}: {fault.message}")
    if faults:
        raise SystemExit("\n".join(faults))
    print(f"{operations(served)} operations and {count} examples are valid")


if __name__ == "__main__":
    main()
