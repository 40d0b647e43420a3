"""Compare two OpenAPI files by what programs rely on: ``python -m tests.api.compare_schemas OLD NEW``.

Paths, methods, parameters (name, place, required, type, enum), fields of bodies and answers at every depth with their types, status
codes and headers; names of operations and components, descriptions and bounds may differ. Ends with 1 where something went.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

Document = dict[str, Any]


def facts(document: Document) -> set[str]:
    """Every fact, as a line."""
    return {
        line
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
        for line in _of_operation(f"{method.upper()} {path}", operation, document)
    }


def _of_operation(name: str, operation: Document, document: Document) -> Iterator[str]:
    yield name
    for parameter in operation.get("parameters", ()):
        said = (
            f"{name} parameter {parameter['in']}:{parameter['name']}{' required' if parameter.get('required') else ''}"
        )
        yield from _of_schema(said, parameter["schema"], document, ())
    for media, content in operation.get("requestBody", {}).get("content", {}).items():
        yield from _of_schema(f"{name} body {media}", content["schema"], document, ())
    for status, answer in operation["responses"].items():
        answer = _resolved(answer, document)
        yield f"{name} {status}"
        yield from (f"{name} {status} header {header}" for header in answer.get("headers", ()))
        for media, content in answer.get("content", {}).items():
            yield from _of_schema(f"{name} {status} {media}", content["schema"], document, ())


def _of_schema(place: str, schema: Document, document: Document, seen: tuple[str, ...]) -> Iterator[str]:
    if (name := schema.get("$ref")) in seen:
        return
    seen = (*seen, name) if name else seen
    schema = _resolved(schema, document)
    for part in ("allOf", "anyOf", "oneOf"):
        for inner in schema.get(part, ()):
            yield from _of_schema(place, inner, document, seen)
    types = schema.get("type", [])
    for kind in [types] if isinstance(types, str) else types:
        yield f"{place}: {kind}"
    yield from (f"{place} = {value}" for value in schema.get("enum", ()) if value not in ("", None))
    if "items" in schema:
        yield from _of_schema(f"{place}[]", schema["items"], document, seen)
    if isinstance(more := schema.get("additionalProperties"), dict):
        yield from _of_schema(f"{place}.*", more, document, seen)
    for field, inner in schema.get("properties", {}).items():
        yield f"{place}.{field}"
        yield from [f"{place}.{field} required"] if field in schema.get("required", ()) else []
        yield from _of_schema(f"{place}.{field}", inner, document, seen)


def _resolved(part: Document, document: Document) -> Document:
    while "$ref" in part:
        found = document
        for step in part["$ref"].removeprefix("#/").split("/"):
            found = found[step]
        part = found
    return part


if __name__ == "__main__":
    old, new = (facts(yaml.safe_load(Path(name).read_text())) for name in sys.argv[1:3])
    sys.stdout.writelines(f"- {line}\n" for line in sorted(old - new))
    sys.stdout.writelines(f"+ {line}\n" for line in sorted(new - old))
    sys.exit(bool(old - new))
