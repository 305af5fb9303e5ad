"""A small real shop database, and the program that people work on it with; both are written into a folder.

`shop.py` counts, empties a table, or deletes old carts. Each change leaves a row in `changes`, in the same
transaction, so that what ran and how often can be read from the database. Pure Python, no network.
"""

from __future__ import annotations

from pathlib import Path

import apsw

DATABASE = "shop.db"
PROGRAM = "shop.py"
# How many days ago each cart was last touched: the first nine are forgotten, in the last three people shop.
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
    """Write program and database into `folder`, which is there; a database of that name must not be."""
    (folder / PROGRAM).write_text(_PROGRAM, "utf-8")
    db = apsw.Connection(str(folder / DATABASE))
    try:
        db.execute("BEGIN")
        db.execute(_SCHEMA)
        people = [(name,) for name in ("Ada", "Bela", "Chidi", "Dunja")]
        db.executemany("INSERT INTO customers (name) VALUES (?)", people)
        orders = [(1, 1250), (1, 399), (2, 80), (3, 2400), (3, 995), (4, 610)]
        db.executemany("INSERT INTO orders (customer, cents) VALUES (?, ?)", orders)
        carts = [(number % 4 + 1, f"-{age} days") for number, age in enumerate(CART_AGES_DAYS)]
        db.executemany("INSERT INTO carts (customer, touched) VALUES (?, datetime('now', ?))", carts)
        db.execute("COMMIT")
    finally:
        db.close()
