"""Whatever a model server does, the program ends with one line or an answer, and the session goes on."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pytest

from tests.stories.program import (
    Done,
    Program,
    assert_calls_answered_once,
    assert_requests_are_sound,
    does,
    said,
    together,
    use,
)
from whet_lab.practice.ask import PracticeCall
from whet_lab.practice.script import Fault, ScriptedReply, html_page, rate_limit_reply
from whet_lab.practice.server import PracticeServer

PAGE = "<!doctype html><html><head><title>Log in to the Wi-Fi</title></head></html>"


NEVER_SEEN = ScriptedReply("never seen")


@dataclass(frozen=True)
class Bad:
    """A fault that ends the turn: what the server does, and what the one line must say."""

    fault: Fault
    says: tuple[str, ...]
    silence_s: str = "20"
    reply: ScriptedReply = NEVER_SEEN


ENDS = {
    "400": Bad(Fault(status=400, message="bad shape"), ("bad shape",)),
    "401": Bad(Fault(status=401, message="no such key"), ("key",)),
    "402": Bad(Fault(status=402, message="pay first"), ("pay first",)),
    "403": Bad(Fault(status=403, message="not your region"), ("not your region",)),
    "404": Bad(Fault(status=404, message="no such model"), ("no such model", "model")),
    "408": Bad(Fault(status=408, message="took too long"), ("took too long",)),
    "413": Bad(Fault(status=413, message="too large"), ("too large",)),
    "422": Bad(Fault(status=422, message="not processable"), ("not processable",)),
    "429": Bad(Fault(status=429, message="slow down"), ("slow down",)),
    "429 for hours": Bad(Fault(status=429, message="slow down", headers={"retry-after": "9000"}), ("slow",)),
    "500": Bad(Fault(status=500, message="it broke"), ("it broke",)),
    "503": Bad(Fault(status=503, message="down for repair"), ("down for repair",)),
    "529": Bad(Fault(status=529, message="overloaded"), ("overloaded",)),
    "an HTML error page": Bad(html_page().fault, ("502",)),
    "an HTML page as an answer": Bad(Fault(body=PAGE, content_type="text/html"), ("html",)),
    "plain text as an answer": Bad(Fault(body="hello", content_type="text/plain"), ("text/plain",)),
    "JSON of another kind": Bad(Fault(body='{"ok": true}', content_type="application/json"), ()),
    "broken JSON": Bad(Fault(body='{"choices": [', content_type="application/json"), ()),
    "a broken event": Bad(Fault(body="data: {oops\n\n", content_type="text/event-stream"), ()),
    "nothing at all": Bad(Fault(body="", content_type="text/event-stream"), ()),
    "a connection that closes": Bad(Fault(drop=True), ()),
    "silence before the headers": Bad(Fault(stall_after=-1), ("0.7",), silence_s="0.7"),
    "silence within the answer": Bad(
        Fault(stall_after=2), ("0.7",), silence_s="0.7", reply=ScriptedReply("one two three", pieces=3)
    ),
    "an error within the answer": Bad(
        Fault(error_after=2, message="gave up"), ("gave up",), reply=ScriptedReply("one two three", pieces=3)
    ),
    "a cut stream": Bad(Fault(cut_after=2), (), reply=ScriptedReply("one two three", pieces=3)),
    "a refusal": Bad(Fault(), ("declined",), reply=ScriptedReply("", stop="refusal")),
}


@contextmanager
def programs(root: Path, names: list[str]) -> Iterator[dict[str, Program]]:
    with ExitStack() as stack:
        servers = {name: stack.enter_context(PracticeServer()) for name in names}
        yield {name: Program(root / name.replace(" ", "-"), server) for name, server in servers.items()}


@pytest.mark.slow
@pytest.mark.parametrize("half", [0, 1])
def test_a_failure_is_one_line_and_the_session_goes_on(tmp_path, half):
    names = list(ENDS)[half::2]
    with programs(tmp_path, names) as program:
        first: dict[str, Done] = {}
        for batch in batches(names):
            for name in batch:
                reply = msgspec.structs.replace(ENDS[name].reply, fault=ENDS[name].fault)
                program[name].server.install([reply])
            waits = {name: {"WHET_MODEL_TIMEOUT_S": ENDS[name].silence_s} for name in batch}
            runs = [program[name].start_asking("What now?", environ=waits[name]) for name in batch]
            first |= dict(zip(batch, together(runs), strict=True))
        for name, done in first.items():
            assert done.row["end_reason"] == ("refused" if name == "a refusal" else "failed"), (name, done)
            try:
                done.assert_error(*ENDS[name].says)
            except AssertionError as error:
                raise AssertionError(f"{name}: {error}") from error
            assert done.row["error"], name
        second: dict[str, Done] = {}
        for batch in batches(names):
            for name in batch:
                program[name].server.install([ScriptedReply("I am back.")])
            runs = [program[name].start_asking("And now?", "--continue") for name in batch]
            second |= dict(zip(batch, together(runs), strict=True))
        for name, done in second.items():
            server = program[name].server
            assert (done.code, done.row["text"], done.err) == (0, "I am back.", ""), (name, done)
            assert done.row["session_id"] == first[name].row["session_id"]
            assert "What now?" in said(server.requests[-1])[0][1], name
            assert_requests_are_sound(server)


def batches(names: list[str], size: int = 5) -> list[list[str]]:
    return [names[start : start + size] for start in range(0, len(names), size)]


PASSES = {
    "429": [rate_limit_reply(), ScriptedReply("whole answer")],
    "a cut stream": [
        ScriptedReply("whole answer", pieces=3, fault=Fault(cut_after=2)),
        ScriptedReply("whole answer", pieces=3),
    ],
    "a connection that closes": [ScriptedReply("x", fault=Fault(drop=True)), ScriptedReply("whole answer")],
    "characters cut in two": [ScriptedReply("日本語 🙂 é", pieces=4, fault=Fault(split_utf8=True))],
    "a wrong content type": [ScriptedReply("whole answer", fault=Fault(content_type="text/plain"))],
    "one byte at a time": [ScriptedReply("whole answer", pieces=12, fault=Fault(delay_s=0.001))],
}


@pytest.mark.slow
def test_what_passes_is_retried_and_the_answer_is_whole(tmp_path):
    names = list(PASSES)
    with programs(tmp_path, names) as program:
        for name in names:
            program[name].server.install(PASSES[name])
        runs = [program[name].start_asking("?", environ={"WHET_MODEL_MAX_RETRIES": "2"}) for name in names]
        for name, done in zip(names, together(runs), strict=True):
            assert done.code == 0, (name, done)
            assert all(line.startswith("retry ") for line in done.err.splitlines()), (name, done)
            assert done.row["text"] == PASSES[name][-1].text, name
            assert_requests_are_sound(program[name].server)


CALLS = {
    "arguments that are no JSON": ([PracticeCall("read_file", '{"path": "a', "c1")], ["not a JSON object"]),
    "arguments of another kind": ([PracticeCall("read_file", '["a"]', "c1")], ["not a JSON object"]),
    "a NUL in a path": ([use("read_file", "c1", path="a\0b")], []),
    "an unknown argument": ([use("read_file", "c1", file="a.txt")], []),
    "an unknown tool": ([use("reed_file", "c1", path="a.txt")], ["Did you mean read_file?"]),
    "an empty name": ([PracticeCall("", "{}", "c1")], []),
    "one id for two calls": (
        [use("read_file", "c1", path="a.txt"), use("read_file", "c1", path="b.txt")],
        ["alpha", "beta"],
    ),
    "an id of any length": ([use("read_file", "c" * 500, path="a.txt")], ["alpha"]),
}


@pytest.mark.slow
def test_broken_calls_are_answered_with_what_to_do_and_the_turn_goes_on(tmp_path):
    names = list(CALLS)
    with programs(tmp_path, names) as found:
        runs = []
        for name in names:
            program = found[name]
            (program.work / "a.txt").write_text("alpha\n")
            (program.work / "b.txt").write_text("beta\n")
            program.server.install([does(*CALLS[name][0]), ScriptedReply("understood")])
            runs.append(program.start_asking("?"))
        for name, done in zip(names, together(runs), strict=True):
            server = found[name].server
            assert (done.code, done.err) == (0, ""), (name, done)
            assert (done.row["text"], done.row["steps"]) == ("understood", 2), name
            assert len(done.row["tool_calls"]) == len(CALLS[name][0])
            results = [text for role, text in said(server.requests[-1]) if role == "tool"]
            assert len(results) == len(CALLS[name][0]) and all(results), name
            for word, result in zip(CALLS[name][1], results, strict=False):
                assert word in result, (name, result)
            assert_calls_answered_once(server.requests[-1])
            assert_requests_are_sound(server)


@pytest.mark.slow
def test_ten_megabytes_are_refused_by_the_server_and_the_session_is_not_stuck(tmp_path):
    refused = ScriptedReply("", fault=Fault(status=413, message="too large"))
    with PracticeServer(script=[refused] * 8) as server:
        program = Program(tmp_path, server)
        big = program.work / "big.txt"
        big.write_text("x" * 10_000_000)
        done = program.ask("Sum up.", given=big.read_bytes())
        assert done.code == 1 and "error: practice: too large" in done.err and "hint: " in done.err
        server.install([ScriptedReply("yes")])
        done = program.ask("Just say yes.", "--continue")
        assert (done.code, done.row["text"]) == (0, "yes")
        assert len(server.requests[-1].body) < 1_000_000, "piped text is cut, with its size named"
        assert_requests_are_sound(server)


def test_each_run_says_in_json_what_it_says_on_the_error_line(tmp_path):
    fault = Fault(status=401, message="bad key sk-1234567890abcdef")
    with PracticeServer(script=[ScriptedReply("", fault=fault)]) as server:
        done = Program(tmp_path, server).ask("?")
    row = json.loads(done.out)
    assert row["error"] in done.err and row["hint"] in done.err
    assert "sk-1234567890abcdef" not in done.out + done.err
