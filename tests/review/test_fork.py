"""What a review sends, what it may do, and what it leaves alone."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.providers import shapes
from tests.review.rig import LESSON, SAID, TITLE, Bench, bench, corrected, does, says, talk, use
from tests.stories.program import REQUEST_TYPES
from whet.contract.events import Emit
from whet.contract.messages import Message, ToolCall
from whet.contract.protocols import Decision, GateCall
from whet.contract.tools import Tool, ToolContext, ToolOutput, ToolSpec
from whet.review.fork import ReviewGate
from whet.store import compactions, sessions, turns
from whet.warm.prime import Prime, encode_prime
from whet_lab.practice.endpoints import RecordedRequest
from whet_lab.practice.script import ScriptedReply

WIRES = ("chat_completions", "anthropic_messages", "responses")


def rows_of(request: RecordedRequest) -> list[dict[str, Any]]:
    return request.json_body.get("messages") or request.json_body["input"]


def assert_shares_every_byte(parent: RecordedRequest, review: RecordedRequest) -> None:
    """All of the parent's request, then its answer, then one user message: the review's."""
    shared = parent.body.rstrip(b"]}")
    assert review.body.startswith(shared)
    added = rows_of(review)[len(rows_of(parent)) :]
    assert [row.get("role", "assistant") for row in added] == ["assistant", "user"], added
    content = added[1]["content"]
    text = content if isinstance(content, str) else content[0]["text"]
    assert text.startswith(f"{TITLE}\n")
    assert parent.path == review.path
    for name in ("authorization", "x-api-key"):
        assert parent.headers.get(name) == review.headers.get(name)
    without = ("messages", "input")
    heads = [{k: v for k, v in r.json_body.items() if k not in without} for r in (parent, review)]
    assert heads[0] == heads[1], "tools, system prompt, model and limits are the same"
    shapes.check(REQUEST_TYPES[review.path], review.json_body)


@pytest.mark.fast_rows("chat_completions")
@pytest.mark.parametrize("wire", WIRES)
async def test_the_first_request_shares_every_byte_of_the_parents_last(tmp_path: Path, wire: str) -> None:
    tools = [does(use("read_file", path="absent.txt")), does(use("search_files", pattern="x"))]
    script = [says("I ran pytest."), *tools, says("Understood.")]
    script += [does(LESSON, use("skills_list")), says("Saved.")]
    async with bench(tmp_path, script, wire=wire) as b:
        await talk(b)
        [done] = await b.review()
        assert done.state == "saved"
        parent, review = b.server.requests[3], b.server.requests[4]
        assert_shares_every_byte(parent, review)
        assert b.server.requests[5].body.startswith(review.body.rstrip(b"]}")), "and so on within it"
        [listed] = b.listed()
        assert listed.usage.cache_read_tokens > 0
        assert not any(request.refused for request in b.server.requests)


async def test_a_review_of_a_session_with_examples_before_it_sends_them_too(tmp_path: Path) -> None:
    examples = (Message("user", "An example."), Message("assistant", "It worked."))
    prime = encode_prime(Prime(examples))
    settings = {"warm.default": "off"}
    script = [*corrected(), says("nothing")]
    async with bench(tmp_path, script) as b:
        key = b.session.id
        b.app.database.write_now(lambda db: sessions.set_prime(db, key, "You help.", prime))
        async with bench(tmp_path, server=b.server, session_id=key, settings=settings) as warm:
            await talk(warm)
            assert b"An example." in b.server.requests[-1].body
            [done] = await warm.review()
            assert done.state == "nothing", done
            assert_shares_every_byte(b.server.requests[1], b.server.requests[2])


async def test_it_forks_what_the_last_request_showed_even_after_compactions_and_undone_turns(
    tmp_path: Path,
) -> None:
    script = [says("one"), says("two"), says("three"), says("four"), says("nothing")]
    async with bench(tmp_path, script) as b:
        await b.turn("first")
        await b.turn("second, taken back later")
        await b.session.log.undo_last_turn()
        log = b.session.log
        smaller = [Message("user", "Summary of it all: héllo"), log.messages[-1]]
        await compactions.record(log, None, smaller, "test", 100, 50)
        await b.turn("third")
        await b.turn(SAID)
        parent = b.server.requests[-1]
        # A compaction after the last request was never shown to the model, so it is not in the fork.
        await compactions.record(log, None, [Message("user", "Later")], "test", 50, 9)
        await b.review()
        assert_shares_every_byte(parent, b.server.requests[-1])
        assert "taken back later" not in b.server.requests[-1].body.decode()


async def test_the_view_is_the_same_whichever_process_reads_it(tmp_path: Path) -> None:
    async with bench(tmp_path, corrected()) as b:
        await talk(b)

        def read(db: Any) -> list[Message]:
            key = sessions.key_of(db, b.session.id)
            assert turns.find_last_turn(db, key) == 2
            return compactions.read_view(db, key, compactions.view_after(db, key, 2))

        messages = b.app.database.read_now(read)
        assert [m.text for m in messages] == [m.text for m in b.session.log.messages]
        early = b.app.database.read_now(
            lambda db: compactions.view_after(db, sessions.key_of(db, b.session.id), 1)
        )
        assert early == "[1,2]"


async def test_everything_but_memory_skills_and_probes_is_denied_and_the_denial_names_them(
    tmp_path: Path,
) -> None:
    bad = [
        use("terminal", command="touch ran"),
        use("write_file", path="ran", content="x"),
        use("web_fetch", url="http://127.0.0.1/"),
        use("delegate_task", task="x"),
        use("clarify", question="?"),
        use("nosuch"),
    ]
    good = [use("read_file", path="notes.txt"), use("search_files", pattern="alpha"), use("skills_list")]
    outside = use("read_file", path="/etc/hostname")
    script = corrected(does(*bad), does(*good, outside), does(LESSON), says("Saved."))
    async with bench(tmp_path, script) as b:
        (tmp_path / "work" / "notes.txt").write_text("alpha")
        await talk(b)
        [done] = await b.review()
        assert done.state == "saved"
        assert not (tmp_path / "work" / "ran").exists()
        results = [row["content"] for row in rows_of(b.server.requests[3]) if row["role"] == "tool"]
        for text in results[:5]:
            assert "denied in a review" in text and "memory, skill_manage, read_file" in text, text
        assert "There is no tool named nosuch" in results[5]
        later = [row["content"] for row in rows_of(b.server.requests[4]) if row["role"] == "tool"][6:]
        assert "alpha" in later[0] and "notes.txt" in later[1]
        assert "alpha" not in later[3]


class Careful:
    """A policy of a program where nobody is: it says no."""

    async def decide(self, call: GateCall, emit: Emit) -> Decision:
        return Decision("deny", "nobody", "by the policy")

    async def report(self, call: GateCall, output: ToolOutput, emit: Emit) -> None:
        raise AssertionError("nothing was asked")


@pytest.mark.parametrize(
    ("name", "tag", "verdict", "reason"),
    [
        ("memory", "notes", "allow", ""),
        ("skill_manage", "skills", "allow", ""),
        ("read_file", "probe", "deny", "by the policy"),
        ("todo", "tasks", "deny", "todo is denied in a review, so nothing was run. Allowed are: memory, "),
        ("learn", "notes", "deny", "learn is denied in a review"),
    ],
)
def test_what_reads_is_decided_by_the_policy_and_what_learns_by_the_review(
    name: str, tag: str, verdict: str, reason: str
) -> None:
    async def run(ctx: ToolContext, arguments: dict[str, object]) -> ToolOutput:
        raise AssertionError

    tool = Tool(ToolSpec(name, "", {}), "", frozenset(), run, tags=frozenset({tag}))
    gate = ReviewGate(Careful(), ("memory", "skill_manage", "read_file"))
    call = GateCall("s", ToolCall("c", name, "{}"), tool, {}, "/")
    decision = asyncio.run(gate.decide(call, lambda event: None))
    assert decision.verdict == verdict and decision.reason.startswith(reason)


async def test_the_parent_is_not_touched(tmp_path: Path) -> None:
    script = corrected(does(LESSON), says("Saved."), says("Go on."))

    def everything(b: Bench) -> list[Any]:
        key = b.app.database.read_now(lambda db: sessions.key_of(db, b.session.id))
        return [
            b.app.database.read_now(
                lambda db, t=t, c=c: db.execute(f"SELECT * FROM {t} WHERE {c}", (key,)).fetchall()
            )
            for t, c in (
                ("sessions", "key = ?"),
                ("turns", "session = ?"),
                ("messages", "id >> 22 = ?"),
                ("tool_calls", "session = ?"),
                ("compactions", "session = ?"),
            )
        ]

    async with bench(tmp_path, script) as b:
        await talk(b)
        before, listed = everything(b), list(b.session.log.messages)
        engine = b.app.services.contexts.host(b.session.context).runner.engine
        numbers = [engine.last_prompt_tokens, engine.compression_count]
        await b.review()
        after = everything(b)
        assert [row[:4] for row in after[0]] == [row[:4] for row in before[0]]
        assert after[1:] == before[1:]
        assert [engine.last_prompt_tokens, engine.compression_count] == numbers
        assert all(a is b for a, b in zip(b.session.log.messages, listed, strict=True))
        await b.turn("and now?")
        assert b.server.requests[-1].body.startswith(b.server.requests[1].body.rstrip(b"]}"))
        children = b.app.database.read_now(lambda db: sessions.list_sessions(db, 9, kinds=("review",)))
        assert [(c.parent_session_id, c.turns) for c in children] == [(b.session.id, 1)]
        assert [(c.end_reason, bool(c.ended)) for c in children] == [("completed", True)]
        chats = b.app.database.read_now(lambda db: sessions.list_sessions(db, 9))
        assert [c.id for c in chats] == [b.session.id], "a review is in no list of conversations"


async def test_another_model_gets_a_digest_and_only_the_tools_that_it_may_use(tmp_path: Path) -> None:
    settings = {"review.model": "practice-echo"}
    async with bench(tmp_path, corrected(does(LESSON), says("Saved.")), settings=settings) as b:
        await talk(b)
        [done] = await b.review()
        assert done.state == "saved"
        asked = b.server.requests[2].json_body
        assert asked["model"] == "practice-echo"
        assert [row["role"] for row in asked["messages"]] == ["system", "user"]
        text = asked["messages"][1]["content"]
        assert text.startswith(TITLE) and SAID in text and "AGENT:\nI ran pytest." in text
        names = [tool["function"]["name"] for tool in asked["tools"]]
        assert names[:2] == ["memory", "skill_manage"] and "terminal" not in names
        assert b.rows()[0].evidence[0].session_id == b.session.id, "the evidence is the conversation's"


@pytest.mark.parametrize("other", ["", "practice-echo"])
async def test_a_vendor_is_told_the_conversations_name_where_its_bytes_are_shared(
    tmp_path: Path, other: str
) -> None:
    settings = {"model.provider": "openai", "review.model": other}
    key = {"OPENAI_API_KEY": "sk-test"}
    async with bench(tmp_path, corrected(says("nothing")), settings=settings, environ=key) as b:
        await talk(b)
        [done] = await b.review()
        parent, review = (request.json_body["prompt_cache_key"] for request in b.server.requests[1:])
        assert parent == b.session.id
        assert review == (done.review_session_id if other else parent)


async def test_a_conversation_that_is_too_long_for_one_message_more_is_read_as_a_digest(
    tmp_path: Path,
) -> None:
    from whet_lab.practice.script import Fault

    too_long = (
        "This model's maximum context length is 100 tokens. However, your messages resulted in 120 tokens."
    )
    fault = Fault(status=400, message=too_long, code="context_length_exceeded")
    script = corrected(ScriptedReply(fault=fault), does(LESSON), says("Saved."))
    async with bench(tmp_path, script) as b:
        await talk(b)
        [done] = await b.review()
        assert done.state == "saved", done
        assert "<conversation>" in b.server.requests[-1].body.decode()
        assert len(b.rows()) == 1
