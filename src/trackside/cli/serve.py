"""Knows how `trackside serve` is started from the command line."""

import asyncio
import logging
import os
import sys
from pathlib import Path
from typing import Any

import uvloop

from trackside.api.server import CannotListen
from trackside.cli.errors import Refused
from trackside.config import load_settings
from trackside.domain.errors import Unavailable
from trackside.wiring import build, run


def serve(*, config: Path | None = None, **overrides: Any) -> None:
    """Run the server in the foreground until it is told to stop."""
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(asctime)s %(levelname)s %(message)s")
    logging.getLogger("alembic").setLevel(logging.WARNING)
    os.umask(0o077)  # whatever the server writes is for nobody else's eyes
    settings = load_settings(config, **overrides)
    try:
        parts = build(settings)
    except Unavailable as error:
        hint = f"if another server uses {settings.data_dir}, stop it, or choose another with --data-dir"
        raise Refused(error.detail, hint) from error

    def started(endpoint: str) -> None:
        print(f"Trackside listens on {endpoint}", file=sys.stderr)
        print(
            f"Keys for clients are in {parts.places.data_dir / 'credentials.json'}",
            file=sys.stderr,
            flush=True,
        )

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        try:
            runner.run(run(parts, started=started))
        except CannotListen as error:
            raise Refused(str(error), "trackside serve --port 0 takes any port that is free") from error
