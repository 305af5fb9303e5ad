"""Tables have no limit of length; code has one. The shape of a function or module decides."""

from __future__ import annotations

import pytest

from tests.sizes import MAX_FUNCTION_LINES, MAX_MODULE_LINES, find_offences

_ROWS = "\n".join(
    f"        Row({number}, name='row', aliases=('a', 'b'))," for number in range(MAX_FUNCTION_LINES)
)
_STEPS = "\n".join(f"    total += load({number})" for number in range(MAX_FUNCTION_LINES))
_FIELDS = "\n".join(
    f"    field_{number}: Count = {number}\n    'Its effect.'" for number in range(MAX_MODULE_LINES)
)
_HEAD = '"""A module."""\n'


@pytest.mark.parametrize(
    "function",
    [
        f"def rows() -> list[Row]:\n    return [\n{_ROWS}\n    ]\n",
        f"def rows():\n    'Return the rows.'\n    return (\n        *other_rows(),\n{_ROWS}\n    )\n",
        f"def rows():\n    return {{\n        'first': [\n{_ROWS}\n        ],\n    }}\n",
    ],
)
def test_long_function_that_only_returns_rows_passes(function: str) -> None:
    assert find_offences("tools/table.py", _HEAD + function) == []


@pytest.mark.parametrize(
    "function",
    [
        f"def count():\n    total = 0\n{_STEPS}\n    return total\n",
        f"def rows(wanted):\n    if wanted:\n        return [\n{_ROWS}\n        ]\n",
        f"def rows(wanted):\n    return [\n{_ROWS}\n        Row(1 if wanted else 2),\n    ]\n",
        f"def rows(names):\n    return [\n{_ROWS}\n        *(Row(name) for name in names),\n    ]\n",
        f"def rows():\n    return [\n{_ROWS}\n        Row(lambda row: row.name),\n    ]\n",
        f"def rows(limit):\n    return [\n{_ROWS}\n        Row(limit or 3),\n    ]\n",
    ],
)
def test_long_function_with_logic_fails(function: str) -> None:
    (offence,) = find_offences("tools/logic.py", _HEAD + function)

    assert f"lines, limit {MAX_FUNCTION_LINES}" in offence


def test_long_module_of_declarations_passes() -> None:
    module = (
        f"{_HEAD}from typing import TYPE_CHECKING\n\nif TYPE_CHECKING:\n    from whet.clock import Clock\n\n"
        f"MAX_AGE_S = 24 * 3_600\n\n\nclass Limits(Struct, frozen=True):\n    'Limits.'\n\n{_FIELDS}\n"
        "\n\ndef names() -> list[str]:\n    return ['a', 'b']\n"
    )

    assert find_offences("config/limits.py", module) == []


@pytest.mark.parametrize(
    "logic",
    [
        "    def area(self):\n        return self.field_1 * self.field_2\n",
        "\n\ndef load(path):\n    return [line for line in path.open()]\n",
        "\n\nif field.sys.platform == 'win32':\n    NAME = 'nt'\n",
        "\n\nfor name in names():\n    register(name)\n",
    ],
)
def test_long_module_that_also_has_logic_fails(logic: str) -> None:
    module = f"{_HEAD}class Limits(Struct, frozen=True):\n{_FIELDS}\n{logic}"

    offences = find_offences("config/limits.py", module)

    assert offences[0].startswith("config/limits.py: ")
    assert offences[0].endswith(f"lines, limit {MAX_MODULE_LINES}")


def test_turn_loop_keeps_its_own_limit() -> None:
    module = _HEAD + "NAME = run(1 if True else 2)\n" * 150

    assert find_offences("whet/agent/loop.py", module) == ["whet/agent/loop.py: 151 lines, limit 150"]
    assert find_offences("agent/other.py", module) == []
