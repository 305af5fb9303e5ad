"""The simulated prefix cache grows with a conversation and is missed when its past changes."""

from __future__ import annotations

import pytest

from tests.practice.clients import complete, converse
from whet_lab.practice.cache import PrefixCache, TokenTally

MARK = {"cache_control": {"type": "ephemeral"}}


def test_the_longest_known_prefix_is_read():
    cache = PrefixCache()
    blocks = [bytes([65 + index]) * 40 for index in range(5)]
    assert cache.count_automatic("m", blocks[:3]) == TokenTally(30, 0)
    assert cache.count_automatic("m", blocks) == TokenTally(50, 30)
    assert cache.count_automatic("m", [*blocks[:2], b"x" * 40, *blocks[3:]]) == TokenTally(50, 20)
    assert cache.count_automatic("other", blocks) == TokenTally(50, 0)


def test_only_marked_prefixes_are_written_and_a_mark_looks_back():
    cache = PrefixCache()
    blocks = [(bytes([65 + index]) * 40, False) for index in range(30)]

    def marked(count, *marks):
        return [(block, index in marks) for index, (block, _) in enumerate(blocks[:count])]

    assert cache.count_marked("m", marked(3)) == TokenTally(30)
    assert cache.count_marked("m", marked(3, 2)) == TokenTally(30, 0, 30)
    assert cache.count_marked("m", marked(5, 3)) == TokenTally(50, 30, 10)
    assert cache.count_marked("m", marked(30, 29)) == TokenTally(300, 0, 300)
    assert cache.count_marked("m", marked(30, 10, 29)) == TokenTally(300, 300, 0)


@pytest.mark.slow
def test_memory_is_bounded():
    cache, blocks = PrefixCache(), [str(number).encode() for number in range(90_000)]
    for index in range(3):
        cache.count_automatic(f"m{index}", blocks)
    newest, oldest = cache.count_automatic("m2", blocks), cache.count_automatic("m0", blocks)
    assert newest.read == newest.prompt and oldest.read == 0


def test_a_conversation_reads_more_at_each_step(serve, chat):
    client = chat(serve())
    messages = [{"role": "system", "content": "s" * 400}, {"role": "user", "content": "hi " * 50}]
    seen = []
    for _ in range(4):
        answer = complete(client, model="practice-echo", messages=messages)
        usage = answer.usage
        seen.append((usage.prompt_tokens_details.cached_tokens, usage.prompt_tokens))
        messages.append(answer.choices[0].message.model_dump(exclude_none=True))
        messages.append({"role": "user", "content": "more"})
    assert seen[0][0] == 0
    assert [cached for cached, _ in seen[1:]] == [prompt for _, prompt in seen[:-1]]
    messages[0]["content"] += "!"
    assert (
        complete(client, model="practice-echo", messages=messages).usage.prompt_tokens_details.cached_tokens
        == 0
    )


def test_claude_reads_from_the_cache_only_behind_marks(serve, claude):
    client = claude(serve())
    text = "word " * 100

    def send(marked, *more):
        system = [{"type": "text", "text": text} | (MARK if marked else {})]
        messages = [{"role": "user", "content": "hi"}, *more]
        usage = converse(client, model="practice-echo", system=system, messages=messages).usage
        return usage.input_tokens, usage.cache_creation_input_tokens, usage.cache_read_input_tokens

    plain = send(False)
    assert plain[1:] == (0, 0)
    written = send(True)
    assert written[1] > 100 and written[2] == 0
    assert sum(written) == plain[0]
    read = send(True, {"role": "assistant", "content": "a"}, {"role": "user", "content": "b"})
    assert read[1] == 0 and read[2] == written[1]


def test_moving_a_mark_keeps_what_was_written(serve, claude):
    client = claude(serve())
    blocks = [{"type": "text", "text": "word " * 100}]
    messages = [{"role": "user", "content": [blocks[0] | MARK]}]
    first = converse(client, model="practice-echo", messages=messages).usage
    messages[0]["content"] = blocks[0]["text"]
    marked = [{"type": "text", "text": "b"} | MARK]
    messages += [{"role": "assistant", "content": "a"}, {"role": "user", "content": marked}]
    second = converse(client, model="practice-echo", messages=messages).usage
    assert second.cache_read_input_tokens == first.cache_creation_input_tokens
