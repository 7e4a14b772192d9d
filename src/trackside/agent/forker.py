"""Knows how to fork a shim in a millisecond, because it is small and already up; refuses to know tasks.

Runs as `python -I -S`, standard library only, single-threaded. It is a subreaper, so what a killed shim
leaves behind becomes its child, and it kills that when asked to. The agent may die and find it again.
"""

import contextlib
import gc
import os
import select
import signal
import socket
import sys
import time

from trackside.agent import linux, record, shim, tree

LOCK = "forker.lock"
SOCKET = "forker.sock"
SWEEP = b"sweep"
MESSAGE_BYTES_MAX = 4096
SWEEP_SECONDS_MAX = 5.0
HOME_MS = 20_000  # how often it looks whether its directory is still there
SPARES = 2  # shims forked before their tasks are known


def main(agent_dir: str, listener_fd: int) -> None:
    """Serve launch requests until SIGTERM; shims live on."""
    os.chdir("/")
    linux.set_name("trackside-fork")
    lock_fd = record.lock(f"{agent_dir}/{LOCK}")
    if lock_fd is None:
        sys.exit("another forker serves this directory")
    linux.become_subreaper()
    _Forker(socket.socket(fileno=listener_fd), lock_fd).serve()


class _Forker:
    def __init__(self, listener: socket.socket, lock_fd: int) -> None:
        self._listener = listener
        self._lock_fd = lock_fd
        self._shims: set[int] = set()
        self._spares: list[socket.socket] = []
        self._wake_read, self._wake_write = os.pipe()
        self._ending = False

    def serve(self) -> None:
        os.set_blocking(self._wake_write, False)
        signal.set_wakeup_fd(self._wake_write, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGTERM, self._end)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        gc.collect()
        gc.freeze()  # a fork shares these pages for as long as nobody touches them
        gc.disable()
        poller = select.poll()
        poller.register(self._listener, select.POLLIN)
        poller.register(self._wake_read, select.POLLIN)
        while not self._ending:
            # Between requests, so that nobody waits for it.
            for fd, _ in poller.poll(0) or self._idle(poller):
                if fd == self._wake_read:
                    os.read(self._wake_read, 4096)
                    self._reap()
                else:
                    self._accept()

    def _idle(self, poller: select.poll) -> list[tuple[int, int]]:
        """Fork one shim ahead of its task if some are missing, else wait for something to do."""
        if len(self._spares) >= SPARES:
            if os.fstat(self._lock_fd).st_nlink == 0:  # the data directory was removed: nobody will call
                self._ending = True
                return []
            return poller.poll(HOME_MS)
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        if self._fork() == 0:
            for spare in (ours, *self._spares):
                spare.close()
            shim.main(theirs)
        theirs.close()
        self._spares.append(ours)
        return []

    def _end(self, *_: object) -> None:
        self._ending = True

    def _reap(self) -> None:
        with contextlib.suppress(ChildProcessError):
            while (pid := os.waitpid(-1, os.WNOHANG)[0]) != 0:
                self._shims.discard(pid)

    def _accept(self) -> None:
        connection, _ = self._listener.accept()
        with connection:
            connection.settimeout(1.0)
            with contextlib.suppress(OSError):
                message = connection.recv(MESSAGE_BYTES_MAX)
                if message == SWEEP:
                    connection.sendall(b"%d" % self._sweep())
                elif message:
                    self._launch(message, connection)

    def _launch(self, state_dir: bytes, doorbell: socket.socket) -> None:
        """Hand the task to a shim that is up already; one that does not take it is dead."""
        while self._spares:
            with self._spares.pop() as spare, contextlib.suppress(OSError):
                socket.send_fds(spare, [state_dir], [doorbell.fileno()])
                return
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with ours, theirs:
            socket.send_fds(ours, [state_dir], [doorbell.fileno()])
            if self._fork() == 0:
                ours.close()
                doorbell.close()
                shim.main(theirs)

    def _fork(self) -> int:
        """Fork a shim; in it, let go of everything that is the forker's."""
        shim.block_signals()
        pid = os.fork()
        if pid != 0:
            self._shims.add(pid)
            signal.pthread_sigmask(signal.SIG_SETMASK, set())
            return pid
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        for fd in (self._lock_fd, self._wake_read, self._wake_write):
            os.close(fd)
        self._listener.close()
        return 0

    def _sweep(self) -> int:
        """Kill everything below this process that is not a shim or below one; return how much is left."""
        deadline = time.monotonic() + SWEEP_SECONDS_MAX
        while self._orphans() and time.monotonic() < deadline:
            tree.freeze_and_kill(self._orphans)
            self._reap()
            signal.sigtimedwait({signal.SIGCHLD}, 0.01)
        return len(self._orphans())

    def _orphans(self) -> set[int]:
        self._reap()
        return tree.descendants([os.getpid()]) - self._shims - tree.descendants(self._shims)
