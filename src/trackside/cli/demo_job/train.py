"""Train a small network on two spirals with several workers: data-parallel, in NumPy and plain sockets.

Every rank holds one shard of the data. In each step it computes the gradient of its own batch; rank 0 adds
the gradients in rank order and sends the sum back, so that all ranks end the step with the same weights to
the last bit. What a launcher must provide: RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT, as for torch.

    RANK=0 WORLD_SIZE=1 python train.py --steps=500 --train_url=out
"""

import argparse
import contextlib
import hashlib
import itertools
import os
import signal
import socket
import struct
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

# One thread per worker: the workers are the parallelism. Must be said before NumPy is loaded.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]

SEED = 20
SAMPLES = 4096
BATCH = 256
LAYERS = (2, 96, 96, 2)
WEIGHT_COUNT = sum(a * b + b for a, b in itertools.pairwise(LAYERS))

JOIN_SECONDS = 120.0  # how long the ranks wait for each other at the start
PEER_SECONDS = 60.0  # how long a step waits for a peer before it is given up
REPORT_SECONDS = 0.5
CHECKPOINT_SECONDS = 5.0
EXIT_LOST_PEER = 3
EXIT_TERMINATED = 128 + signal.SIGTERM

MAGIC = b"ddp-numpy-1"
FRAME = struct.Struct("!BI")
DATA, FAREWELL = 0, 1
FRAME_BYTES_MAX = 64 * 1024 * 1024


class LostPeer(Exception):
    """Another rank went away; training cannot go on without it."""


# --- talking to the other ranks ---------------------------------------------------------------------------


@dataclass
class Group:
    """The ranks of this job: rank 0 holds a link to every other, the others one to rank 0."""

    rank: int
    size: int
    links: dict[int, socket.socket] = field(default_factory=dict)

    def sum(self, mine: Vector) -> Vector:
        """Return the sum over all ranks, added in rank order: the same bits everywhere."""
        if self.rank:
            self._send(0, mine.tobytes())
            return np.frombuffer(self._receive(0))
        total = mine.copy()
        for peer in sorted(self.links):
            total += np.frombuffer(self._receive(peer))
        self.spread(total)
        return total

    def spread(self, values: Vector) -> Vector:
        """Return rank 0's values on every rank."""
        if self.rank:
            return np.frombuffer(self._receive(0))
        for peer in sorted(self.links):
            self._send(peer, values.tobytes())
        return values

    def close(self, farewell: str = "") -> None:
        """Close the links; a farewell tells the others why this rank leaves."""
        for link in self.links.values():
            if farewell:
                with contextlib.suppress(OSError):  # it may be the very one that went away
                    send_frame(link, FAREWELL, farewell.encode())
            link.close()
        self.links.clear()

    def _send(self, peer: int, payload: bytes) -> None:
        try:
            send_frame(self.links[peer], DATA, payload)
        except OSError as error:
            raise LostPeer(f"rank {peer} is gone ({error})") from error

    def _receive(self, peer: int) -> bytes:
        try:
            kind, payload = receive_frame(self.links[peer])
        except TimeoutError as error:
            raise LostPeer(f"rank {peer} sent nothing for {PEER_SECONDS:.0f} s") from error
        except OSError as error:
            raise LostPeer(f"rank {peer} is gone ({error})") from error
        if kind == FAREWELL:
            raise LostPeer(payload.decode(errors="replace"))
        return payload


def send_frame(link: socket.socket, kind: int, payload: bytes) -> None:
    """Send one message."""
    link.sendall(FRAME.pack(kind, len(payload)) + payload)


def receive_frame(link: socket.socket) -> tuple[int, bytes]:
    """Return the kind and content of the next message."""
    kind, length = FRAME.unpack(receive_exactly(link, FRAME.size))
    if length > FRAME_BYTES_MAX:
        raise ConnectionError(f"a message of {length:,} bytes")
    return kind, receive_exactly(link, length)


