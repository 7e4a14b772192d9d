"""Starts a real, throw-away Prometheus on a loopback port."""

from pathlib import Path

from tests.servers.processes import ServerProcess

CONFIG = """
storage:
  tsdb:
    out_of_order_time_window: 100y
"""


class PrometheusServer(ServerProcess):
    """One server with the given configuration; by default one that takes remote write, late samples too."""

    def __init__(self, config: str = CONFIG, *, admin_api: bool = True) -> None:
        def command(directory: Path, port: int) -> list[str]:
            (directory / "prometheus.yml").write_text(config)
            return [
                f"--config.file={directory / 'prometheus.yml'}",
                f"--storage.tsdb.path={directory / 'data'}",
                f"--web.listen-address=127.0.0.1:{port}",
                "--web.enable-remote-write-receiver",
                *(["--web.enable-admin-api"] if admin_api else []),
                "--storage.tsdb.retention.time=100y",
                "--log.level=warn",
            ]

        super().__init__("prometheus", "prometheus", command, ready="/-/ready")
