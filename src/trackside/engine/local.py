"""Knows this machine: its one agent, what the agent should do, and which ports are free."""

import asyncio
import socket
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import replace

from trackside.domain.errors import Unavailable
from trackside.domain.exchange import Errand, Hello, Launch, Orders, Stop, TaskKey
from trackside.domain.job import Job, NodeId, Task, TaskState
from trackside.ports import Clock, Node

# Below the usual range of ephemeral ports, so that no outgoing connection takes one in between.
PORTS = range(20_000, 32_000)


class LocalEngine:
    """Tells the agent of this machine what to do, by desired state: orders repeat until they are done."""

    def __init__(
        self,
        *,
        active: Callable[[], Awaitable[Iterable[Job]]],
        launch: Callable[[Job, Task, dict[NodeId, str]], Launch],
        clock: Clock,
        errands: Callable[[TaskKey], Iterable[Errand]] = lambda _: (),
    ) -> None:
        self._active = active
        self._errands = errands
        self._launch = launch
        self._clock = clock
        self._nodes: dict[NodeId, Node] = {}
        # Starts from the time so that a restarted server never repeats a version an agent has seen.
        self._version = time.time_ns() // 1_000_000
        self._changed = asyncio.Event()
        self._next_port = PORTS.start
        self._closing = False

    def hello(self, hello: Hello) -> None:
        """Take note of an agent and its node."""
        self._nodes[hello.node_id] = Node(
            id=hello.node_id,
            ip=hello.host_ip,
            capacity=hello.capacity,
            last_seen_ms=self._clock.now_ms(),
            seen_monotonic_ms=self._clock.monotonic_ms(),
        )
        self.changed()

    def seen(self, node_id: NodeId) -> None:
        """Take note that a node answers."""
        node = self._nodes.get(node_id)
        if node is None:
            raise Unavailable(f"the node {node_id} has not said hello since the server started")
        self._nodes[node_id] = replace(
            node, last_seen_ms=self._clock.now_ms(), seen_monotonic_ms=self._clock.monotonic_ms()
        )

    def nodes(self) -> Sequence[Node]:
        """Return the nodes whose agents have said hello."""
        return tuple(self._nodes.values())

    def free_ports(self, node_id: NodeId, count: int, taken: frozenset[int]) -> int:
        """Return the first of `count` free ports in a row, going round so that one just freed rests."""
        del node_id  # there is one machine
        for _ in PORTS:
            first = self._next_port if self._next_port + count <= PORTS.stop else PORTS.start
            self._next_port = first + count
            if all(port not in taken and _can_bind(port) for port in range(first, first + count)):
                return first
        raise Unavailable("no ports are free for the job's tasks to meet on")

    def changed(self) -> None:
        """Wake the agent: its orders may have changed."""
        self._version += 1
        self._changed.set()
        self._changed = asyncio.Event()

    def close(self) -> None:
        """Let go of every agent that waits: the server is stopping."""
        self._closing = True
        self.changed()

    async def orders(self, node_id: NodeId, version: int, *, wait_seconds: float) -> Orders:
        """Return the node's orders as soon as they are newer than `version`, or after the wait."""
        self.seen(node_id)
        if version == self._version and not self._closing:
            try:
                async with asyncio.timeout(wait_seconds):
                    await self._changed.wait()
            except TimeoutError:
                return Orders(version=version)
        self.seen(node_id)
        if self._closing:
            raise Unavailable("the server is stopping; try again in a moment")
        return await self._orders(node_id)

    async def _orders(self, node_id: NodeId) -> Orders:
        version = self._version
        addresses = {node.id: node.ip for node in self._nodes.values()}
        launch: list[Launch] = []
        stop: list[Stop] = []
        errands: list[Errand] = []
        for job in await self._active():
            for task in job.tasks:
                if task.node_id != node_id or task.state is TaskState.ENDED:
                    continue
                key = TaskKey(job.id, task.attempt, task.name)
                errands += self._errands(key)
                if job.ending is not None:
                    stop.append(Stop(key=key, grace_seconds=job.spec.grace_seconds))
                elif task.state is TaskState.PLACED:
                    launch.append(self._launch(job, task, addresses))
        return Orders(version=version, launch=tuple(launch), stop=tuple(stop), errands=tuple(errands))


def _can_bind(port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("0.0.0.0", port))  # noqa: S104 - asks whether it is free, never listens
        except OSError:
            return False
    return True
