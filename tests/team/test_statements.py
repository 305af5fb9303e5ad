"""Every statement that stands in the source is understood by PostgreSQL, whether or not a test runs it there.

Most of the store's tests run on both databases, but one that is missing would hide a statement which only
SQLite takes. What a function puts together of its arguments is left to those tests.
"""

from __future__ import annotations

import ast
import importlib
import re
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from types import ModuleType

import psycopg
import pytest

import whet
from tests.team.cluster import Cluster
from whet.postgres.connection import PostgresConnection, connect
from whet_confirm import team_schema

SOURCE = Path(whet.__file__).parent
# Each speaks to a database of its own kind: SQLite's own pages and indexes, another program's file, or
# PostgreSQL itself.
APART = (
    *(
        "whet_confirm/database.py",
        "whet_confirm/export.py",
        "confirm/team",
        "moving/",
        "postgres/",
        "practice/",
    ),
    *("rewind/", "sqlite/", "store/database.py", "store/migrations/", "store/postings.py", "store/team"),
    "team/",
)
_OF_SQLITE = ("MATCH ?", "PRAGMA", "_fts", "sqlite_", "session_titles", "VACUUM", "wal_checkpoint")
_SHIFTED = re.compile(r"(?:<<|>>)\s*\?")
_READS_OR_WRITES = ("SELECT", "INSERT", "UPDATE", "DELETE", "WITH")


def modules() -> list[str]:
    texts = (path.relative_to(SOURCE).as_posix() for path in sorted(SOURCE.rglob("*.py")))
    return [
        name for name in texts if not name.startswith(APART) and ".execute" in (SOURCE / name).read_text()
    ]


def statements(module: ModuleType, tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Give the line and the text of each statement that needs no argument to be known."""
    for function in ast.walk(tree):
        if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        local: dict[str, object] = {}
        for node in ast.walk(function):
            match node:
                case ast.Assign([ast.Name(name)], value):
                    if isinstance(text := known(value, module, local), str):
                        local[name] = text
                case ast.Call(ast.Attribute(_, "execute" | "executemany"), [first, *_]):
                    text = known(first, module, local)
                    if isinstance(text, str) and text.lstrip().startswith(_READS_OR_WRITES):
                        yield node.lineno, text
                case _:
                    pass


def known(node: ast.expr, module: ModuleType, local: dict[str, object]) -> object:
    if not isinstance(node, ast.Constant | ast.JoinedStr | ast.BinOp | ast.Name | ast.IfExp):
        return None
    names = {name.id for name in ast.walk(node) if isinstance(name, ast.Name)}
    if any(isinstance(one, ast.Call) for one in ast.walk(node)) or not names <= {*vars(module), *local}:
        return None
    try:
        return eval(compile(ast.Expression(node), "statement", "eval"), {**vars(module), **local})
    except (AttributeError, TypeError):
        return None


@pytest.fixture(scope="module")
def understood() -> Iterator[PostgresConnection]:
    cluster: Cluster = importlib.import_module("tests.team.cluster").shared()
    with closing(connect(cluster.database())) as raw:
        team_schema.init(raw)
        raw.execute(f"SET search_path = {team_schema.HOME}, public, {team_schema.NOTED}".encode())
        yield PostgresConnection(raw, {})


def test_the_statements_of_the_source_are_found() -> None:
    module = importlib.import_module("whet.store.imported_items")
    found = list(statements(module, ast.parse((SOURCE / "store/imported_items.py").read_text())))
    assert len(found) == 2 and found[1][1].endswith("INTO moved VALUES (?, ?, ?, ?)")


@pytest.mark.fast_rows(
    "store/claims",
    "store/jobs",
    "store/index.py",
    "store/bulk",
    "serve/team_feed",
    "memory/transcript",
    "store/chats",
    "store/ledger",
)
@pytest.mark.parametrize("name", modules())
def test_postgresql_understands_every_statement(understood: PostgresConnection, name: str) -> None:
    module = importlib.import_module("whet." + name.removesuffix(".py").replace("/", "."))
    refused: list[str] = []
    for line, text in statements(module, ast.parse((SOURCE / name).read_text())):
        if any(word in text for word in _OF_SQLITE):
            continue
        if _SHIFTED.search(text):
            refused.append(f"{name}:{line}: PostgreSQL shifts by 32 bits, a number goes over as 64: {text}")
        try:
            understood.raw.execute(b"PREPARE one AS " + understood.translate_sql(text))
            understood.raw.execute("DEALLOCATE one")
        except psycopg.Error as error:
            refused.append(f"{name}:{line}: {str(error).splitlines()[0]}: {text}")
    assert not refused
