"""Knows which sources of card readings a node has."""

import shutil

from trackside.collect.cards import CardSource
from trackside.collect.dcgm import dcgm_exporter
from trackside.collect.gpu import Gpus
from trackside.collect.npu import PROGRAM, NpuSmi, npu_exporter

NPUS_MAX = 128  # of one node


def card_sources(*, npu_exporter_url: str = "", dcgm_exporter_url: str = "") -> list[CardSource]:
    """Return the sources of this node, the best first: drivers before exporters of the same numbers."""
    sources: list[CardSource] = [Gpus()]
    if dcgm_exporter_url:
        sources.append(dcgm_exporter(dcgm_exporter_url))
    return sources + _npu_sources(npu_exporter_url)


def count_npus(npu_exporter_url: str = "") -> int:
    """Return how many NPUs this node has, as far as its source tells."""
    return sum(len(source.read(frozenset(range(NPUS_MAX)))) for source in _npu_sources(npu_exporter_url))


def _npu_sources(npu_exporter_url: str) -> list[CardSource]:
    if npu_exporter_url:
        return [npu_exporter(npu_exporter_url)]
    return [NpuSmi()] if shutil.which(PROGRAM) else []
