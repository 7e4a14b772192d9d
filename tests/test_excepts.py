"""An except that takes everything hides nothing: it logs, undoes and raises again, or hands the error on."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

SRC = Path(__file__).parent.parent / "src" / "trackside"
BROAD = {"Exception", "BaseException"}
TELLS = {"exception", "print_exc"}  # with the traceback


def broad_handlers() -> Iterator[tuple[str, ast.ExceptHandler]]:
    for path in sorted(SRC.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ExceptHandler) and is_broad(node.type):
                yield f"{path.relative_to(SRC)}:{node.lineno}", node


def is_broad(caught: ast.expr | None) -> bool:
    return caught is None or any(isinstance(one, ast.Name) and one.id in BROAD for one in ast.walk(caught))


def is_honest(handler: ast.ExceptHandler) -> bool:
    inside = [node for statement in handler.body for node in ast.walk(statement)]
    raises = any(isinstance(node, ast.Raise) for node in inside)
    logs = any(isinstance(node, ast.Attribute) and node.attr in TELLS for node in inside)
    hands_on = any(isinstance(node, ast.Name) and node.id == handler.name for node in inside)
    return raises or logs or hands_on


@pytest.mark.parametrize("handler", [pytest.param(node, id=where) for where, node in broad_handlers()])
def test_an_except_that_takes_everything_hides_nothing(handler: ast.ExceptHandler) -> None:
    assert is_honest(handler), ast.unparse(handler)


@pytest.mark.parametrize(
    ("body", "honest"),
    [
        ("except Exception:\n    pass", False),
        ("except:\n    found = None", False),
        ("except (OSError, Exception) as error:\n    log.info('it failed')", False),
        ("except BaseException:\n    close()\n    raise", True),
        ("except Exception:\n    log.exception('it failed')", True),
        ("except Exception as error:\n    done.set_exception(error)", True),
    ],
)
def test_what_counts_as_hiding(body: str, honest: bool) -> None:
    nodes = ast.walk(ast.parse(f"try:\n    g()\n{body}"))
    (handler,) = (node for node in nodes if isinstance(node, ast.ExceptHandler))
    assert is_broad(handler.type)
    assert is_honest(handler) == honest
