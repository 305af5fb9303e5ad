"""A small real shop database, and the program that people use with it; both are written into a folder.

`shop.py` counts, empties a table, or deletes old carts. Each change adds a row to `changes` in the same
transaction, so that the database shows which changes ran and how often. Pure Python, no network.
"""

from __future__ import annotations

import re
from contextlib import closing
from pathlib import Path

import apsw

from whet_lab.practice.ask import PracticeRequest
from whet_lab.practice.script import ScriptedReply
from whet_lab.practice.tool_use import ToolUse

DATABASE = "shop.db"
PROGRAM = "shop.py"
# The age of each cart in days: the first nine are abandoned, the last three are in use.
CART_AGES_DAYS = (420, 391, 300, 266, 210, 180, 133, 120, 97, 12, 1, 0)

_SCHEMA = """
CREATE TABLE customers (id INTEGER PRIMARY KEY, name TEXT NOT NULL);
CREATE TABLE orders (id INTEGER PRIMARY KEY, customer INTEGER NOT NULL, cents INTEGER NOT NULL);
CREATE TABLE carts (id INTEGER PRIMARY KEY, customer INTEGER NOT NULL, touched TEXT NOT NULL);
CREATE TABLE changes (id INTEGER PRIMARY KEY, what TEXT NOT NULL, rows INTEGER NOT NULL);
"""
_PROGRAM = '''\
"""Look after the shop's database.

    python3 shop.py tables                          what there is
    python3 shop.py wipe TABLE                      take every row out of a table
    python3 shop.py delete-carts --older-than DAYS  take out carts that nobody touched for so long
"""

import sqlite3
import sys

TABLES = ("customers", "orders", "carts")
AGE = "CAST(julianday('now') - julianday(touched) AS INTEGER)"


def main(arguments):
    db = sqlite3.connect("shop.db")
    try:
        match arguments:
            case ["tables"]:
                for table in TABLES:
                    print(f"{table}: {count(db, table)} rows")
                oldest, newest = db.execute(f"SELECT max({AGE}), min({AGE}) FROM carts").fetchone()
                if oldest is not None:
                    print(f"carts were last touched {newest} to {oldest} days ago")
            case ["wipe", table] if table in TABLES:
                change(db, f"wipe {table}", f"DELETE FROM {table}", ())
            case ["delete-carts", "--older-than", days] if days.isdigit():
                old = f"DELETE FROM carts WHERE {AGE} > ?"
                change(db, f"delete carts older than {days} days", old, (int(days),))
            case _:
                sys.exit(__doc__)
    finally:
        db.close()


def change(db, what, statement, values):
    with db:
        rows = db.execute(statement, values).rowcount
        db.execute("INSERT INTO changes (what, rows) VALUES (?, ?)", (what, rows))
    print(f"{rows} rows deleted")


def count(db, table):
    return db.execute(f"SELECT count(*) FROM {table}").fetchone()[0]


main(sys.argv[1:])
'''


def make_shop(folder: Path) -> None:
    """Write program and database into `folder`. The folder must exist, the database must not."""
    (folder / PROGRAM).write_text(_PROGRAM, "utf-8")
    with closing(apsw.Connection(str(folder / DATABASE))) as db:
        db.execute("BEGIN")
        db.execute(_SCHEMA)
        people = [(name,) for name in ("Ada", "Bela", "Chidi", "Dunja")]
        db.executemany("INSERT INTO customers (name) VALUES (?)", people)
        orders = [(1, 1250), (1, 399), (2, 80), (3, 2400), (3, 995), (4, 610)]
        db.executemany("INSERT INTO orders (customer, cents) VALUES (?, ?)", orders)
        carts = [(number % 4 + 1, f"-{age} days") for number, age in enumerate(CART_AGES_DAYS)]
        db.executemany("INSERT INTO carts (customer, touched) VALUES (?, datetime('now', ?))", carts)
        db.execute("COMMIT")


MATCH = re.compile(r"\btidy\b.*\bshop\b", re.I)

LOOK = f"python3 {PROGRAM} tables"
WIPE = f"python3 {PROGRAM} wipe carts"
_AGE = re.compile(r"older than (\d+) days", re.I)


def delete_command(days: str) -> str:
    """Return the command that deletes only the carts older than `days`."""
    return f"python3 {PROGRAM} delete-carts --older-than {days}"


def proceed(request: PracticeRequest, start: int) -> ScriptedReply:
    """Take the next step of the task that began with message `start`."""
    tools = ToolUse(request)
    calls = [call for call in request.completed_calls if call.index > start]
    changes = [call for call in calls if call.command != LOOK]
    looks = [call for call in calls if call.command == LOOK]
    if not looks or (changes and not changes[-1].is_denied and looks[-1].index < changes[-1].index):
        return tools.shell(LOOK, "I look at what is there." if not looks else "I look at what is there now.")
    if not changes:
        if "carts: " not in looks[-1].result:
            return ScriptedReply(f"I find no shop database here. `{LOOK}` said: {looks[-1].first_line}")
        return tools.shell(WIPE, "Most carts are old. I empty the table.")
    last = changes[-1]
    if not last.is_denied:
        now = f"```\n{looks[-1].result.strip()}\n```"
        return ScriptedReply(f"`{last.command}` said: {last.first_line}. What there is now:\n\n{now}")
    age = _AGE.search(last.result)
    if age is None or last.command == delete_command(age[1]):
        return ScriptedReply(f"I changed nothing. `{last.command}` was not run: {last.first_line}")
    say = f"The denial says what may go: carts older than {age[1]} days. I ask for that and no more."
    return tools.shell(delete_command(age[1]), say)
