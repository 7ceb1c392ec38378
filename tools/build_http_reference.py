"""Write the page of the site that lists all operations and records of the HTTP API, from ui/openapi.json."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

Json = dict[str, Any]
METHODS = ("get", "post", "patch", "put", "delete")
REFERENCE = "#/components/schemas/"
LIMITS = {
    "minimum": "at least {}",
    "exclusiveMinimum": "more than {}",
    "maximum": "at most {}",
    "minLength": "at least {} characters",
    "maxLength": "at most {} characters",
    "minItems": "at least {} items",
    "maxItems": "at most {} items",
    "maxProperties": "at most {} entries",
}
"""What a schema may demand, in words."""

HEAD = """# HTTP API: operations and records

All that the debug server's API takes and answers, from its own description (`/api/v1/openapi.json`). What goes for all
of it (access, addresses, steps, pages, refusals) and the WebSockets are in the [overview](http-api.md).

Paths begin with the server's address, its prefix, and `/api/v1`.
"""
RECORDS = "What bodies and answers are made of, by name. A field with a default may be left out."


def page(api: Json) -> str:
    """Return the page, Markdown.

    Parameters
    ----------
    api : dict
        An OpenAPI 3.1 description.
    """
    lines = [HEAD]
    for tag in api["tags"]:
        lines += [f"## {tag['name'].capitalize()}", "", tag["description"], ""]
        for path, operations in api["paths"].items():
            for method in METHODS:
                if method in operations and operations[method]["tags"][0] == tag["name"]:
                    lines += _operation(method, path.removeprefix("/api/v1"), operations[method])
    lines += ["## Records", "", RECORDS, ""]
    for name, schema in api["components"]["schemas"].items():
        lines += _record(name, schema)
    return "\n".join(lines)


def _operation(method: str, path: str, operation: Json) -> Iterator[str]:
    yield f"### {method.upper()} {path.replace('{', '&#123;').replace('}', '&#125;')}"
    yield ""
    yield operation.get("description") or operation["summary"]
    yield ""
    parameters = operation.get("parameters", [])
    if parameters:
        yield from _table("parameter", (_parameter(each) for each in parameters))
    for media, content in operation.get("requestBody", {}).get("content", {}).items():
        yield f"Body ({media}): {_type(content['schema'])}"
        yield ""
    yield "| status | answer |"
    yield "|---|---|"
    for status, response in operation["responses"].items():
        yield f"| {status} | {_answer(response)} |"
    yield ""


def _parameter(parameter: Json) -> tuple[str, str, str, str]:
    schema = parameter["schema"]
    default = "" if parameter.get("required") else _default(schema)
    return f"`{parameter['name']}`", _type(schema), default, _meaning({**schema, **parameter})


def _answer(response: Json) -> str:
    contents = response.get("content", {})
    kinds = [
        _type(content["schema"]) if media.endswith("json") else f"`{media}`" for media, content in contents.items()
    ]
    is_error = kinds == [_type({"$ref": REFERENCE + "ErrorReply"})]
    body = "" if is_error else ", ".join(kinds) or "no body"
    meaning = "" if response["description"] == "Successful Response" else response["description"]
    headers = ", ".join(f"`{name}`" for name in response.get("headers", ()))
    return _one_line(" ".join(filter(None, [body, meaning, headers and f"Headers: {headers}."])))


def _record(name: str, schema: Json) -> Iterator[str]:
    yield f"### {name}"
    yield ""
    if "description" in schema:
        yield schema["description"]
        yield ""
    if "enum" in schema:
        yield "One of " + ", ".join(f"`{value}`" for value in schema["enum"]) + "."
        yield ""
    required = schema.get("required", [])
    if "properties" in schema:
        yield from _table(
            "field",
            (
                (f"`{field}`", _type(each), "" if field in required else _default(each), _meaning(each))
                for field, each in schema["properties"].items()
            ),
        )


def _table(first: str, rows: Iterator[tuple[str, str, str, str]]) -> Iterator[str]:
    yield f"| {first} | type | default | meaning |"
    yield "|---|---|---|---|"
    for row in rows:
        yield "| " + " | ".join(map(_one_line, row)) + " |"
    yield ""


def _type(schema: Json) -> str:
    if "$ref" in schema:
        name = schema["$ref"].removeprefix(REFERENCE)
        return f"[{name}](#{name.lower()})"
    if "anyOf" in schema:
        return " or ".join(dict.fromkeys(_type(each) for each in schema["anyOf"]))
    if "const" in schema:
        return f"`{schema['const']}`"
    if "enum" in schema:
        return ", ".join(f"`{value}`" for value in schema["enum"])
    kind = schema.get("type", "anything")
    if kind == "array" and "items" in schema:
        return f"list of {_type(schema['items'])}"
    if kind == "array" and "prefixItems" in schema:
        return "(" + ", ".join(map(_type, schema["prefixItems"])) + ")"
    if kind == "object" and isinstance(schema.get("additionalProperties"), dict):
        return f"object of {_type(schema['additionalProperties'])}"
    return str(kind)


def _default(schema: Json) -> str:
    if "default" not in schema:
        return "none"
    default = schema["default"]
    if default is None:
        return "none"
    return "empty" if default == "" else f"`{json.dumps(default, ensure_ascii=False)}`"


def _meaning(schema: Json) -> str:
    limits = [
        words.format(_number(alternative[key]))
        for alternative in [schema, *schema.get("anyOf", ())]
        for key, words in LIMITS.items()
        if key in alternative
    ]
    allowed = f"({', '.join(limits)})" if limits else ""
    return " ".join(filter(None, [schema.get("description", ""), allowed]))


def _number(limit: float) -> str:
    """Return a limit as a person writes it; pydantic has 1.0 for some whole numbers."""
    return f"{int(limit):,}" if limit == int(limit) else str(limit)


def _one_line(text: str) -> str:
    """Return a text that fits into a cell of a table."""
    return " ".join(text.split()).replace("|", "\\|")
