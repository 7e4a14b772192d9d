"""Knows how much the tasks on one node used together, minute by minute; knows no HTTP.

What is told is what Trackside measures: its tasks, of the caller's project. What else runs on the machine is
not in it. CPU and memory are percent of the node's capacity.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from trackside.api.modelarts_v1.metrics import METRIC_OF, series
from trackside.api.modelarts_v1.wire_response import Series
from trackside.domain.job import Job, Task
from trackside.domain.metric import MINUTE_MS, Metric
from trackside.domain.resources import Resources
from trackside.ports import Node, SeriesKey

WINDOW_MINUTES = 60

_KNOWN = {metric.value: metric for metric in Metric}

Means = Mapping[SeriesKey, Mapping[int, float]]


def window(now_ms: int) -> range:
    """Return the minutes that are told: the last sixty complete ones."""
    end = now_ms // MINUTE_MS * MINUTE_MS
    return range(end - WINDOW_MINUTES * MINUTE_MS, end, MINUTE_MS)


@dataclass(slots=True)
class NodeUse:
    """Adds up what tasks used on one node."""

    node: Node
    minutes: range
    _sums: dict[tuple[Metric, int], float] = field(default_factory=dict)
    _cards: dict[tuple[Metric, int], dict[int, float]] = field(default_factory=lambda: defaultdict(dict))

    def add(self, job: Job, means: Means) -> None:
        """Take in a job: of its tasks, the minutes they spent on this node."""
        spent: dict[str, set[int]] = defaultdict(set)
        resources: dict[str, Resources] = {}
        for task in (*job.past_tasks, *job.tasks):
            if task.node_id == self.node.id:
                spent[task.name].update(_minutes_of(task, self.minutes))
                resources[task.name] = task.resources
        for key, row in means.items():
            for minute in spent.get(key.task, set()) & row.keys():
                self._take(key, minute, row[minute], resources[key.task])

    def answer(self, names: Iterable[str], *, each: bool) -> Iterator[Series]:
        """Yield the metrics that are asked for."""
        for name in names:
            metric = METRIC_OF[name].metric
            if not METRIC_OF[name].per_card:
                yield series(name, (self._sums.get((metric, minute)) for minute in self.minutes))
            elif each:
                cards = sorted({card for known, card in self._cards if known is metric})
                for card in cards:
                    row = self._cards[metric, card]
                    yield series(name, (row.get(minute) for minute in self.minutes), card)
            else:
                yield series(name, (self._mean_of_cards(metric, minute) for minute in self.minutes))

    def _take(self, key: SeriesKey, minute: int, value: float, resources: Resources) -> None:
        metric = _KNOWN.get(key.metric)
        if metric is None:  # a metric of the job's own
            return
        if key.card is not None:
            self._cards[metric, key.card][minute] = value
            return
        share = _share_of_node(metric, resources, self.node)
        at = (metric, minute)
        self._sums[at] = self._sums.get(at, 0.0) + value * share

    def _mean_of_cards(self, metric: Metric, minute: int) -> float | None:
        values = [row[minute] for (known, _), row in self._cards.items() if known is metric and minute in row]
        return sum(values) / len(values) if values else None


def _minutes_of(task: Task, minutes: range) -> Iterator[int]:
    if task.started_at_ms is None:
        return
    first = max(minutes.start, task.started_at_ms // MINUTE_MS * MINUTE_MS)
    end = minutes.stop if task.ended_at_ms is None else min(minutes.stop, task.ended_at_ms + 1)
    yield from range(first, end, MINUTE_MS)


def _share_of_node(metric: Metric, resources: Resources, node: Node) -> float:
    """Return what turns percent of a task's share into percent of the node; 1 for rates."""
    if metric is Metric.CPU_PERCENT:
        return resources.cpu_cores / node.capacity.cpu_cores if node.capacity.cpu_cores else 0.0
    if metric is Metric.MEMORY_PERCENT:
        return resources.memory_bytes / node.capacity.memory_bytes if node.capacity.memory_bytes else 0.0
    return 1.0
