"""Changes to a database file by somebody who can write the file and not sign: bytes of one index.

A process of its own does it, as an attacker's would: it reads and writes the file beside whoever has it open.
"""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

_INDEX_LEAF = 10


def overwrite(path: Path, index: str, old: bytes, new: bytes) -> None:
    """Put `new` in place of `old`, which is there once, in the pages of an index and nowhere else."""
    assert len(old) == len(new)
    _in_child(path, index, old.hex(), new.hex())


def empty(path: Path, index: str) -> None:
    """Take every entry out of an index of one page."""
    _in_child(path, index)


def _in_child(path: Path, index: str, *change: str) -> None:
    subprocess.run([sys.executable, "-S", __file__, str(path), index, *change], check=True, timeout=60)


def _main(name: str, index: str, old: str = "", new: str = "") -> None:
    path = Path(name)
    with closing(sqlite3.connect(path)) as db:
        busy, _, _ = db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        assert not busy, "the file does not hold everything yet"
        (size,) = db.execute("PRAGMA page_size").fetchone()
        (root,) = db.execute("SELECT rootpage FROM sqlite_master WHERE name = ?", (index,)).fetchone()
    data = bytearray(path.read_bytes())
    pages = _below(bytes(data), size, root)
    if old:
        _replace(data, size, pages, (bytes.fromhex(old), bytes.fromhex(new)))
    else:
        (number,) = pages
        _clear(data, size, number)
    path.write_bytes(data)


def _below(data: bytes, size: int, number: int) -> list[int]:
    """Return the numbers of an index's pages, from its root on."""
    page = data[(number - 1) * size : number * size]
    if page[0] == _INDEX_LEAF:
        return [number]
    cells = int.from_bytes(page[3:5], "big")
    paths = [int.from_bytes(page[12 + 2 * at : 14 + 2 * at], "big") for at in range(cells)]
    children = [int.from_bytes(page[at : at + 4], "big") for at in (*paths, 8)]
    return [number, *(page for child in children for page in _below(data, size, child))]


def _replace(data: bytearray, size: int, pages: list[int], keys: tuple[bytes, bytes]) -> None:
    count = 0
    for number in pages:
        begin, end = (number - 1) * size, number * size
        count += data[begin:end].count(keys[0])
        data[begin:end] = data[begin:end].replace(*keys)
    assert count == 1, f"the key is there {count} times"


def _clear(data: bytearray, size: int, number: int) -> None:
    """Make a leaf a page without cells, free from its head to its end."""
    begin = (number - 1) * size
    data[begin + 1 : begin + 5] = bytes(4)
    data[begin + 5 : begin + 8] = (size % 65_536).to_bytes(2, "big") + bytes(1)


if __name__ == "__main__":
    _main(*sys.argv[1:])
