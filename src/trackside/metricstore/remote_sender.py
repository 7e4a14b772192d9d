"""Ships the queue: in order, again until it arrives, and then forgets the jobs that are to be forgotten.

Knows what the answers to a remote write mean. One thread, which nothing waits for.
"""

import logging
import random
import re
import sqlite3
import threading
import time
from collections.abc import Callable, Sequence

from trackside.domain.errors import Unavailable
from trackside.domain.metric import Sample
from trackside.metricstore.remote_http import RemoteServer
from trackside.metricstore.remote_queue import DiskQueue
from trackside.metricstore.remote_wire import HEADERS, write_request

log = logging.getLogger(__name__)

REQUEST_SAMPLES_MAX = 10_000
BACKOFF_SECONDS_MIN, BACKOFF_SECONDS_MAX = 0.25, 30.0
IDLE_SECONDS = 1.0  # how often to look for what became due with time
REFUSED_REQUESTS_MAX = 64  # spent on finding out which samples of one request were refused
ERROR_CHARS_SHOWN = 200
NO_ADMIN_API = b"admin APIs disabled"
DEDUPLICATES = re.compile(rb'-dedup.minScrapeInterval="(?!0s")')
# Prometheus says these with a 500 too, as if trying again could help.
NEVER_TAKEN = (b"too old sample", b"out of order sample", b"out of bounds", b"duplicate sample")


class Sender:
    """One thread between a queue and a server."""

    def __init__(
        self,
        queue: DiskQueue,
        server: RemoteServer,
        *,
        visible_seconds: float,
        shipped: Callable[[int], None],
        ticked: Callable[[], None],
    ) -> None:
        self._queue = queue
        self._server = server
        self._visible_seconds = visible_seconds
        self._shipped = shipped
        self._ticked = ticked
        self._changed = threading.Condition()
        self._pending = True  # what an earlier process left
        self._stopping = False
        self._checked = False
        self._away = False  # the server does not answer
        self._due: dict[str, float] = {}  # jobs to be forgotten, and when
        self.refused = 0
        self._thread = threading.Thread(target=self._run, name="metrics-sender", daemon=True)

    def start(self) -> None:
        """Begin to ship."""
        self._thread.start()

    def wake(self) -> None:
        """Ship now: something was queued."""
        with self._changed:
            self._pending = True
            self._changed.notify_all()

    def flush(self, timeout_seconds: float) -> bool:
        """Wait until everything queued has arrived; say whether it has."""
        with self._changed:
            return self._changed.wait_for(
                lambda: not self._pending and not self._queue.waiting, timeout_seconds
            )

    def stop(self) -> None:
        """Stop shipping and wait for the thread; what is left stays queued."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        wait = 0.0
        while not self._sleep(wait):
            try:
                self._round()
                wait = IDLE_SECONDS
                self._say_back()
            except (Unavailable, sqlite3.Error) as error:
                wait = min(BACKOFF_SECONDS_MAX, max(BACKOFF_SECONDS_MIN, wait * 2))
                self._say_away(error)
            except Exception:
                wait = BACKOFF_SECONDS_MAX
                log.exception("a bug in shipping samples; they stay queued and are tried again")

    def _sleep(self, seconds: float) -> bool:
        """Wait until there is something to do; say whether to stop."""
        with self._changed:
            if seconds > IDLE_SECONDS or self._away:  # a new sample is no reason to hurry a server in trouble
                jittered = seconds * random.uniform(0.5, 1.0)  # noqa: S311 - spreads load, hides nothing
                self._changed.wait_for(lambda: self._stopping, jittered)
            else:
                self._changed.wait_for(lambda: self._stopping or self._pending, seconds)
            return self._stopping

    def _round(self) -> None:
        """Ship all there is; raise Unavailable if that does not work now."""
        while not self._stopping:
            with self._changed:
                self._pending = False
            through, samples = self._queue.peek(REQUEST_SAMPLES_MAX)
            if not through:
                break
            if samples:
                self._ship(samples)
                self._check_duplicates()
            self._queue.shipped(through)
            self._shipped(through)
        if not self._stopping:
            self._forget_due()
            self._ticked()
        with self._changed:
            self._changed.notify_all()

    def _ship(self, samples: Sequence[Sample]) -> None:
        lost = _Refusals()
        self._try(sorted(samples, key=lambda one: one.at_ms), lost)
        if lost.samples:
            self.refused += lost.samples
            log.warning(
                "the metric store refused %d of %d samples: %s", lost.samples, len(samples), lost.said
            )

    def _try(self, samples: Sequence[Sample], lost: "_Refusals") -> None:
        """Send samples; where some are refused, the rest again in halves.

        Prometheus turns a whole request down for one sample that is older than it takes.
        """
        status, answer = self._server.post("/api/v1/write", write_request(samples), HEADERS)
        if status < 300:
            return
        said = answer[:ERROR_CHARS_SHOWN].decode(errors="replace").strip()
        amiss = status >= 500 or status in (401, 403, 404, 408, 429)  # over there, not with the samples
        if amiss and not any(text in answer for text in NEVER_TAKEN):
            raise Unavailable(f"the metric store {self._server.shown} answered {status}: {said}")
        lost.requests += 1
        if len(samples) == 1 or lost.requests >= REFUSED_REQUESTS_MAX:
            lost.samples += len(samples)
            lost.said = said
            return
        middle = len(samples) // 2
        self._try(samples[:middle], lost)
        self._try(samples[middle:], lost)

    def _check_duplicates(self) -> None:
        """Warn once if this is a VictoriaMetrics that counts a sample twice when it comes twice."""
        if self._checked:
            return
        status, flags = self._server.post("/flags", b"", {})  # where Prometheus has nothing
        self._checked = True
        if status == 200 and not flags.lstrip().startswith(b"<") and not DEDUPLICATES.search(flags):
            log.warning(
                "the metric store %s counts samples that are shipped twice two times: start it with"
                " -dedup.minScrapeInterval=1ms",
                self._server.shown,
            )

    def _forget_due(self) -> None:
        """Delete jobs whose last samples were shipped long enough ago to be seen and deleted over there."""
        now = time.monotonic()
        for job_id in self._queue.forgotten():
            if self._due.setdefault(job_id, now + self._visible_seconds) > now:
                continue
            self._delete(job_id)
            self._queue.forgot(job_id)
            del self._due[job_id]

    def _delete(self, job_id: str) -> None:
        status, answer = self._server.post_form(
            "/api/v1/admin/tsdb/delete_series", [("match[]", f'{{job_id={quoted(job_id)},metric!=""}}')]
        )
        if status < 300:
            return
        if status >= 500 and NO_ADMIN_API not in answer:
            raise Unavailable(f"the metric store {self._server.shown} answered {status}")
        log.warning(
            "the metric store does not delete (%d): samples of deleted jobs are hidden and stay there until"
            " its retention ends; Prometheus deletes with --web.enable-admin-api",
            status,
        )

    def _say_away(self, error: Exception) -> None:
        if not self._away:
            self._away = True
            log.warning("%s; samples are queued on disk until it does", error)

    def _say_back(self) -> None:
        if self._away:
            self._away = False
            log.info("the metric store %s takes samples again", self._server.shown)


class _Refusals:
    """What was refused of one request."""

    def __init__(self) -> None:
        self.requests = 0
        self.samples = 0
        self.said = ""


def quoted(text: str) -> str:
    """Return a PromQL string."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'
