"""A create body in which every field of the dialect is given, made from the structs themselves.

A field that is added to the wire structs is filled here too, so the test that all fields come back
cannot miss it.
"""

import types
from typing import Annotated, Any, Union, get_args, get_origin

import msgspec

from trackside.api.modelarts_v2.wire_create import CreateJobBody

# Fields whose value must mean something, by name; everything else gets a text or a small number.
CHOSEN: dict[str, Any] = {
    "kind": "hetero_job",
    "access_method": "env",
    "time_unit": "HOURS",
    "flavor_id": "cpu.1c2g",
    "code_dir": "obs://bucket/code/",
    "boot_file": "obs://bucket/code/train.py",
    "obs_url": "obs://bucket/data/",
    "role": "ps",
    "name": "a_name",
    "accelerator_num": 0.0,
    "pool_id": "default",
    "train_type": "SFT",
    "affinity_type": "networkTopology",
    "job_level": "cluster",
    "affinity_group_level": "slice",
    "operator": "In",
    "key": "metadata.name",
}
# These name things that are not offered, or that exclude others; they are tested by themselves.
LEFT_OUT = {"id", "subscription_id", "item_version_id", "command"}


def whole_body() -> dict[str, Any]:
    """Return the body."""
    body: dict[str, Any] = _example(CreateJobBody, "")
    body["metadata"]["name"] = "a-job"
    return body


def _example(kind: Any, name: str) -> Any:
    if name in CHOSEN:
        return CHOSEN[name]
    origin = get_origin(kind)
    if origin is Annotated:
        return _example(get_args(kind)[0], name)
    if origin in (Union, types.UnionType):
        return _example(next(arm for arm in get_args(kind) if arm is not type(None)), name)
    if origin is list:
        return [_example(get_args(kind)[0], "")]
    if origin is dict:
        return {"A_KEY": "a value"}
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        fields = msgspec.structs.fields(kind)
        return {
            field.encode_name: _example(field.type, field.encode_name)
            for field in fields
            if not (field.encode_name in LEFT_OUT and kind.__name__ == "Algorithm")
        }
    return {str: "text", int: 2, float: 2.0, bool: True}[kind]
