"""Tools at their worst through the whole program: floods, endless commands, forks, binary, ways out."""

from __future__ import annotations

import json
import os
import resource
from pathlib import Path
from typing import Any

import pytest

from tests.cli.test_oneshot import is_alive
from tests.stories.program import (
    Program,
    assert_calls_answered_once,
    assert_requests_are_sound,
    does,
    said,
    use,
)
from whet_lab.practice.script import ScriptedReply
from whet_lab.practice.server import PracticeServer


@pytest.fixture
def program(tmp_path):
    with PracticeServer() as server:
        program = Program(tmp_path, server)
        yield program
        assert_requests_are_sound(server)
        assert_calls_answered_once(server.requests[-1])


def results(program: Program, *calls: object, environ: dict[str, Any] | None = None) -> list[str]:
    """Let the model make these calls in one reply; give what it was told."""
    program.server.install([does(*calls), ScriptedReply("seen")])  # type: ignore[arg-type]
    done = program.ask("go", **(environ or {}))
    assert (done.code, done.row["text"]) == (0, "seen"), done
    assert done.err == "" or "denied, because nobody could answer" in done.err, done
    assert len(done.row["tool_calls"]) == len(calls)
    return [text for role, text in said(program.server.requests[-1]) if role == "tool"]


@pytest.mark.slow
def test_a_gigabyte_of_output_is_cut_in_the_middle_in_little_memory(program):
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    command = "echo first; head -c 1000000000 /dev/zero | tr '\\0' x; echo last"
    (result,) = results(program, use("terminal", command=command))
    assert result.startswith("first") and "last" in result[-200:]
    assert len(result) < 40_000
    assert "999" in result.replace("x", "") or "1,000" in result, "what was left out is counted"
    assert resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss - before < 300_000


@pytest.mark.slow
@pytest.mark.unconfined  # its commands' process numbers are looked up
def test_what_never_ends_forks_and_reads_is_answered_in_time(program):
    texts = results(
        program,
        use(
            "terminal",
            command="sleep 300 & echo $! > child; setsid sleep 300 & echo $! > other; wait",
            timeout_s=3,
        ),
        use("terminal", command="cat; echo end of input"),
        use("terminal", command="head -c 300 /bin/sh"),
        use("terminal", command="printf 'caf\\xe9 \\xff\\xfe'"),
        use("terminal", command="kill -9 $$"),
        use("terminal", command="exit 7"),
        use("terminal", command="no-such-program-here"),
        use("terminal", command=""),
    )
    assert "3 s" in texts[0] or "limit" in texts[0]
    assert not is_alive(int((program.work / "child").read_text()))
    other = int((program.work / "other").read_text())
    if is_alive(other):
        os.kill(other, 9)
    assert "end of input" in texts[1] and "binary" in texts[2].lower()
    assert "caf" in texts[3] or "binary" in texts[3].lower()
    assert "9" in texts[4] or "kill" in texts[4].lower()
    assert "7" in texts[5] and "127" in texts[6] and texts[7]


@pytest.mark.slow
def test_ways_out_of_the_workspace_are_refused_with_the_reason(program, tmp_path):
    secret = tmp_path / "secret.txt"
    secret.write_text("the hidden word is kumquat")
    (program.work / "link").symlink_to(secret)
    (program.work / "folder").symlink_to(tmp_path)
    (program.work / "loop").symlink_to(program.work / "loop")
    (program.work / "good").symlink_to(program.work / "inside.txt")
    (program.work / "inside.txt").write_text("inside")
    texts = results(
        program, use("read_file", path="../secret.txt"), use("read_file", path=str(secret)),
        use("read_file", path="link"), use("read_file", path="folder/secret.txt"),
        use("read_file", path="loop"), use("write_file", path="../new.txt", content="x"),
        use("write_file", path="folder/new.txt", content="x"), use("write_file", path="link", content="x"),
        use("patch", path="link", old_string="kumquat", new_string="x"),
        use("search_files", pattern="kumquat", path=".."), use("search_files", pattern="kumquat"),
        use("read_file", path="good"),
    )  # fmt: skip
    assert not any("kumquat" in text and "hidden" in text for text in texts)
    assert secret.read_text() == "the hidden word is kumquat"
    assert not (tmp_path / "new.txt").exists()
    assert all(text for text in texts)
    assert "inside" in texts[-1]


@pytest.mark.slow
def test_odd_names_are_names(program):
    names = [
        "-rf", "a b", "it's", '"quoted"', "new\nline", "日本語 🙂.txt", "$(touch pwned)", "*", "e\u0301",
        "x" * 255,
    ]  # fmt: skip
    texts = results(
        program,
        *[use("write_file", path=name, content=f"number {n}\n") for n, name in enumerate(names)],
        *[use("read_file", path=name) for name in names],
        use("write_file", path="y" * 256, content=""),
        use("read_file", path="a\0b"),
        use("read_file", path=""),
        use("read_file", path="\ud800"),
    )
    for n, text in enumerate(texts[len(names) : 2 * len(names)]):
        assert f"number {n}" in text, (names[n], text)
    assert not (program.work / "pwned").exists()
    assert "longer name than the file system takes" in texts[2 * len(names)]
    assert all(texts[2 * len(names) :])


@pytest.mark.slow
def test_a_file_name_that_is_no_utf8_does_not_end_anything(program):
    Path(os.fsdecode(os.fsencode(program.work) + b"/caf\xe9.txt")).write_text("needle")
    calls = use("search_files", pattern="needle"), use("read_file", path="."), use("terminal", command="ls")
    texts = results(program, *calls)
    assert all("caf" in text for text in texts), texts


@pytest.mark.slow
def test_ten_megabytes_written_and_read_page_by_page(program):
    (program.work / "big.txt").write_text("".join(f"row {n} of the file\n" for n in range(500_000)))
    texts = results(
        program,
        use("read_file", path="big.txt"),
        use("read_file", path="big.txt", offset=499_990),
        use("write_file", path="out.txt", content="y" * 10_000_000),
    )
    assert "row 0 of" in texts[0] and len(texts[0]) < 60_000
    assert "row 499999" in texts[1]
    assert (program.work / "out.txt").stat().st_size == 10_000_000


def test_the_same_failing_call_is_not_made_for_ever(program):
    program.server.install([does(use("read_file", path="gone.txt"))] * 5 + [ScriptedReply("I give up")])
    done = program.ask("go")
    assert done.row["text"] == "I give up"
    texts = [text for role, text in said(program.server.requests[-1]) if role == "tool"]
    assert "3 times in a row" in texts[-1]


def test_the_object_names_each_call_once_and_in_order(program):
    program.server.install([does(use("read_file", path="a"), use("todo"), use("nope")), ScriptedReply("ok")])
    done = program.ask("go")
    assert [call["name"] for call in done.row["tool_calls"]] == ["read_file", "todo", "nope"]
    assert json.loads(done.out)["tool_calls"][2]["ok"] is False
