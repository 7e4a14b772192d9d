"""Knows how the tables of operations read as an OpenAPI 3.1 document; holds nothing the tables do not."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from trackside import __version__
from trackside.api.operation import Dialect, Operation, Param
from trackside.domain.errors import ErrorKind, TracksideError

_PATH_PARAMETER = re.compile(r"\{([^}]+)\}")
_REF_TEMPLATE = "#/components/schemas/{name}"
_TYPES = {str: "string", int: "integer", bool: "boolean"}
_SECURITY_SCHEMES = {
    "sdkHmacSha256": {
        "type": "apiKey",
        "in": "header",
        "name": "Authorization",
        "description": "SDK-HMAC-SHA256 Access=…, SignedHeaders=…, Signature=…: what the vendor's SDKs send.",
    },
    "authToken": {"type": "apiKey", "in": "header", "name": "X-Auth-Token"},
    "bearer": {"type": "http", "scheme": "bearer"},
}
_ANY_OF_THESE: list[dict[str, list[str]]] = [{name: []} for name in _SECURITY_SCHEMES]


def document(dialects: Sequence[Dialect]) -> dict[str, Any]:
    """Return the OpenAPI document of all dialects."""
    operations = [(dialect, operation) for dialect in dialects for operation in dialect.operations]
    schema_of, schemas = _schemas(operation for _, operation in operations)
    paths: dict[str, dict[str, Any]] = {}
    for dialect, operation in operations:
        entry = _operation(dialect, operation, schema_of)
        paths.setdefault(operation.path, {})[operation.method.lower()] = entry
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Trackside",
            "version": __version__,
            "description": "A self-hosted training-job service.",
        },
        "tags": [{"name": dialect.name, "description": dialect.title} for dialect in dialects],
        "paths": paths,
        "components": {
            "schemas": {**schemas, **{_error_name(dialect): _error_schema(dialect) for dialect in dialects}},
            "securitySchemes": _SECURITY_SCHEMES,
        },
    }


def _schemas(operations: Iterable[Operation]) -> tuple[dict[type, Any], Mapping[str, Any]]:
    """Return the schema of every body and response type, and the components they refer to."""
    types: list[type] = []
    for operation in operations:
        types += [kind for kind in (operation.body, operation.response) if kind and kind not in types]
    schemas, components = msgspec.json.schema_components(types, ref_template=_REF_TEMPLATE)
    return dict(zip(types, schemas, strict=True)), components


def _operation(dialect: Dialect, operation: Operation, schema_of: Mapping[type, Any]) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "operationId": f"{dialect.name}.{operation.name}",
        "tags": [dialect.name],
        "summary": operation.summary,
        "x-action": operation.action,
        "security": _ANY_OF_THESE,
        "parameters": [_path_parameter(name) for name in _PATH_PARAMETER.findall(operation.path)]
        + [_query_parameter(param) for param in operation.query],
        "responses": _responses(dialect, operation, schema_of),
    }
    if operation.body is not None:
        as_it_comes = operation.body is bytes
        media_type = "application/octet-stream" if as_it_comes else "application/json"
        schema = {} if as_it_comes else schema_of[operation.body]
        entry["requestBody"] = {
            "required": operation.body_required,
            "content": {media_type: {"schema": schema}},
        }
    return entry


def _responses(dialect: Dialect, operation: Operation, schema_of: Mapping[type, Any]) -> dict[str, Any]:
    request_id = {
        dialect.request_id_header: {"schema": {"type": "string"}, "description": "Names the request in logs."}
    }
    done: dict[str, Any] = {"description": "Done.", "headers": request_id}
    if operation.response is not None:
        done["content"] = {"application/json": {"schema": schema_of[operation.response]}}
    elif operation.media_type != "application/json":
        done["content"] = {operation.media_type: {}}
    refused = {
        "description": "Refused; the body says why.",
        "headers": request_id,
        "content": {
            "application/json": {"schema": {"$ref": _REF_TEMPLATE.format(name=_error_name(dialect))}}
        },
    }
    statuses = sorted({"405"} | {str(dialect.error(error, "")[0]) for error in _every_kind_of_error()})
    return {**dict.fromkeys(statuses, refused), str(operation.status): done}


def _every_kind_of_error() -> Iterable[TracksideError]:
    """Yield one error of each kind: dialects map kinds, so these are all the statuses they say."""
    for each in ErrorKind:
        yield type("Example", (TracksideError,), {"kind": each})("An example.")


def _path_parameter(name: str) -> dict[str, Any]:
    return {"name": name, "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}


def _query_parameter(param: Param) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": _TYPES[param.type]}
    bounds = {"minimum": param.minimum, "maximum": param.maximum, "maxLength": param.max_length}
    schema.update({name: bound for name, bound in bounds.items() if bound is not None})
    if param.choices:
        schema["enum"] = [param.type(choice) for choice in param.choices]
    entry: dict[str, Any] = {"name": param.name, "in": "query", "required": param.required, "schema": schema}
    if param.repeated:
        entry |= {"schema": {"type": "array", "items": schema}, "style": "form", "explode": True}
    if param.description:
        entry["description"] = param.description
    return entry


def _error_name(dialect: Dialect) -> str:
    return f"{dialect.name}.Error"


def _error_schema(dialect: Dialect) -> dict[str, Any]:
    """Read the shape of an error off an example of it."""
    body = dialect.error(TracksideError("An example."), "0")[1]
    properties = {name: _schema_of_value(value) for name, value in body.items()}
    return {"type": "object", "required": sorted(properties), "properties": properties}


def _schema_of_value(value: object) -> dict[str, Any]:
    if isinstance(value, Mapping):
        return {
            "type": "object",
            "properties": {name: _schema_of_value(inner) for name, inner in value.items()},
        }
    return msgspec.json.schema(type(value)) if isinstance(value, str | bool | int) else {}
