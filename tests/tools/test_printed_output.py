"""What a command's output shows of redrawn lines and of odd bytes, with real processes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.tools.running import Commands
from whet import log


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"1 passed\nraw: a\0b\n1 failed\n" * 30, "1 passed\nraw: a\\x00b\n1 failed\n" * 30),
        (b"A=1\0B=2\0", r"A=1\x00B=2\x00"),
        (b"".join(b"./a%d.py\0" % n for n in range(90)), "".join(rf"./a{n}.py\x00" for n in range(90))),
        (b"caf\xe9 \xff\xfe gr\xc3\xbc\xc3\x9fe", r"caf\xe9 \xff\xfe grüße"),
        (bytes(range(256)) * 4, "[binary output, 1,024 bytes, begins 00 01 02 03"),
        ("a text of two bytes each".encode("utf-16-le") * 4, "[binary output, 192 bytes, begins 61 00 20 00"),
    ],
)
async def test_a_few_odd_bytes_are_shown_as_escapes_and_only_binary_output_is_withheld(
    commands: Commands, tmp_path: Path, data: bytes, text: str
) -> None:
    (tmp_path / "out").write_bytes(data)
    output = await commands.terminal("cat out")
    await commands.terminal("cat out", background=True)
    for result in (output, await commands.process("wait")):
        assert result.text.startswith(text.rstrip("\n"))


@pytest.mark.fast_rows("[2A", "[F", "x08")
@pytest.mark.parametrize("pty", [False, True])
@pytest.mark.parametrize(
    ("frame", "first", "shown"),
    [
        ("\x1b[2K\x1b[1GRetrieving image: {n}%", "", "Retrieving image: 2999%"),
        ("\x1b[1G\x1b[0K{n}/3000 packages", "", "2999/3000 packages"),
        ("\x1b[2A\x1b[2Kone: {n}%\n\x1b[2Ktwo: {n}%\n", "one\ntwo\n", "one: 2999%\ntwo: 2999%"),
        ("\x1b[1A\x1b[Jbuilt {n}\n", "start\n", "built 2999"),
        ("\x1b[F\x1b[31mbuilt {n}\x1b[0m\n", "start\n", "built 2999"),
        ("{n}\b\b\b\b", "", "2999"),
    ],
)
async def test_of_a_redrawn_display_the_last_state_is_shown(
    commands: Commands, tmp_path: Path, frame: str, first: str, shown: str, pty: bool
) -> None:
    frames = "".join(frame.format(n=n) for n in range(3_000) if "\b" not in frame or n > 999)
    display = f"{first}{frames}\n"
    (tmp_path / "out").write_text(f"before\n{display}ERROR: in the middle\n{display}the end\n")
    lines = (await commands.terminal("cat out", pty=pty)).text.splitlines()
    expected = f"before\n{shown}\nERROR: in the middle\n{shown}\nthe end"
    assert "\n".join(filter(None, lines)) == expected


async def test_output_holds_no_key_of_the_person(commands: Commands) -> None:
    log.protect_keys(["Zq9-own-key-of-the-person-77"])
    try:
        text = "echo a; echo Zq9-own-key-of-the-'person-77'; echo b"
        output = await commands.terminal(text)
        await commands.terminal(text, background=True)
        for result in (output, await commands.process("wait")):
            assert result.text.startswith(f"a\n{log.MASK}\nb")
    finally:
        log.forget_secrets()