def receive_exactly(link: socket.socket, length: int) -> bytes:
    """Return exactly `length` bytes, or raise ConnectionError when the other side closed."""
    buffer = bytearray(length)
    view = memoryview(buffer)
    while view:
        count = link.recv_into(view)
        if count == 0:
            raise ConnectionError("it closed the connection")
        view = view[count:]
    return bytes(buffer)


def join(rank: int, size: int, address: str, port: int) -> Group:
    """Return the group once every rank has joined it."""
    if size == 1:
        return Group(rank, size)
    links = gather_peers(size, address, port) if rank == 0 else {0: reach_rank_0(rank, address, port)}
    for link in links.values():
        link.settimeout(PEER_SECONDS)
        link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return Group(rank, size, links)


def gather_peers(size: int, address: str, port: int) -> dict[int, socket.socket]:
    """Listen as rank 0 until every other rank has introduced itself."""
    deadline = time.monotonic() + JOIN_SECONDS
    links: dict[int, socket.socket] = {}
    with socket.create_server((address, port), backlog=size) as listener:
        while len(links) < size - 1:
            missing = sorted(set(range(1, size)) - set(links))
            listener.settimeout(max(0.001, deadline - time.monotonic()))
            try:
                link, _ = listener.accept()
            except TimeoutError as error:
                raise LostPeer(f"ranks {missing} did not join within {JOIN_SECONDS:.0f} s") from error
            peer = introduction(link)
            if peer in missing:
                links[peer] = link
            else:
                link.close()  # a stranger, or a rank that is here already
    return links


def introduction(link: socket.socket) -> int | None:
    """Return the rank that a new link says it is; None if it does not speak our language."""
    link.settimeout(5.0)
    try:
        _, payload = receive_frame(link)
    except OSError:
        return None
    name, _, rank = payload.partition(b" ")
    return int(rank) if name == MAGIC and rank.isdigit() else None


def reach_rank_0(rank: int, address: str, port: int) -> socket.socket:
    """Connect to rank 0, which may not listen yet."""
    deadline = time.monotonic() + JOIN_SECONDS
    while True:
        try:
            link = socket.create_connection((address, port), timeout=5.0)
            send_frame(link, DATA, MAGIC + b" %d" % rank)
        except OSError as error:
            if time.monotonic() > deadline:
                raise LostPeer(f"rank 0 at {address}:{port} cannot be reached ({error})") from error
            time.sleep(0.05)
        else:
            return link


# --- the model and its data -------------------------------------------------------------------------------


def spirals() -> tuple[Vector, NDArray[np.int64]]:
    """Return points on two interleaved spirals and which spiral each is on; always the same ones."""
    random = np.random.default_rng(SEED)
    label = np.arange(SAMPLES) % 2
    along = np.sqrt(random.random(SAMPLES))
    angle = along * 6 * np.pi + label * np.pi
    points = np.stack([along * np.cos(angle), along * np.sin(angle)], axis=1)
    return points + random.normal(scale=0.01, size=points.shape), label


def shard(rank: int, size: int) -> tuple[Vector, NDArray[np.int64]]:
    """Return the part of the data that one rank trains on."""
    points, label = spirals()
    return points[rank::size], label[rank::size]


def first_weights() -> Vector:
    """Return the weights training begins with, in one flat vector; always the same ones."""
    random = np.random.default_rng(SEED + 1)
    parts = []
    for wide, narrow in itertools.pairwise(LAYERS):
        parts += [random.normal(scale=np.sqrt(2 / wide), size=wide * narrow), np.zeros(narrow)]
    return np.concatenate(parts)


def layers(flat: Vector) -> list[tuple[Vector, Vector]]:
    """Return the flat vector as (matrix, bias) views, one pair per layer."""
    views, at = [], 0
    for wide, narrow in itertools.pairwise(LAYERS):
        matrix = flat[at : at + wide * narrow].reshape(wide, narrow)
        at += wide * narrow
        views.append((matrix, flat[at : at + narrow]))
        at += narrow
    return views


