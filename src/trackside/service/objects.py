"""Knows how callers put code and data into the object store."""

import asyncio
import os
import tempfile

from trackside.domain.identity import Caller
from trackside.ports import ObjectInfo, ObjectStore


class Objects:
    """Put and list objects."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store

    async def put(self, caller: Caller, url: str, content: bytes) -> None:
        """Store one object whole."""
        del caller
        self._store.check_url(url)
        await asyncio.to_thread(self._put, url, content)

    async def list(self, caller: Caller, url: str) -> list[ObjectInfo]:
        """Return the objects below a URL."""
        del caller
        self._store.check_url(url)
        return list(await asyncio.to_thread(self._store.list, url))

    def _put(self, url: str, content: bytes) -> None:
        with tempfile.TemporaryFile() as file:
            file.write(content)
            file.flush()
            os.lseek(file.fileno(), 0, os.SEEK_SET)
            self._store.upload_file(file.fileno(), url)
