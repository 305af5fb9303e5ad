"""Questions at a real terminal, in the chat and in a one-shot: diffs, edits, words of a no, scopes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.asked import blind, in_terminal
from tests.cli.running import Tty, chatting, flags, run
from tests.writes import prepare
from whet_lab.practice.ask import PracticeCall
from whet_lab.practice.script import ScriptedReply
from whet_lab.practice.server import PracticeServer

pytestmark = pytest.mark.unconfined


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    work = tmp_path / "work"
    work.mkdir()
    prepare(work)
    return work


def call(name: str, **arguments: object) -> ScriptedReply:
    return ScriptedReply("", tool_calls=(PracticeCall(name, json.dumps(arguments)),))


CHAT: list[str] = []
ONE_SHOT = ["-q", "go"]


@contextmanager
def asking(
    folder: Path, script: list[ScriptedReply], question: list[str], **screen: Any
) -> Iterator[tuple[PracticeServer, Tty]]:
    """A chat to which "go" was typed, or a one-shot of the same words."""
    with (
        PracticeServer(script=script) as server,
        Tty(["chat", *flags(server), *question], folder, **screen) as tty,
    ):
        if not question:
            tty.wait_for("Ctrl-D")
            tty.type("go\r")
        yield server, tty


def results(server: PracticeServer) -> list[str]:
    """What the model was told of its calls, in the last request."""
    messages = json.loads(server.requests[-1].body)["messages"]
    return [str(message["content"]) for message in messages if message["role"] == "tool"]


@pytest.mark.slow
@pytest.mark.parametrize("one_shot", [False, True])
def test_every_question_about_a_write_shows_all_of_it(folder: Path, one_shot: bool) -> None:
    shown = in_terminal(folder, one_shot=one_shot)
    assert blind(shown) == []
    assert "sums.py  +1 −2" in " ".join(shown.values())  # what was changed is said afterwards, too
    assert (folder / "sums.py").read_text() == "gone = 1\n"


@pytest.mark.slow
def test_an_edited_call_is_what_runs_and_the_model_is_told(folder: Path) -> None:
    script = [
        call("patch", path="sums.py", old_string="a - b", new_string="a * b"),
        call("terminal", command="echo before > said.txt"),
        ScriptedReply("All done."),
    ]
    editor = {"EDITOR": "sed -i -e 's/a \\* b/a + b/' -e s/before/after/"}
    with chatting(folder, script, columns=100, environ=editor) as (server, tty):
        tty.type("go\r")
        for shown in ("Whet wants to change the file sums.py", "echo before"):
            tty.wait_for(shown, "Enter alone is no:")
            tty.type("e")
            tty.wait_for("this is your version", "Enter alone is no:")
            tty.type("1\r")
        tty.wait_for("All done.")
        texts = results(server)
    assert "return a + b" in (folder / "sums.py").read_text()
    assert (folder / "said.txt").read_text() == "after\n"
    assert all("The person changed this call before allowing it" in text for text in texts)
    assert "echo after" in texts[1]


@pytest.mark.slow
def test_a_no_reaches_the_model_in_the_persons_words_and_the_person_reads_none_of_the_models(
    folder: Path,
) -> None:
    script = [
        call("terminal", command="touch made"),
        call("terminal", command="touch two"),
        ScriptedReply("Fine."),
    ]
    with chatting(folder, script, columns=100) as (server, tty):
        tty.type("go\r", "Enter alone is no:")
        tty.type("b", "No, because:")
        tty.type("it is Friday\r")
        said = tty.wait_for("Enter alone is no:")
        tty.type("n")
        said += tty.wait_for("Fine.")
        texts = results(server)
    assert "you said no: it is Friday" in said and "Their words: it is Friday" in texts[0]
    assert "Don't try to reach" in texts[1] and "Don't try" not in said and not (folder / "made").exists()


@pytest.mark.slow
def test_a_call_that_would_fail_is_refused_to_the_model_without_a_question(folder: Path) -> None:
    script = [
        call("patch", path="sums.py", old_string="nowhere", new_string="x"),
        call("write_file", path="a.txt"),
        call("terminal", cmd="touch made"),
        ScriptedReply("I see."),
    ]
    with asking(folder, script, ONE_SHOT, columns=100) as (server, tty):
        shown = tty.wait_for("I see.")
        assert "Enter alone is no" not in shown
        texts = results(server)
    assert (
        "old_string" in texts[0] and "'content' is missing" in texts[1] and "'command' is missing" in texts[2]
    )


@pytest.mark.slow
def test_a_scope_can_be_narrowed_and_widened(folder: Path) -> None:
    (folder / "src").mkdir()
    script = [
        call("write_file", path="src/a.py", content="1\n"),
        call("write_file", path="src/b.py", content="2\n"),
        call("write_file", path="c.py", content="3\n"),
        ScriptedReply("All done."),
    ]
    with chatting(folder, script, columns=100) as (_, tty):
        tty.type("go\r")
        shown = tty.wait_for("Enter alone is no:")
        assert "don't ask again to create, change or delete src/a.py (covers no shell commands)" in " ".join(
            shown.split()
        )
        tty.type("always 3\r")
        shown = tty.wait_for("Whet won't ask again", "waiting for")  # the question before has the same status
        assert "Whet won't ask again to create, change or delete any file below src/" in " ".join(
            shown.split()
        )
        assert "c.py" in tty.wait_for("Enter alone is no:")
        tty.type("n", "All done.")
        tty.leave("/quit\r")
    code, out, _ = run(["approvals", "list"], folder)
    assert code == 0 and "src/*" in out and "c.py" not in out


@pytest.mark.slow
def test_what_the_screen_has_no_room_for_is_shown_by_the_key_that_is_named(folder: Path) -> None:
    words = [f"word{number:03}" for number in range(250)]
    lines = "".join(f"{' '.join(words[at : at + 25])}\n" for at in range(0, 250, 25))
    script = [call("write_file", path="words.txt", content=lines), ScriptedReply("Done.")]
    with chatting(folder, script, columns=60, environ={"PAGER": "cat"}) as (_, tty):
        tty.type("go\r")
        assert "word100" not in tty.wait_for("lines (v shows all) ...")
        tty.wait_for("Enter alone is no:")
        tty.type("v")
        shown = tty.wait_for("word100") + tty.wait_for("word249")
        assert all(word in shown for word in words)
        tty.type("n", "Done.")


@pytest.mark.slow
@pytest.mark.parametrize("question", [CHAT, ONE_SHOT])
@pytest.mark.parametrize("answer", ["o", "session"])
@pytest.mark.parametrize(
    "content", ["".join(f"line {n}\n" for n in range(90)), f"{'x ' * 900}line 45{' x' * 900}\n"]
)
def test_a_yes_counts_only_once_the_question_was_shown_whole(
    folder: Path, question: list[str], answer: str, content: str
) -> None:
    script = [call("write_file", path="long.txt", content=content), ScriptedReply("All done.")]
    with asking(folder, script, question, environ={"PAGER": "cat"}) as (server, tty):
        assert "line 45" not in tty.wait_for("Enter alone is no:")
        tty.type(f"{answer}\r")
        shown = tty.wait_for("not an answer yet")
        assert "line 45" in shown and not (folder / "long.txt").exists() and len(server.requests) == 1
        tty.wait_for("Enter alone is no:")
        tty.type(f"{answer}\r", "All done.")
    assert (folder / "long.txt").read_text() == content


@pytest.mark.slow
@pytest.mark.parametrize(("columns", "rows"), [(40, 15), (30, 12)])
def test_the_answers_of_a_question_stay_on_a_very_small_screen(folder: Path, columns: int, rows: int) -> None:
    content = "first = 'a line that is longer than the screen'\nsecond = 2\n"
    script = [call("write_file", path="docs/settings.py", content=content), ScriptedReply("All done.")]
    with (
        PracticeServer(script=script) as server,
        Tty(["chat", *flags(server)], folder, columns=columns, environ={"PAGER": "cat"}) as tty,
    ):
        tty.resize(columns, rows)
        tty.wait_for("Ctrl-D")
        tty.type("go\r")
        drawn = tty.wait_for("lines (v shows all)", timeout_s=20)
        assert "first = 'a line that is" in drawn or columns < 40
        drawn = tty.wait_for("No: nothing is changed", timeout_s=20)
        for number in ("1", "2", "3"):
            assert f"  {number}  Yes, " in drawn
        assert "or Tab" not in tty.wait_for("Enter alone", timeout_s=20)
        tty.type("v")
        whole = tty.wait_for("or else", timeout_s=20)
        assert "asks before\n" in whole or columns < 40, "broken at a word"
        assert "  3  Yes, " in tty.wait_for("No: nothing is changed", timeout_s=20)


@pytest.mark.slow
def test_what_is_said_at_a_question_is_broken_at_words(folder: Path) -> None:
    content = "".join(f"line {n}\n" for n in range(90))
    script = [call("write_file", path="long.txt", content=content), ScriptedReply("All done.")]
    with chatting(folder, script, columns=40, environ={"PAGER": "cat"}) as (_, tty):
        tty.type("go\r", "Enter alone")
        tty.type("o\r")
        tty.wait_for("not an answer yet: only a part was\nshown. Now all of it was; answer again")
        tty.wait_for("Enter alone")
        tty.type("n\r", "All done.")


WORDS = ("wait", "cancel", "don't", "what?", "also look at it", "open the file and look", "some other way")
WORDS += ("a", "ja")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("environ", "question"),
    [({}, CHAT), ({"WHET_UI_KEYS": "vi"}, CHAT), ({"TERM": "dumb"}, CHAT), ({}, ONE_SHOT)],
)
def test_words_at_a_question_are_a_no_that_the_model_reads(
    folder: Path, environ: dict[str, str], question: list[str]
) -> None:
    script = [
        *(call("terminal", command=f"touch made{n}") for n, _ in enumerate(WORDS)),
        ScriptedReply("All done."),
    ]
    with asking(folder, script, question, columns=100, environ=environ) as (server, tty):
        for number, words in enumerate(WORDS):
            tty.wait_for(f"touch made{number}", "Enter alone is no:")
            tty.type(f"{words}\r")
        tty.wait_for("All done.")
        texts = results(server)
    assert all(f"Their words: {words}" in text for words, text in zip(WORDS, texts, strict=True))
    assert list(folder.glob("made*")) == []
    assert "touch" not in run(["approvals", "list"], folder)[1]


@pytest.mark.slow
@pytest.mark.parametrize(("term", "question"), [("xterm", CHAT), ("dumb", CHAT), ("xterm", ONE_SHOT)])
def test_stop_at_a_question_stops_the_turn(folder: Path, term: str, question: list[str]) -> None:
    script = [call("terminal", command="touch made"), call("terminal", command="touch two")]
    with asking(folder, script, question, columns=100, environ={"TERM": term}) as (_, tty):
        tty.wait_for("Enter alone is no:")
        tty.type("stop\r", "cancelled")
        if question:
            assert tty.wait_for_end() == 130
    assert list(folder.glob("*made*")) == [] and not (folder / "two").exists()


@pytest.mark.slow
def test_what_was_typed_before_a_question_or_pasted_answers_nothing(folder: Path) -> None:
    script = [call("terminal", command="touch made"), ScriptedReply("All done.")]
    with asking(folder, script, ONE_SHOT) as (server, tty):
        tty.type("yes\r", "Enter alone is no:")
        tty.type("yes\ralways\r", "All done.")
        assert "Their words: yes" in results(server)[0]
    assert not (folder / "made").exists()


@pytest.mark.slow
def test_a_paste_is_no_answer(folder: Path) -> None:
    script = [call("terminal", command="touch made"), ScriptedReply("All done.")]
    with chatting(folder, script, columns=100) as (server, tty):
        tty.type("go\r", "Enter alone is no:")
        tty.type("\x1b[200~once\x1b[201~")
        tty.type("not this\r", "All done.")
        assert "Their words: not this" in results(server)[0]
    assert not (folder / "made").exists()
