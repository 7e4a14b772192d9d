"""Knows what NVIDIA cards say of themselves through NVML; knows nothing of tasks.

A machine without the driver's library has no readings, and what a card does not tell is left out. A card
that fails is passed over: measuring never stops for it.
"""

import logging
import os
from collections.abc import Callable
from typing import Any

import pynvml

from trackside.collect.cards import CardReading
from trackside.domain.metric import Metric
from trackside.domain.resources import Accelerator

log = logging.getLogger(__name__)

CARD_BYTES_MAX = 1 << 60  # above any card; NVML says "no value" with a field's largest number
CARD_MILLIWATTS_MAX = 100_000_000
CARD_CELSIUS_MAX = 1_000
CARD_ERRORS_MAX = 1 << 60
EVENTS_PER_READING_MAX = 64

Values = dict[Metric, float]
_OLD = (pynvml.NVMLError_FunctionNotFound, pynvml.NVMLError_NotSupported)


class Gpus:
    """Reads the node's NVIDIA cards; the library is loaded at the first reading, once."""

    family = Accelerator.GPU

    def __init__(self) -> None:
        self._ready: bool | None = None
        self._complained: set[tuple[int, str]] = set()
        self._events: Any = None
        self._listening: set[int] = set()
        self._xids: dict[int, int] = {}  # of cards nobody has asked about since

    def read(self, cards: frozenset[int]) -> dict[int, CardReading]:
        """Return what each of the cards says; a card that says nothing is left out."""
        if not cards or not self._load():
            return {}
        self._hear_errors()
        readings = {card: self._read_card(card) for card in sorted(cards)}
        return {card: reading for card, reading in readings.items() if reading is not None}

    def close(self) -> None:
        """Let go of the library."""
        if self._ready:
            self._ready = False
            try:
                if self._events is not None:
                    pynvml.nvmlEventSetFree(self._events)
                pynvml.nvmlShutdown()
            except pynvml.NVMLError as error:
                log.warning("NVML did not shut down: %s", error)

    def _load(self) -> bool:
        if self._ready is None:
            try:
                pynvml.nvmlInit()
                self._ready = True
            except pynvml.NVMLError as error:
                log.info("no GPU readings: %s", error)
                self._ready = False
        return self._ready

    def _read_card(self, card: int) -> CardReading | None:
        try:
            handle = pynvml.nvmlDeviceGetHandleByIndex(card)
        except pynvml.NVMLError as error:
            self._complain(card, "itself", error)
            return None
        values: Values = {}
        for what, read in _READERS.items():
            try:
                values |= read(handle)
            except pynvml.NVMLError as error:
                self._complain(card, what, error)
        if card in self._xids:
            values[Metric.GPU_XID] = float(self._xids.pop(card))
        self._listen(card, handle)
        holders = self._holders(card, handle)
        return CardReading(values, holders) if values or holders else None

    def _holders(self, card: int, handle: object) -> frozenset[int] | None:
        """Return the processes that hold memory of the card; None where that cannot be told."""
        try:
            pids = frozenset(pid for read in _HOLDERS for pid in read(handle))
        except pynvml.NVMLError as error:
            self._complain(card, "its processes", error)
            return None
        # One that is not there was numbered in another pid namespace: then none can be matched.
        return pids if all(os.path.exists(f"/proc/{pid}") for pid in pids) else None

    def _listen(self, card: int, handle: object) -> None:
        """Have the driver tell of the card's errors (XID) from now on."""
        if card in self._listening:
            return
        self._listening.add(card)
        try:
            if self._events is None:
                self._events = pynvml.nvmlEventSetCreate()
            pynvml.nvmlDeviceRegisterEvents(handle, pynvml.nvmlEventTypeXidCriticalError, self._events)
        except pynvml.NVMLError as error:
            self._complain(card, "its errors", error)

    def _hear_errors(self) -> None:
        if self._events is None:
            return
        try:
            for _ in range(EVENTS_PER_READING_MAX):
                event = pynvml.nvmlEventSetWait_v2(self._events, 0)
                self._xids[int(pynvml.nvmlDeviceGetIndex(event.device))] = int(event.eventData)
        except pynvml.NVMLError_Timeout:
            return
        except pynvml.NVMLError as error:
            self._complain(-1, "errors", error)

    def _complain(self, card: int, what: str, error: Exception) -> None:
        if (card, what) not in self._complained:  # once, not once per pass
            self._complained.add((card, what))
            level = logging.INFO if isinstance(error, _OLD) else logging.WARNING
            log.log(level, "GPU %d does not tell %s: %s", card, what, error)


def _busy(handle: object) -> Values:
    percent = int(pynvml.nvmlDeviceGetUtilizationRates(handle).gpu)
    return {Metric.GPU_PERCENT: float(percent)} if 0 <= percent <= 100 else {}


def _memory(handle: object) -> Values:
    """Return used bytes and percent; the newer call leaves out what the driver reserves for itself."""
    try:
        memory = pynvml.nvmlDeviceGetMemoryInfo(handle, version=pynvml.nvmlMemory_v2)
    except _OLD:
        memory = pynvml.nvmlDeviceGetMemoryInfo(handle)
    used_bytes, total_bytes = int(memory.used), int(memory.total)
    if not 0 <= used_bytes <= total_bytes <= CARD_BYTES_MAX or total_bytes == 0:
        return {}
    return {
        Metric.GPU_MEMORY_USED_BYTES: float(used_bytes),
        Metric.GPU_MEMORY_PERCENT: 100.0 * used_bytes / total_bytes,
    }


def _power(handle: object) -> Values:
    milliwatts = int(pynvml.nvmlDeviceGetPowerUsage(handle))
    return {Metric.GPU_POWER_WATTS: milliwatts / 1000} if milliwatts <= CARD_MILLIWATTS_MAX else {}


def _temperature(handle: object) -> Values:
    try:
        celsius = int(pynvml.nvmlDeviceGetTemperatureV(handle, pynvml.NVML_TEMPERATURE_GPU))
    except (AttributeError, *_OLD):  # older bindings, older drivers
        celsius = int(pynvml.nvmlDeviceGetTemperature(handle, pynvml.NVML_TEMPERATURE_GPU))
    return {Metric.GPU_TEMPERATURE_CELSIUS: float(celsius)} if 0 <= celsius <= CARD_CELSIUS_MAX else {}


def _ecc(handle: object) -> Values:
    errors = int(
        pynvml.nvmlDeviceGetTotalEccErrors(
            handle, pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, pynvml.NVML_VOLATILE_ECC
        )
    )
    return {Metric.GPU_ECC_ERRORS: float(errors)} if errors <= CARD_ERRORS_MAX else {}


def _compute(handle: object) -> set[int]:
    try:
        found = pynvml.nvmlDeviceGetComputeRunningProcesses_v3(handle)
    except _OLD:
        found = pynvml.nvmlDeviceGetComputeRunningProcesses_v2(handle)
    return {int(process.pid) for process in found}


def _graphics(handle: object) -> set[int]:
    try:
        return {int(process.pid) for process in pynvml.nvmlDeviceGetGraphicsRunningProcesses_v3(handle)}
    except _OLD:  # most cards of servers draw nothing
        return set()


_READERS: dict[str, Callable[[object], Values]] = {
    "how busy it is": _busy,
    "its memory": _memory,
    "its power": _power,
    "its temperature": _temperature,
    "its memory errors": _ecc,
}
_HOLDERS: tuple[Callable[[object], set[int]], ...] = (_compute, _graphics)