def gradient(weights: Vector, points: Vector, label: NDArray[np.int64]) -> tuple[Vector, float, float]:
    """Return the gradient of the mean cross-entropy, that loss, and the share of right answers."""
    inputs = [points]
    for matrix, bias in layers(weights)[:-1]:
        inputs.append(np.maximum(inputs[-1] @ matrix + bias, 0.0))
    matrix, bias = layers(weights)[-1]
    scores = inputs[-1] @ matrix + bias
    scores -= scores.max(axis=1, keepdims=True)
    chance = np.exp(scores)
    chance /= chance.sum(axis=1, keepdims=True)
    rows = np.arange(len(label))
    loss = float(-np.log(chance[rows, label] + 1e-12).mean())
    right = float((chance.argmax(axis=1) == label).mean())

    slope = np.zeros_like(weights)
    error = chance
    error[rows, label] -= 1.0
    error /= len(label)
    for (matrix, _), (d_matrix, d_bias), below in zip(
        reversed(layers(weights)), reversed(layers(slope)), reversed(inputs), strict=True
    ):
        d_matrix[:] = below.T @ error
        d_bias[:] = error.sum(axis=0)
        error = (error @ matrix.T) * (below > 0)
    return slope, loss, right


@dataclass
class State:
    """Everything a checkpoint holds: where training stands."""

    step: int
    weights: Vector
    mean: Vector  # Adam's running means of the gradient
    square: Vector  # and of its square

    @classmethod
    def fresh(cls) -> "State":
        """Return the state before the first step."""
        return cls(0, first_weights(), np.zeros(WEIGHT_COUNT), np.zeros(WEIGHT_COUNT))

    @classmethod
    def from_vector(cls, values: Vector) -> "State":
        """Return the state that to_vector() described."""
        weights, mean, square = np.split(values[1:].copy(), 3)
        return cls(int(values[0]), weights, mean, square)

    def to_vector(self) -> Vector:
        """Return the whole state as one vector, to send to the other ranks."""
        return np.concatenate([[float(self.step)], self.weights, self.mean, self.square])

    def move(self, slope: Vector, rate: float) -> None:
        """Take one step of Adam."""
        self.step += 1
        self.mean = 0.9 * self.mean + 0.1 * slope
        self.square = 0.999 * self.square + 0.001 * slope * slope
        mean = self.mean / (1 - 0.9**self.step)
        square = self.square / (1 - 0.999**self.step)
        self.weights = self.weights - rate * mean / (np.sqrt(square) + 1e-8)

    def checksum(self) -> str:
        """Return a digest of the weights' bits."""
        return hashlib.sha256(self.weights.tobytes()).hexdigest()[:16]


# --- checkpoints ------------------------------------------------------------------------------------------


def save(directory: Path | None, state: State) -> None:
    """Replace the checkpoint in one move, so that a reader never sees half of it."""
    if directory is None:
        return
    directory.mkdir(parents=True, exist_ok=True)
    draft = directory / f".checkpoint.{os.getpid()}.tmp"
    with draft.open("wb") as file:
        np.savez(file, step=state.step, weights=state.weights, mean=state.mean, square=state.square)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(directory / "checkpoint.npz")


def resume(directory: Path | None) -> State:
    """Return the state of the checkpoint in the directory, or a fresh one."""
    if directory is None or not (directory / "checkpoint.npz").exists():
        return State.fresh()
    with np.load(directory / "checkpoint.npz") as kept:
        return State(int(kept["step"]), kept["weights"], kept["mean"], kept["square"])


# --- training ---------------------------------------------------------------------------------------------


@dataclass
class Pace:
    """Rank 0's watch: when to report, to save and to end. The others hear of it with each step's sum."""

    steps: int
    seconds: float
    began: float = field(default_factory=time.monotonic)
    reported: float = 0.0
    saved: float = field(default_factory=time.monotonic)

    def signals(self, next_step: int) -> tuple[float, float, float]:
        """Return 1.0 or 0.0 for each of: this is the last step, report it, save after it."""
        now = time.monotonic()
        last = next_step >= self.steps and now - self.began >= self.seconds
        report = last or now - self.reported >= REPORT_SECONDS
        keep = last or now - self.saved >= CHECKPOINT_SECONDS
        self.reported = now if report else self.reported
        self.saved = now if keep else self.saved
        return float(last), float(report), float(keep)


