"""Knows the flags every verb has, and turns data into what the reader of stdout can use.

People on a terminal get aligned columns, programs tab-separated values or JSON. Data goes to stdout, talk to
stderr, and nothing here knows what the data means.
"""

import functools
import inspect
import json
import os
import shutil
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

if TYPE_CHECKING:
    from trackside.cli.api import Api

SCHEMA = "trackside/1"


class Column(NamedTuple):
    """One column of a table: what a person and what a program gets to see of an item."""

    name: str
    human: Callable[[Any], str]
    full: Callable[[Any], object] | None = None  # None: the same
    right: bool = False
    only: str = ""  # "tty" or "pipe": leave it out elsewhere
    width: int = 0  # leave it out on terminals narrower than this


@dataclass(kw_only=True)
class Session:
    """One run of the command: its common flags, its client and its two streams."""

    as_json: bool = False
    utc: bool = True
    no_color: bool = False
    quiet: bool = False
    verbose: bool = False
    server: str | None = None
    _api: "Api | None" = None

    @property
    def api(self) -> "Api":
        """Return the client of the server that the settings name."""
        if self._api is None:
            from trackside.cli.api import Api
            from trackside.cli.client import Client
            from trackside.cli.settings import load

            self._api = Api(Client(load(self.server)))
        return self._api

    def use(self, api: "Api") -> None:
        """Speak to this server from now on."""
        self._api = api

    @property
    def debugging(self) -> bool:
        """Say whether tracebacks are wanted."""
        return self.verbose or bool(os.environ.get("TRACKSIDE_DEBUG"))

    @property
    def terminal(self) -> bool:
        """Say whether a person reads stdout."""
        return sys.stdout.isatty() and not self.as_json

    @property
    def colored(self) -> bool:
        """Say whether stdout may be coloured."""
        return self.terminal and not self.no_color and not os.environ.get("NO_COLOR")

    def now_ms(self) -> int:
        """Return the wall clock."""
        return time.time_ns() // 1_000_000

    def out(self, text: str) -> None:
        """Print data."""
        print(text)

    def talk(self, text: str) -> None:
        """Print a remark, unless asked to be quiet."""
        sys.stdout.flush()  # what came before it stands before it, where both go to one place
        if not self.quiet:
            print(text, file=sys.stderr, flush=True)

    def emit(self, data: dict[str, Any]) -> None:
        """Print one JSON object."""
        print(json.dumps({"schema": SCHEMA, **data}, ensure_ascii=False), flush=True)

    def paint(self, text: str, color: str) -> str:
        """Return the text coloured, where colour is welcome."""
        return typer.style(text, fg=color) if self.colored else text

    def table(self, columns: Sequence[Column], items: Sequence[Any]) -> None:
        """Print items as aligned columns on a terminal, else tab-separated with a header row."""
        here = "tty" if self.terminal else "pipe"
        shown = [column for column in columns if column.only in ("", here)]
        if self.terminal:
            wide = shutil.get_terminal_size().columns
            self._aligned([column for column in shown if column.width <= wide], items)
            return
        print("\t".join(column.name for column in shown))
        for item in items:
            print("\t".join(_plain((column.full or column.human)(item)) for column in shown))

    def _aligned(self, columns: Sequence[Column], items: Sequence[Any]) -> None:
        from rich.console import Console
        from rich.table import Table
        from rich.text import Text

        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="")
        # The last column gives way where the line is too short; half a number is none, so then names do.
        folding = not columns[-1].right
        for index, column in enumerate(columns):
            last = index == len(columns) - 1
            table.add_column(
                column.name,
                justify="right" if column.right else "left",
                no_wrap=column.right or (folding and not last),
                overflow="fold" if last and folding else "ellipsis",
            )
        for item in items:
            cells = [Text.from_ansi(column.human(item)) for column in columns]
            for cell in () if folding else cells:
                cell.no_wrap = True
            table.add_row(*cells)
        Console(no_color=not self.colored, highlight=False, markup=False).print(table)


COMMON = (
    ("as_json", Annotated[bool, typer.Option("--json", help="Print JSON.")], False),
    (
        "utc",
        Annotated[bool, typer.Option("--utc/--local", help="Show times in UTC or in the local zone.")],
        True,
    ),
    ("no_color", Annotated[bool, typer.Option("--no-color", help="No colour (also: NO_COLOR=1).")], False),
    ("quiet", Annotated[bool, typer.Option("--quiet", "-q", help="No remarks on stderr.")], False),
    ("verbose", Annotated[bool, typer.Option("--verbose", "-v", help="Show tracebacks.")], False),
    (
        "server",
        Annotated[str | None, typer.Option("--server", metavar="URL", help="The server's address.")],
        None,
    ),
)


def verb(function: Callable[..., None]) -> Callable[..., None]:
    """Give a command the common flags; it gets them as a Session in its first argument."""

    @functools.wraps(function)
    def run(**given: Any) -> None:
        common = {name: given.pop(name) for name, _, _ in COMMON}
        current.session = Session(**common)
        try:
            function(current.session, **given)
            sys.stdout.flush()
        except BrokenPipeError as error:
            nobody_reads()
            raise typer.Exit(0) from error

    signature = inspect.signature(function)
    own = list(signature.parameters.values())[1:]
    shared = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
        for name, annotation, default in COMMON
    ]
    parameters = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in own] + shared
    run.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters} | {
        "return": None
    }
    return run


def nobody_reads() -> None:
    """Give up stdout: its reader has enough. Python would else complain when it flushes at the end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


class _Current:
    """The session of this process, for whoever must print an error the way it was asked for."""

    session: Session = Session()


current = _Current()


def _plain(value: object) -> str:
    return "" if value is None else str(value).replace("\t", " ").replace("\n", " ")
