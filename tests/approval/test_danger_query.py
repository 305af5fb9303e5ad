"""Statements for database clients: dialects that disagree, included files, and time."""

from __future__ import annotations

import time
from itertools import product
from pathlib import Path

import pytest

from tests.approval.test_high_risk import action, name_of
from whet.approval.danger_code import judge_query

CLIENTS = ("mysql shop < f.sql", "psql -f f.sql", "sqlite3 app.db < f.sql", "cat f.sql | mysql shop")
DROPPED_USERS = (
    "SELECT 5--1; DROP TABLE users;", "SELECT 5\n-----\n1; DROP TABLE users;",
    "/*!50000 DROP TABLE users */;", "/*M! DROP TABLE users */;",
    'SELECT "\\" /* "; DROP TABLE users; -- */', "SELECT '\\' /* '; DROP TABLE users; -- */",
    "SELECT 1 # /*\n; DROP TABLE users; -- */", "SELECT `/*`; DROP TABLE users; SELECT `*/`;",
    "SELECT $$ /* $$; DROP TABLE users; -- */", "SELECT E'\\' /* '; DROP TABLE users; -- */",
    "SELECT 1; /*! DROP /* x */ TABLE users; */", "DELETE FROM users AS u;",
    "WITH gone AS (DELETE FROM users RETURNING *) SELECT * FROM gone;",
)  # fmt: skip


@pytest.mark.fast_rows("mysql shop < f.sql")
@pytest.mark.parametrize(("command", "text"), list(product(CLIENTS, DROPPED_USERS)))
def test_a_statement_that_one_dialect_takes_for_a_comment_counts(
    tmp_path: Path, command: str, text: str
) -> None:
    (tmp_path / "f.sql").write_text(text)
    assert action(tmp_path, "terminal", command=command).level == "dangerous"
    assert name_of(tmp_path, command) == "delete_data"


HARMLESS = (
    "-- drop table users\nselect 1;\n",
    "--------------------\n-- Don't drop tables\n--------------------\ncreate table t (a int);\n",
    "/* drop table users; */ select 'it''s -- fine';",
    "select '/*'; insert into t values ('*/');",
    "update t set a = 1\nwhere id = 2;\ndelete from t\nwhere id = 3;\n",
    "select 5 - -1;",
    "(select 1) union (select 2);",
    "\n" * 50 + "select 1;",
)


@pytest.mark.fast_rows("psql -f f.sql")
@pytest.mark.parametrize(("command", "text"), list(product(CLIENTS, HARMLESS)))
def test_comments_of_every_dialect_do_not_count(tmp_path: Path, command: str, text: str) -> None:
    (tmp_path / "f.sql").write_text(text)
    assert action(tmp_path, "terminal", command=command).level == "normal"


@pytest.mark.parametrize(
    ("command", "text"),
    [
        ("psql -f f.sql", "create function f() returns int as $$ begin perform 1; return 2; end $$;"),
        ("psql -f f.sql", "/* a /* nested */ comment */ select 1;"),
        ("mysql shop < f.sql", "# a comment\n/*+ hint */ select 'it\\'s';"),
        ("psql -c 'COPY (SELECT 1) TO STDOUT'", ""),
        ("psql -c 'copy t from stdin' < rows.csv", ""),
        ("duckdb -c \"from 'a.csv'\"", ""),
        ("mongosh --eval 'rs.status()'", ""),
    ],
)
def test_what_a_client_reads_in_its_own_dialect_passes(tmp_path: Path, command: str, text: str) -> None:
    (tmp_path / "f.sql").write_text(text)
    (tmp_path / "rows.csv").write_text("")
    assert (action(tmp_path, "terminal", command=command).level, name_of(tmp_path, command)) == ("normal", "")


def test_copy_to_a_file_of_the_server_counts(tmp_path: Path) -> None:
    assert name_of(tmp_path, "psql -c \"copy t to '/var/lib/x'\"") == "delete_data"


def _take(tmp_path: Path, command: str) -> float:
    started_s = time.process_time()
    action(tmp_path, "terminal", command=command)
    return time.process_time() - started_s


def test_a_file_that_includes_itself_is_read_once(tmp_path: Path) -> None:
    (tmp_path / "f.sql").write_text("\\i f.sql\n" * 500)
    assert action(tmp_path, "terminal", command="psql -f f.sql").level == "normal"
    (tmp_path / "g.sql").write_text("\\i f.sql\n\\i ./g.sql\n" * 60 + "drop table users;")
    (tmp_path / "f.sql").write_text("\\i g.sql\n" * 60)
    view = action(tmp_path, "terminal", command="psql -f f.sql")
    assert view.reasons == ("deletes or overwrites data in a database",)


def test_the_files_that_are_looked_through_are_limited(tmp_path: Path) -> None:
    for number in range(40):
        (tmp_path / f"{number}.sql").write_text(f"\\i {number + 1}.sql\n" + "select 1;\n" * 20)
    view = action(tmp_path, "terminal", command="psql -f 0.sql")
    assert view.reasons == ("psql runs statements that can't be read here: 20.sql",)
    (tmp_path / "1.sql").write_text("".join(f"\\i {number}.sql\n" for number in range(2, 9)))
    for number in range(2, 10):
        (tmp_path / f"{number}.sql").write_text("select 1;\n" * 1_900)
    view = action(tmp_path, "terminal", command="psql -f 1.sql")
    assert view.reasons == ("psql runs statements that can't be read here: 7.sql",)


@pytest.mark.fast_rows("$a$ $b$", "/*", "'")
@pytest.mark.parametrize(
    "text", ["/* ", "/*", "'", "$a$ $b$ ", "\n", "update t set a ", ".once  ", "-", "$a", "\\", "copy x "]
)
def test_a_text_of_repeated_characters_is_read_in_linear_time(tmp_path: Path, text: str) -> None:
    (tmp_path / "f.sql").write_text((text * 20_000)[:19_990])
    assert _take(tmp_path, "mysql shop < f.sql") < 0.5


def test_a_long_file_is_not_looked_through(tmp_path: Path) -> None:
    (tmp_path / "f.sql").write_text("/* " * 30_000)
    assert _take(tmp_path, "mysql shop < f.sql") < 0.2
    view = action(tmp_path, "terminal", command="mysql shop < f.sql")
    assert view.reasons == ("a query too long to be looked through",)


@pytest.mark.parametrize(
    "statement",
    ["delete from/**/users", "drop/* a */table users", "with x as (select 1) delete /*x*/ from users"],
)
def test_a_comment_between_words_hides_no_statement(statement: str) -> None:
    assert judge_query(statement) is not None
