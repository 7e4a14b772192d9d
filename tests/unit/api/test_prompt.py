"""Coroutines that are begun without a task."""

import asyncio
from collections.abc import Awaitable
from typing import Any

import pytest

from trackside.api.prompt import begun


async def at_once() -> str:
    return "now"


async def slow(wait: Awaitable[Any]) -> Any:
    told = await wait
    await asyncio.sleep(0)
    return told


async def broken() -> None:
    raise ValueError("no")


def test_what_does_not_wait_is_done() -> None:
    assert begun(at_once()) == "now"


def test_what_raises_raises() -> None:
    with pytest.raises(ValueError, match="no"):
        begun(broken())


def test_what_waits_is_carried_on_in_a_task() -> None:
    async def main() -> object:
        future = asyncio.get_running_loop().create_future()
        task = asyncio.ensure_future(begun(slow(future)))
        await asyncio.sleep(0)
        future.set_result("later")
        return await task

    assert asyncio.run(main()) == "later"


def test_what_goes_wrong_while_it_waits_reaches_it() -> None:
    async def main() -> None:
        future = asyncio.get_running_loop().create_future()
        rest = begun(slow(future))
        future.set_exception(ValueError("no"))
        await rest

    with pytest.raises(ValueError, match="no"):
        asyncio.run(main())


def test_who_waits_can_be_cancelled() -> None:
    heard: list[str] = []

    async def careful() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            heard.append("cancelled")
            raise

    async def main() -> None:
        async def rest() -> None:
            await begun(careful())

        task = asyncio.create_task(rest())
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert task.cancelled()

    asyncio.run(main())
    assert heard == ["cancelled"]
