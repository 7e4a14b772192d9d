"""Knows the rows of Trackside's own API that keep and list objects."""

import msgspec

from trackside.api.native import PREFIX
from trackside.api.operation import Call, Operation, Param


class ObjectView(msgspec.Struct, frozen=True, kw_only=True):
    """One object: its path below what was asked for."""

    path: str
    size_bytes: int
    modified_ms: int


class ObjectList(msgspec.Struct, frozen=True, kw_only=True):
    """The objects below a URL."""

    objects: list[ObjectView]


class ObjectPut(msgspec.Struct, frozen=True, kw_only=True):
    """Where an object was stored."""

    url: str
    size_bytes: int


async def put_object(call: Call) -> ObjectPut:
    """Store one object."""
    url = call.query_one("url") or ""
    await call.services.objects.put(call.caller, url, call.body)
    return ObjectPut(url=url, size_bytes=len(call.body))


async def list_objects(call: Call) -> ObjectList:
    """List the objects below a URL."""
    found = await call.services.objects.list(call.caller, call.query_one("url") or "")
    return ObjectList(
        objects=[
            ObjectView(path=one.path, size_bytes=one.size_bytes, modified_ms=one.modified_ms) for one in found
        ]
    )


OPERATIONS = (
    Operation(
        name="PutObject",
        method="PUT",
        path=f"{PREFIX}/objects",
        action="trackside:object:create",
        handler=put_object,
        summary="Store one object whole; the body is its content",
        body=bytes,
        response=ObjectPut,
        query=(Param(name="url", required=True, max_length=1200, description="obs://bucket/key"),),
    ),
    Operation(
        name="ListObjects",
        method="GET",
        path=f"{PREFIX}/objects",
        action="trackside:object:list",
        handler=list_objects,
        summary="List the objects below a URL",
        response=ObjectList,
        query=(Param(name="url", required=True, max_length=1200, description="obs://bucket/prefix"),),
    ),
)
