"""Starts a real, throw-away VictoriaMetrics on a loopback port."""

import urllib.request
from pathlib import Path

from tests.servers.processes import ServerProcess


class VictoriaMetricsServer(ServerProcess):
    """One server, set up as docs/prometheus.md says, but for what tests store of long ago."""

    def __init__(self, *, deduplicates: bool = True) -> None:
        def command(directory: Path, port: int) -> list[str]:
            return [
                f"-storageDataPath={directory / 'data'}",
                f"-httpListenAddr=127.0.0.1:{port}",
                *(["-dedup.minScrapeInterval=1ms"] if deduplicates else []),
                "-retentionPeriod=100y",
                "-maxLabelsPerTimeseries=40",
                "-memory.allowedBytes=256MB",
                "-loggerLevel=WARN",
            ]

        super().__init__("victoria-metrics", "victoria-metrics", command, ready="/health")

    def force_flush(self) -> None:
        """Make everything that was written readable at once."""
        with urllib.request.urlopen(self.url + "/internal/force_flush", timeout=30):
            pass
