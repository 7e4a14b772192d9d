"""A process that writes jobs until it is killed, and says which writes were acknowledged."""

import asyncio
import os
import sys
from dataclasses import replace

from tests.unit.persistence.making import PROJECT, making
from trackside.domain.job import Job
from trackside.domain.phase import Phase
from trackside.persistence import Stores, open_stores
from trackside.ports import Update

WRITERS = 8


async def write_forever(stores: Stores) -> None:
    """Insert and update jobs, telling each success as soon as it is known."""
    while True:
        job = await stores.jobs.insert(PROJECT, making("submitted"))
        tell(job)
        tell(await stores.jobs.update(job.id, lambda job: Update(job=replace(job, phase=Phase.STARTING))))


def tell(job: Job) -> None:
    """Write one line, whole."""
    os.write(1, f"{job.id} {job.number} {job.revision}\n".encode())


async def main(url: str) -> None:
    """Run several writers at once."""
    stores = open_stores(url)
    await stores.start()
    await stores.identities.put_project(PROJECT, "first")
    await asyncio.gather(*(write_forever(stores) for _ in range(WRITERS)))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
