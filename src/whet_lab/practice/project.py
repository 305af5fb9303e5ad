"""Writes the demo's small project, which has a fault, into a folder.

`orders/` rounds discounts wrongly; its tests run only with ORDERS_DB=memory, which docs/testing.md
documents and the first error points to. `build/` is output that can be cleaned up, `book/` has 20 chapters
without numbers.
"""

from __future__ import annotations

from pathlib import Path

DATABASE_SETTING = "ORDERS_DB=memory"
FAULTY_LINE = "    return int(cents * (100 - percent) / 100)"
MENDED_LINE = "    return (cents * (100 - percent) + 50) // 100"
CHAPTERS = 20

_FILES = {
    "README.md": """\
# Orders

Takes orders and adds them up. Amounts are in cents.

- `orders/` the package
- `tests/` its tests (see docs/testing.md)
- `build/` output of the last build; can be made again at any time
- `book/` the manual, one file per chapter
""",
    "docs/testing.md": """\
# Running the tests

The tests need a database. `ORDERS_DB` says which one; for tests it is one in memory:

    ORDERS_DB=memory python3 -m unittest -q
""",
    "orders/__init__.py": '"""Takes orders and adds them up."""\n',
    "orders/price.py": f'''\
"""Prices. Amounts are in cents."""


def discounted(cents: int, percent: int) -> int:
    """Give the price after a discount of `percent`, rounded to the nearest cent, halves up."""
{FAULTY_LINE}
''',
    "orders/ledger.py": '''\
"""Orders in a database."""

import os
import sqlite3

from orders.price import discounted


def connect() -> sqlite3.Connection:
    """Open the database that ORDERS_DB names."""
    name = os.environ.get("ORDERS_DB", "")
    if not name:
        raise RuntimeError("no database: set ORDERS_DB=memory (see docs/testing.md)")
    connection = sqlite3.connect(":memory:" if name == "memory" else name)
    connection.execute("CREATE TABLE IF NOT EXISTS lines (order_id TEXT, cents INTEGER, percent INTEGER)")
    return connection


def add(connection: sqlite3.Connection, order_id: str, cents: int, percent: int = 0) -> None:
    """Add a line to an order."""
    connection.execute("INSERT INTO lines VALUES (?, ?, ?)", (order_id, cents, percent))


def total(connection: sqlite3.Connection, order_id: str) -> int:
    """Add up an order's lines, each after its discount."""
    rows = connection.execute("SELECT cents, percent FROM lines WHERE order_id = ?", (order_id,))
    return sum(discounted(cents, percent) for cents, percent in rows)
''',
    "tests/__init__.py": "",
    "tests/test_orders.py": """\
import unittest

from orders import ledger


class Totals(unittest.TestCase):
    def setUp(self):
        self.db = ledger.connect()
        self.addCleanup(self.db.close)

    def test_without_discount(self):
        ledger.add(self.db, "a", 1250)
        ledger.add(self.db, "a", 399)
        self.assertEqual(ledger.total(self.db, "a"), 1649)

    def test_even_discount(self):
        ledger.add(self.db, "b", 1000, percent=10)
        self.assertEqual(ledger.total(self.db, "b"), 900)

    def test_discount_is_rounded_to_the_nearest_cent(self):
        ledger.add(self.db, "c", 995, percent=10)
        self.assertEqual(ledger.total(self.db, "c"), 896)
""",
    "build/orders.txt": "built from orders/\n",
    "build/report.html": "<p>report of the last build</p>\n",
    "build/timing.json": '{"seconds": 1.4}\n',
}
# fmt: off
_TITLES = (
    "The harbour", "A letter", "Market day", "The long bridge", "Rain", "The clerk", "Two ledgers",
    "A wrong sum", "The night ferry", "Salt", "The auction", "Old accounts", "A visitor", "The sealed box",
    "Low tide", "The witness", "A fair price", "The flood", "Home", "Afterwards",
)
# fmt: on


def make_project(folder: Path) -> None:
    """Write the project into `folder`, which is created if needed. Existing files are overwritten."""
    files = dict(_FILES)
    for number, title in enumerate(_TITLES, 1):
        files[f"book/chapter_{number:02d}.md"] = f"# {title}\n\nText of the chapter.\n"
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
