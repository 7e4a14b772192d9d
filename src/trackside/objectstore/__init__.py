"""Holds code, inputs and outputs: a directory by default, or any S3-compatible server."""

from trackside.objectstore.local import open_objects
from trackside.objectstore.s3 import open_s3

__all__ = ["open_objects", "open_s3"]
