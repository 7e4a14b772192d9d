"""The `trackside` command: which verbs there are, and how errors become one line and an exit code.

Heavy imports stay inside the verbs, so that --help and completion are quick.
"""

import json
import sys
from collections.abc import Sequence
from types import TracebackType
from typing import Annotated

import typer
import typer.main

from trackside import __version__
from trackside.cli import (
    agent,
    catalog,
    chaos,
    demo,
    doctor,
    host,
    jobs,
    logs,
    metrics,
    notify,
    policy,
    pool,
    stacks,
    submit,
)
from trackside.cli.errors import CliError, ExitCode
from trackside.cli.session import SCHEMA, Session, current, nobody_reads
from trackside.domain.errors import TracksideError

# The root of Typer's refusals; which package it lives in depends on Typer's version.
REFUSALS: tuple[type[BaseException], ...] = tuple(
    base for base in typer.BadParameter.__mro__ if base.__name__ == "ClickException"
)

app = typer.Typer(
    name="trackside",
    help="Run training jobs on your own machines and know why they fail.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["--help", "-h"]},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"trackside {__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", is_eager=True, callback=_print_version)
    ] = False,
) -> None:
    """Run training jobs on your own machines and know why they fail."""
    del version  # said by its callback, before a verb is asked for


app.command()(submit.submit)
for command in (
    jobs.ls,
    jobs.show,
    jobs.explain,
    logs.logs,
    metrics.metrics,
    stacks.stacks,
    jobs.events,
    jobs.wait,
    jobs.stop,
    jobs.rm,
    chaos.chaos,
):
    app.command()(command)
app.add_typer(catalog.flavor_app, name="flavor")
app.add_typer(pool.pool_app, name="pool")
app.add_typer(catalog.user_app, name="user")
app.add_typer(policy.policy_app, name="policy")
app.add_typer(notify.notify_app, name="notify")
app.add_typer(agent.agent_app, name="agent")
app.command()(host.serve)
app.command()(demo.demo)
app.command()(doctor.doctor)


def run(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and end the process with its exit code."""
    sys.excepthook = _unexpected
    sys.exit(main(sys.argv[1:] if arguments is None else arguments))


def main(arguments: Sequence[str]) -> int:
    """Run one command and return its exit code."""
    current.session = Session(as_json="--json" in arguments)  # for what is refused before it is parsed
    try:
        # Not app(): that would put Typer's own hook for unexpected errors in the place of ours.
        command = typer.main.get_command(app)
        code = command.main(list(arguments), standalone_mode=False, prog_name="trackside")
        sys.stdout.flush()
    except CliError as error:
        return _tell(error)
    except TracksideError as error:
        return _tell(CliError(error.detail, code=ExitCode.REFUSED))
    except REFUSALS as error:
        if type(error).__name__ == "NoArgsIsHelpError":
            print(error, file=sys.stderr)  # it is the whole help, not a sentence
            return ExitCode.USAGE
        return _tell(CliError(_sentence(error), code=ExitCode.USAGE, hint=_usage_hint(error)))
    except (KeyboardInterrupt, typer.Abort):
        print(file=sys.stderr)
        return ExitCode.INTERRUPTED
    except BrokenPipeError:
        nobody_reads()
        return ExitCode.DONE
    return code if isinstance(code, int) else ExitCode.DONE


def _tell(error: CliError) -> int:
    if current.session.as_json:
        told = {
            "schema": SCHEMA,
            "error": error.message,
            "hint": error.hint,
            "exit_code": int(error.code),
        }
        print(json.dumps(told, ensure_ascii=False), file=sys.stderr)
        return error.code
    print(f"error: {error.message}", file=sys.stderr)
    if error.hint:
        print(f"hint: {error.hint}", file=sys.stderr)
    if current.session.debugging:
        import traceback

        traceback.print_exception(error, file=sys.stderr)
    return error.code


def _sentence(error: BaseException) -> str:
    message = str(getattr(error, "format_message", lambda: error)()).strip().rstrip(".")
    return message[:1].lower() + message[1:]


def _usage_hint(error: BaseException) -> str:
    context = getattr(error, "ctx", None)
    return f"{getattr(context, 'command_path', None) or 'trackside'} --help"


def _unexpected(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Print what nobody expected in one line; Python then ends the process with code 1."""
    if current.session.debugging:
        sys.__excepthook__(kind, error, trace)
        return
    print(f"error: something unexpected happened ({kind.__name__}: {error})", file=sys.stderr)
    print("hint: run it again with -v to see where", file=sys.stderr)
