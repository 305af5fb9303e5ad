"""Late patterns: each one in the program can be compiled, and works as one that was compiled at once."""

from __future__ import annotations

import importlib
import pkgutil
import re
import subprocess
import sys

import pytest

import whet
from whet.late import LatePattern, late_pattern


def test_a_late_pattern_searches_as_a_compiled_one() -> None:
    words = late_pattern(r"(\w)(\w*)", re.ASCII)
    assert words.findall("ab c") == re.findall(r"(\w)(\w*)", "ab c", re.ASCII)
    assert words.sub(r"\2\1", "ab") == "ba" and words.pattern == r"(\w)(\w*)" and words.flags & re.ASCII
    match = late_pattern(rb"^b$", re.MULTILINE).search(b"a\nb")
    assert match is not None and match.span() == (2, 3)


def test_a_wrong_one_raises_when_it_is_used() -> None:
    wrong = late_pattern("(")
    with pytest.raises(re.error):
        wrong.search("")


@pytest.mark.slow
def test_every_late_pattern_compiles() -> None:
    patterns = [
        value
        for module in pkgutil.walk_packages(whet.__path__, "whet.")
        if not module.name.endswith(("__main__", "sandbox.launcher"))  # they run when they are imported
        for value in vars(importlib.import_module(module.name)).values()
        if isinstance(value, LatePattern)
    ]
    assert len(patterns) > 100
    for pattern in patterns:
        assert pattern.pattern


def test_a_command_of_plain_words_compiles_few_patterns() -> None:
    script = (
        "import re._compiler as compiler\n"
        "from whet.approval.risk import RiskScope\n"
        "from whet.approval.actions import describe\n"
        "compiled, inner = [], compiler.compile\n"
        "def note(text, flags=0):\n"
        "    compiled.append(text)\n"
        "    return inner(text, flags)\n"
        "compiler.compile = note\n"
        "from whet.approval.shell_risk import analyse\n"
        "assert analyse('true', '/p', RiskScope('/p', '/home/u', '/home/u/.whet')).level == 'safe'\n"
        "assert len(compiled) <= 10, compiled\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True)


@pytest.mark.slow
def test_nothing_that_can_not_be_seen_is_printable() -> None:
    from whet.approval import shell_risk

    hidden = [chr(code) for code in range(0x110000) if shell_risk.HIDDEN.search(chr(code))]
    assert len(hidden) > 6_000 and not any(map(str.isprintable, hidden))
