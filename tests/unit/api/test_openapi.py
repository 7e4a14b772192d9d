"""The published document is valid and says what the table says."""

from collections.abc import Mapping
from typing import Any

import msgspec
import schemathesis

from trackside.api.openapi import document
from trackside.api.operation import Call, Dialect, Operation, Param, Signed
from trackside.domain.errors import ErrorKind, TracksideError
from trackside.domain.identity import Caller


class Part(msgspec.Struct):
    size: int


class Thing(msgspec.Struct):
    name: str
    parts: list[Part] = []


async def handle(call: Call) -> None:
    return None


def nobody(signed: Signed) -> Caller:
    raise AssertionError("a document is written without asking anyone")


def say_no(error: TracksideError, request_id: str) -> tuple[int, Mapping[str, Any]]:
    return 404 if error.kind is ErrorKind.NOT_FOUND else 400, {
        "why": error.detail,
        "deep": {"n": 1},
        "list": [],
    }


def dialect(name: str) -> Dialect:
    params = (
        Param(name="limit", type=int, minimum=1, maximum=9, description="How many."),
        Param(name="level", type=int, choices=("1", "2")),
        Param(name="tag", repeated=True, max_length=5, required=True),
        Param(name="deep", type=bool),
    )
    return Dialect(
        name=name,
        title="A toy",
        operations=[
            Operation(
                name="Show",
                method="GET",
                path=f"/{name}/{{project_id}}/things/{{thing_id}}",
                action="toy:get",
                handler=handle,
                summary="Show a thing.",
                response=Thing,
                query=params,
            ),
            Operation(
                name="Create",
                method="POST",
                path=f"/{name}/{{project_id}}/things",
                action="toy:create",
                handler=handle,
                summary="Create a thing.",
                body=Thing,
                body_required=False,
                status=201,
            ),
        ],
        authenticate=nobody,
        error=say_no,
        unexpected=lambda request_id: (500, {}),
    )


def test_the_document_is_valid() -> None:
    described = msgspec.to_builtins(document([dialect("one"), dialect("two")]))
    schema = schemathesis.openapi.from_dict(described)
    schema.validate()
    assert len(list(schema.get_all_operations())) == 4


def test_an_operation_is_described_by_its_row() -> None:
    show = document([dialect("one")])["paths"]["/one/{project_id}/things/{thing_id}"]["get"]
    assert show["operationId"] == "one.Show"
    assert show["x-action"] == "toy:get"
    assert "requestBody" not in show
    assert show["responses"]["200"]["content"]["application/json"]["schema"] == {
        "$ref": "#/components/schemas/Thing"
    }
    assert set(show["responses"]) == {"200", "400", "404", "405"}
    by_name = {parameter["name"]: parameter for parameter in show["parameters"]}
    assert by_name["thing_id"]["in"] == "path"
    assert by_name["limit"]["schema"] == {"type": "integer", "minimum": 1, "maximum": 9}
    assert by_name["limit"]["description"] == "How many."
    assert by_name["level"]["schema"]["enum"] == [1, 2]
    assert by_name["tag"]["required"]
    assert by_name["tag"]["schema"] == {"type": "array", "items": {"type": "string", "maxLength": 5}}


def test_a_body_is_described_by_its_type() -> None:
    described = document([dialect("one")])
    create = described["paths"]["/one/{project_id}/things"]["post"]
    assert create["requestBody"]["required"] is False
    assert described["components"]["schemas"]["Part"]["required"] == ["size"]
    assert "content" not in create["responses"]["201"]


def test_an_error_is_described_by_an_example_of_it() -> None:
    schema = document([dialect("one")])["components"]["schemas"]["one.Error"]
    assert schema["required"] == ["deep", "list", "why"]
    assert schema["properties"]["why"] == {"type": "string"}
    assert schema["properties"]["deep"]["properties"]["n"] == {"type": "integer"}
    assert schema["properties"]["list"] == {}
