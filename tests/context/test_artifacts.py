from __future__ import annotations

from tests.context.talk import Talk
from whet.context import artifacts
from whet.context.artifacts import TrailEntry
from whet.context.rows import text_tokens


def test_the_trail_is_what_calls_touched_with_outcomes():
    talk = Talk()
    talk.call("read_file", "text", path="src/a.py")
    talk.call("patch", "patched", path="src/a.py", old_string="x", new_string="y")
    talk.call("terminal", "1 failed\n[exit 1]", command="make test")
    talk.call("terminal", "[no output, exit 0]", command="true")
    talk.call("web_fetch", "a page", url="https://example.org/x")
    trail_entries = artifacts.merge([], artifacts.collect(talk.rows))
    assert trail_entries == [
        TrailEntry("changed", "src/a.py", "", 3),
        TrailEntry("command", "make test", "exit 1", 5),
        TrailEntry("command", "true", "exit 0", 7),
        TrailEntry("url", "https://example.org/x", "", 9),
    ]
    assert artifacts.parse(artifacts.render(trail_entries, 1_000)) == trail_entries


def test_a_file_that_was_changed_stays_so_when_it_is_read_again():
    merged = artifacts.merge(
        [TrailEntry("changed", "a", "", 1)], [TrailEntry("read", "a", "", 9), TrailEntry("read", "b", "", 8)]
    )
    assert merged == [TrailEntry("changed", "a", "", 9), TrailEntry("read", "b", "", 8)]


def test_an_exit_stands_in_the_last_400_characters_and_a_value_has_300():
    for more, outcome in ((392, "exit 2"), (393, "exit 0")):
        talk = Talk()
        talk.call("terminal", "[exit 2]" + "x" * more, command="make " + "y" * 295)
        talk.call("terminal", "[exit 0]", command="make " + "y" * 296)
        [cut, short] = artifacts.collect(talk.rows)[::-1]
        assert (short.value, short.outcome) == ("make " + "y" * 295, outcome)
        assert cut.value == "make " + "y" * 292 + "..."


def test_the_block_is_bounded_prefers_changes_and_says_where_the_rest_is():
    entries = [TrailEntry("changed", "src/old.py", "", 1)]
    entries += [TrailEntry("read", f"src/file{number}.py", "", number) for number in range(2, 400)]
    block = artifacts.render(entries, 200)
    assert text_tokens(block) <= 200
    assert "src/old.py" in block
    assert "src/file399.py" in block
    assert "src/file2.py" not in block
    assert block.endswith("recall with ref files, commands or urls")


def test_an_entry_of_no_message_is_read_back_as_one():
    entries = [TrailEntry("read", "a"), TrailEntry("command", "make", "exit 2", 4)]
    assert artifacts.parse(artifacts.render(entries, 1_000)) == entries


def test_secrets_in_commands_are_masked():
    talk = Talk()
    key = "sk-" + "a1B2" * 8
    talk.call("terminal", "ok", command=f"deploy --key {key}")
    assert key not in artifacts.render(artifacts.collect(talk.rows), 500)


def test_a_trail_is_written_as_far_as_it_fits() -> None:
    entries = [TrailEntry("read", f"f{at}", "", at) for at in range(1, 4)]
    entries.append(TrailEntry("command", "make", "exit 1", 9))
    whole = (
        "## Trail (newest first)\n- ran make -> exit 1 [#9]\n- read f3 [#3]\n- read f2 [#2]\n- read f1 [#1]"
    )
    more = "- older ones: recall with ref files, commands or urls"
    need = text_tokens("## Trail (newest first)") + text_tokens(more)
    assert artifacts.render(entries, 1_000) == whole and artifacts.render([], 1_000) == ""
    line = text_tokens("- read f3 [#3]") + 1
    number = text_tokens("- ran make -> exit 1 [#9]") + 1
    two = "\n".join((*whole.splitlines()[:3], more))
    assert artifacts.render(entries, need + number + line) == two
    assert artifacts.render(entries, need + number + line - 1) == "\n".join((*whole.splitlines()[:2], more))
    changed = [TrailEntry("changed", "old", "", 1), *entries[1:]]
    short = artifacts.render(changed, need + text_tokens("- changed old [#1]") + 1)
    assert short.splitlines()[1:] == ["- changed old [#1]", more]
    assert artifacts.parse(f"{whole}\nsome text\n{more}") == entries
