"""Knows which sources of card readings a node has."""

import shutil

from trackside.collect.cards import CardSource
from trackside.collect.dcgm import dcgm_exporter
from trackside.collect.gpu import Gpus
from trackside.collect.npu import PROGRAM, NpuSmi, npu_exporter


def card_sources(*, npu_exporter_url: str = "", dcgm_exporter_url: str = "") -> list[CardSource]:
    """Return the sources of this node, the best first: drivers before exporters of the same numbers."""
    sources: list[CardSource] = [Gpus()]
    if dcgm_exporter_url:
        sources.append(dcgm_exporter(dcgm_exporter_url))
    if npu_exporter_url:
        sources.append(npu_exporter(npu_exporter_url))
    elif shutil.which(PROGRAM):
        sources.append(NpuSmi())
    return sources
