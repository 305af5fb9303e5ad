"""Types are met by one thread at a time, wherever JSON is read."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

import whet
from whet.contract.texts import (
    NOT_JSON,
    call_subject,
    from_foreign_json,
    from_json,
    from_values,
    parse_typed_number,
    plural,
    shared_decoder,
)

_RACE = """
import sys, threading
from typing import Any
import msgspec
from whet.contract.texts import from_json, from_values

sys.setswitchinterval(1e-6)
for round in range(200):
    below: Any = msgspec.defstruct(f"Below{round}", [(f"f{n}", "int | None", None) for n in range(12)])
    kind: Any = msgspec.defstruct(f"Kind{round}", [(f"g{n}", list[below], []) for n in range(12)])
    start = threading.Barrier(4)

    def read(number: int) -> None:
        start.wait()
        if number % 2:
            from_json(b'{"g0": [{"f0": 1}]}', kind)
        else:
            from_values({"g0": [{"f0": 1}]}, kind)

    threads = [threading.Thread(target=read, args=(number,)) for number in range(4)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
print("whole")
"""


class Part(msgspec.Struct):
    number: int


@pytest.mark.slow
def test_threads_may_meet_a_type_at_once() -> None:
    done = subprocess.run([sys.executable, "-c", _RACE], capture_output=True, text=True, timeout=100)
    assert (done.returncode, done.stdout) == (0, "whole\n"), done.stderr


def test_a_type_is_read_with_and_without_strictness_and_refused_by_one_kind_of_error() -> None:
    assert from_json('{"number": 7}', Part) == from_values({"number": 7}, Part) == Part(7)
    assert from_json('{"number": "7"}', Part, strict=False) == Part(7)
    assert shared_decoder(Part) is shared_decoder(Part) is not shared_decoder(Part, strict=False)
    for odd in (b'{"number": "7"}', b"{", b'{"number": 1}\xff', b'{"a":' * 5_000):
        with pytest.raises(NOT_JSON):
            from_json(odd, Part)


def test_a_count_stands_with_its_noun() -> None:
    assert [plural(number, "file") for number in (0, 1, 2_000)] == ["0 files", "1 file", "2,000 files"]
    assert [plural(number, "entry", "entries") for number in (1, 2)] == ["1 entry", "2 entries"]


def test_no_module_lets_msgspec_meet_a_type_beside_it() -> None:
    texts: list[str] = []
    for path in Path(whet.__file__).parent.rglob("*.py"):
        text = path.read_text()
        if path.name == "texts.py" or not re.search(r"msgspec(\.\w+)*\.(Decoder|convert|decode)", text):
            continue
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Call) and (called := ast.unparse(node.func)).startswith("msgspec."):
                typed = any(word.arg == "type" for word in node.keywords)
                if called.endswith((".Decoder", ".convert")) or (called.endswith(".decode") and typed):
                    texts.append(f"{path.name}:{node.lineno} {called}")
    assert texts == []


def test_a_typed_number_is_a_whole_one_that_is_not_too_large() -> None:
    assert [parse_typed_number(text) for text in ("0", "12", "9" * 15)] == [0, 12, 10**15 - 1]
    for text in ("", "-1", "x", "1.0", "9" * 16, "\u0661", "\xb2"):
        assert parse_typed_number(text) is None


def test_subject_takes_what_tells_most_and_bears_anything() -> None:
    assert call_subject('{"timeout": 3, "command": "ls"}') == "ls"
    assert call_subject('{"other": "x"}') == "x"
    assert call_subject('{"path": "src", "pattern": "tw."}') == "tw.  in src"
    assert call_subject('{"broken') == '{"broken'
    assert call_subject("[" * 5_000) == "[" * 5_000
    assert call_subject("[1]") == "[1]"
    assert call_subject("") == ""


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (rb'"a \ud83d b"', "a \ufffd b"),
        (rb'"\uDE00\uD83D"', "\ufffd\ufffd"),
        (rb'"\ud83d\ud83d\ude00"', "\ufffd\U0001f600"),
        (rb'"\\ud83d \\\ud83d"', "\\ud83d \\\ufffd"),
        ('"\ud83d"', "\ufffd\ufffd\ufffd"),
    ],
)
def test_lone_surrogates_in_foreign_json_are_replaced_and_nothing_else(data: bytes | str, text: str):
    assert from_foreign_json(data, str) == text
    for other in (rb'"\ud83d', rb'"\ud83"', rb'["\ud83d"]'):
        with pytest.raises(NOT_JSON):
            from_foreign_json(other, str)