class Terminator:
    """Remember a SIGTERM until the step in hand is done; before training there is nothing to save."""

    def __init__(self) -> None:
        self.asked = False
        self.training = False
        signal.signal(signal.SIGTERM, self._on_signal)

    def _on_signal(self, _number: int, _frame: FrameType | None) -> None:
        self.asked = True
        if not self.training:
            sys.exit(EXIT_TERMINATED)


def train(group: Group, options: argparse.Namespace, terminator: Terminator) -> bool:
    """Train to the end; return False when a SIGTERM ended it early."""
    folder = Path(options.train_url) if options.train_url else None
    state = State.from_vector(
        group.spread((resume(folder) if group.rank == 0 else State.fresh()).to_vector())
    )
    say(f"rank {group.rank} of {group.size} begins after step {state.step}")
    points, label = shard(group.rank, group.size)
    pace = Pace(options.steps, options.seconds)
    terminator.training = True
    while True:
        chosen = np.random.default_rng([SEED, state.step, group.rank]).integers(len(label), size=BATCH)
        slope, loss, right = gradient(state.weights, points[chosen], label[chosen])
        signals = pace.signals(state.step + 1) if group.rank == 0 else (0.0, 0.0, 0.0)
        total = group.sum(np.concatenate([slope, [loss, right, float(terminator.asked), *signals]]))
        state.move(total[:WEIGHT_COUNT] / group.size, options.lr)
        loss, right = total[WEIGHT_COUNT : WEIGHT_COUNT + 2] / group.size
        asked, last, report, keep = total[WEIGHT_COUNT + 2 :] > 0
        if report or asked:
            say(f"step {state.step} loss {loss:.6f} accuracy {100 * right:.1f}%")
        if (keep or asked) and group.rank == 0:
            save(folder, state)
        if asked or last:
            say(f"done step {state.step} loss {loss:.6f} checksum {state.checksum()}")
            return not asked


def say(line: str) -> None:
    """Print one line at once."""
    print(line, flush=True)


def options_from(arguments: list[str]) -> argparse.Namespace:
    """Read the parameters."""
    parser = argparse.ArgumentParser(description="Train a small network with several workers.")
    parser.add_argument("--steps", type=int, help="train until this step (default: 1000)")
    parser.add_argument("--epochs", type=int, help="or: this many passes over the data")
    parser.add_argument("--lr", type=float, default=0.0015, help="learning rate (default: 0.0015)")
    parser.add_argument("--seconds", type=float, default=0.0, help="run at least this long")
    parser.add_argument("--train_url", help="directory for the checkpoint; resumes from one found there")
    options = parser.parse_args(arguments)
    if options.steps is None:
        per_epoch = max(1, SAMPLES // (BATCH * int(os.environ.get("WORLD_SIZE", "1"))))
        options.steps = options.epochs * per_epoch if options.epochs is not None else 1000
    if options.steps < 1 or options.lr <= 0 or options.seconds < 0:
        parser.error("--steps and --epochs must be at least 1, --lr above 0, --seconds not negative")
    return options


def main() -> int:
    """Join the other ranks, train, and say how it ended."""
    options = options_from(sys.argv[1:])
    terminator = Terminator()
    rank, size = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    address, port = os.environ.get("MASTER_ADDR", "127.0.0.1"), int(os.environ.get("MASTER_PORT", "29500"))
    group = Group(rank, size)
    farewell = ""
    try:
        group = join(rank, size, address, port)
        return 0 if train(group, options, terminator) else EXIT_TERMINATED
    except LostPeer as error:
        farewell = str(error)
        print(f"error: rank {rank} cannot go on: {error}", file=sys.stderr, flush=True)
        return EXIT_LOST_PEER
    finally:
        group.close(farewell)


if __name__ == "__main__":
    sys.exit(main())
