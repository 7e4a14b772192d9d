"""The verbs that run Trackside itself: serve."""

from pathlib import Path
from typing import Annotated

import typer

from trackside.cli.session import Session, verb


@verb
def serve(
    session: Session,
    host: Annotated[str | None, typer.Option("--host", help="The address to listen on (127.0.0.1).")] = None,
    port: Annotated[
        int | None, typer.Option("--port", min=0, max=65535, help="The port (8470); 0: any.")
    ] = None,
    data_dir: Annotated[
        str | None, typer.Option("--data-dir", metavar="DIR", help="Where everything is kept (~/.trackside).")
    ] = None,
    config: Annotated[
        Path | None, typer.Option("--config", metavar="FILE", help="Settings, .toml or .yaml.")
    ] = None,
) -> None:
    """Run the server in the foreground; jobs outlive it."""
    del session
    from trackside.cli import serve as server

    server.serve(config=config, host=host, port=port, data_dir=data_dir)
