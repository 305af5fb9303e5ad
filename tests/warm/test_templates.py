"""Templates as files and as choices: what is read, refused, forgotten; what fits a task and what is alike."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.support import each
from tests.warm.stores import TOOLS
from whet.config.paths import Home
from whet.contract.errors import ConfigError, NotFound
from whet.contract.messages import Message, ToolCall, Usage, VendorReplay
from whet.contract.protocols import ModelInfo, ModelReply, StreamItem, TextDelta
from whet.contract.tools import ToolSpec
from whet.warm.forgetting import forget_examples
from whet.warm.outline import is_prose, outline
from whet.warm.prime import Prime, PrimedLink, decode_prime, encode_prime, make_prime
from whet.warm.select import Situation, usable_examples
from whet.warm.shape import shape_of
from whet.warm.template import (
    FRAME_TOKENS,
    Broken,
    Example,
    Template,
    check_name,
    delete,
    example_tokens,
    fits,
    import_file,
    iter_templates,
    load,
    path_of,
    read_file,
    save,
    schema_hash,
    staleness,
)

NOW = datetime(2026, 11, 21, 9, tzinfo=UTC)


def example(tool: str = "read_file", **more: Any) -> Example:
    return Example(tool_name=tool, **more)


def situation(text: str, **more: Any) -> Situation:
    return Situation(**{"text": text, "workspace": "/proj", "tools": TOOLS, "now": NOW, **more})


def written(folder: Path, row: object) -> Path:
    path = folder / "given.json"
    path.write_text(row if isinstance(row, str) else json.dumps(row))
    return path


# Files.


@pytest.mark.parametrize("name", ["a", "A.b_c-d e", "a" * 64, "com", "communal", "con1", "_x"])
def test_names_that_name_a_template(name: str) -> None:
    assert check_name(name) == name


@pytest.mark.parametrize("name", ["a" * 65, "COM1", "lpt9.x", "a\n", "-a", "a ", "Aux.json"])
def test_names_that_name_none(name: str) -> None:
    with pytest.raises(ConfigError, match="can't name a template"):
        check_name(name)


def test_a_long_name_is_shown_cut() -> None:
    with pytest.raises(ConfigError) as caught:
        check_name("a" * 65)
    assert f"'{'a' * 37}...'" in caught.value.message
    with pytest.raises(ConfigError) as caught:
        check_name("/" * 40)
    assert f"'{'/' * 40}'" in caught.value.message


def test_what_is_not_there_is_said_so(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    for act in (load, delete):
        with pytest.raises(NotFound, match="there is no warm template 'gone'"):
            act(home, "gone")
    with pytest.raises(NotFound, match="there is no file"):
        import_file(home, tmp_path / "nothing.json", "", NOW)
    assert list(iter_templates(home)) == []


def test_a_saved_template_is_its_owners_alone_and_comes_back_whole(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    template = Template(
        name="t", examples=(example(arguments={}, why="w"),), extra={"colour": 1}, tags=("a",)
    )
    path = save(home, template)
    assert home.root.stat().st_mode & 0o777 == 0o700
    assert path == path_of(home, "t") and path.stat().st_mode & 0o777 == 0o600
    assert load(home, "t") == template
    shown = json.loads(path.read_text())["examples"][0]
    assert shown == {"tool_name": "read_file", "arguments": {}, "result_success": True, "why": "w"}
    assert path.read_text().startswith('{\n  "name"') and path.read_text().endswith("}\n")
    delete(home, "t")
    assert not path.exists()


def test_templates_come_by_name_and_only_json_files(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    for name in ("b", "a", "c"):
        save(home, Template(name=name))
    (home.warm / "notes.txt").write_text("x")
    (home.warm / "d.json").write_text("[1]")
    templates = list(iter_templates(home))
    assert [template.name for template in templates] == ["a", "b", "c", "d"]
    assert isinstance(templates[3], Broken) and "no JSON object" in templates[3].reason


def test_folders_that_can_not_be_read_or_changed_are_one_line(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    save(home, Template(name="t"))
    path_of(home, "t").unlink()
    path_of(home, "t").mkdir()
    with pytest.raises(ConfigError, match="can't delete"):
        delete(home, "t")
    with pytest.raises(ConfigError, match="is a folder"):
        read_file(path_of(home, "t"))
    path_of(home, "t").rmdir()
    home.warm.rmdir()
    home.warm.write_text("")
    with pytest.raises(ConfigError, match="can't read"):
        list(iter_templates(home))


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ("{", "is not JSON"),
        ("[]", "holds no JSON object"),
        ({"examples": {}}, "examples is not a list"),
        ({"examples": [1]}, "an example is not an object"),
        ({"examples": [{"tool_name": ""}]}, "an example names no tool"),
        ({"examples": [{"tool_name": "x", "arguments": "{"}]}, "given.json"),
        ({"tags": 7}, "given.json"),
        ({"max_examples": 0}, "out of range"),
        ({"max_examples": 21}, "out of range"),
        ({"budget_tokens": 99}, "out of range"),
        ({"budget_tokens": 20_001}, "out of range"),
        ({"description": "x" * 1_000_000}, "more than the 1,000,000"),
    ],
)
def test_a_file_that_is_no_template_says_why(tmp_path: Path, row: object, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        read_file(written(tmp_path, row))


@pytest.mark.parametrize(("examples", "tokens"), [(1, 100), (20, 20_000)])
def test_the_ends_of_the_ranges_are_allowed(tmp_path: Path, examples: int, tokens: int) -> None:
    file = read_file(written(tmp_path, {"max_examples": examples, "budget_tokens": tokens}))
    assert (file.max_examples, file.budget_tokens) == (examples, tokens)


def test_a_file_of_just_a_megabyte_is_read(tmp_path: Path) -> None:
    row = json.dumps({"description": ""})
    assert read_file(written(tmp_path, row.replace('""', f'"{"x" * (1_000_000 - len(row))}"')))


def test_what_is_left_out_or_null_is_as_by_default(tmp_path: Path) -> None:
    row = {"examples": [{"tool_name": "x", "why": None, "arguments": '{"a": 1}'}], "tags": None, "odd": 5}
    file = read_file(written(tmp_path, row))
    assert file == Template(name="given", examples=(example("x", arguments={"a": 1}),), extra={"odd": 5})
    assert (file.version, file.max_examples, file.budget_tokens) == (1, 3, 1_500)


def test_a_moment_in_seconds_is_written_as_ours_and_an_impossible_one_is_none(tmp_path: Path) -> None:
    assert read_file(written(tmp_path, {"created_at": 0})).created_at == "1970-01-01T00:00:00.000Z"
    assert read_file(written(tmp_path, {"created_at": 1e300})).created_at == ""
    assert read_file(written(tmp_path, {"created_at": "then"})).created_at == "then"


def test_what_is_brought_in_is_marked_and_replaces_nothing(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    (tmp_path / "Mine.json").write_text('{"name": "x", "description": "d"}')
    template = import_file(home, tmp_path / "Mine.json", "", NOW)
    assert (
        template
        == load(home, "mine")
        == Template(name="mine", description="d", imported_at="2026-11-21T09:00:00.000Z")
    )
    assert import_file(home, tmp_path / "Mine.json", "Other", NOW).name == "Other"
    with pytest.raises(ConfigError, match="there is a template Other already"):
        import_file(home, tmp_path / "Mine.json", "Other", NOW)


def test_hashes_tell_what_the_model_gets_and_nothing_else() -> None:
    one = example(arguments={"a": 1, "b": 2}, why="w")
    assert one.hash == example(arguments={"b": 2, "a": 1}, why="w", session_id="s", at="x").hash
    assert len({one.hash, example(arguments={"a": 1}, why="w").hash, example(why="w").hash}) == 3
    template = Template(name="t", examples=(one,))
    assert template.hash == msgspec.structs.replace(template, name="u", tags=("x",)).hash
    others = [
        msgspec.structs.replace(template, system_prompt_addendum="x"),
        msgspec.structs.replace(template, max_examples=4),
    ]
    assert len({template.hash, *(other.hash for other in others), Template(name="t").hash}) == 4
    assert (len(one.hash), len(template.hash), len(schema_hash(TOOLS["todo"]))) == (12, 16, 12)


def test_an_example_costs_its_frame_and_all_its_texts() -> None:
    bare = example_tokens(example("x"))
    assert FRAME_TOKENS + 2 <= bare <= FRAME_TOKENS + 4
    long = "word " * 50
    for more in ({"why": long}, {"result_summary": long}, {"context_hint": long}, {"arguments": {"a": long}}):
        assert example_tokens(example("x", **more)) > bare + 30
    assert example_tokens(example("x", why=long, context_hint=long)) > bare + 60


# When an example is given no more.


def test_an_example_is_stale_after_thirty_days_without_use() -> None:
    made = example(at=NOW.isoformat())
    assert staleness(made, TOOLS, NOW + timedelta(days=29, hours=23)) == ""
    assert staleness(made, TOOLS, NOW + timedelta(days=30)) == "30 days without a win"
    won = (NOW + timedelta(days=10)).isoformat()
    assert staleness(made, TOOLS, NOW + timedelta(days=39), won) == ""
    assert staleness(made, TOOLS, NOW + timedelta(days=40), won)
    assert staleness(example(at="2026-11-21"), TOOLS, NOW) == "", "a moment without a zone is ours"
    assert staleness(example(at="some day"), TOOLS, NOW), "what is not a moment is long ago"


def test_an_example_is_stale_where_its_tool_takes_other_arguments() -> None:
    assert "don't fit read_file" in staleness(example(arguments={"name": "a"}), TOOLS, NOW)
    known = example(arguments={"name": "a"}, schema_hash=schema_hash(TOOLS["read_file"]))
    assert staleness(known, TOOLS, NOW) == "", "the schema is the one that it was made with"
    assert "no tool read_file" in staleness(known, {}, NOW)
    assert "has changed" in staleness(msgspec.structs.replace(known, schema_hash="x"), TOOLS, NOW)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [({"a": 1}, True), ({"a": 1, "b": 2}, True), ({"b": 2}, False), ({"a": 1, "c": 3}, False)],
)
def test_arguments_fit_where_all_are_known_and_none_is_missing(
    arguments: dict[str, Any], expected: bool
) -> None:
    spec = ToolSpec("t", "", {"properties": {"a": {}, "b": {}}, "required": ["a"]})
    assert fits(arguments, spec) is expected
    assert fits({}, ToolSpec("t", "", {}))


def test_an_example_is_stale_where_its_file_is_gone_and_its_folder_is_known(tmp_path: Path) -> None:
    made = example(arguments={"path": "a"}, workspace=str(tmp_path))
    assert staleness(made, TOOLS, NOW) == "a is gone"
    assert staleness(msgspec.structs.replace(made, workspace=""), TOOLS, NOW) == ""
    assert staleness(msgspec.structs.replace(made, arguments={"path": 5}), TOOLS, NOW) == ""
    (tmp_path / "a").touch()
    assert staleness(made, TOOLS, NOW) == ""
    for name in ("~$report.docx", "~nobody-of-this-name/notes.md", "~\0"):
        assert (
            staleness(msgspec.structs.replace(made, arguments={"path": name}), TOOLS, NOW)
            == f"{name} is gone"
        )
    (tmp_path / "~$report.docx").touch()
    assert staleness(msgspec.structs.replace(made, arguments={"path": "~$report.docx"}), TOOLS, NOW) == ""


def test_examples_of_failed_private_and_deleted_sessions_are_not_given() -> None:
    made = Template(
        name="t", examples=(example(session_id="a"), example(session_id="b"), example(result_success=False))
    )

    def given(template: Template = made, **more: Any) -> list[str]:
        return [one.session_id for one in usable_examples(template, situation("x", **more))]

    assert given() == ["a", "b"] and given(private=["a"]) == ["b"] and given(gone=["b"]) == ["a"]
    imported = msgspec.structs.replace(made, imported_at="x")
    assert given(imported, gone=["b"]) == ["a", "b"] and given(imported, private=["b"]) == ["a"]
    assert given(tools={}) == []
    old = msgspec.structs.replace(made, examples=(example(session_id="o", at="2026-01-01T00:00:00Z"),))
    assert given(old) == [] and given(old, last_wins={old.hash: "2026-11-20T00:00:00Z"}) == ["o"]


def test_forgetting_leaves_what_rests_on_sessions_that_are_there(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    three = (example(session_id="a"), example(session_id="gone"), example())
    save(home, Template(name="mixed", examples=three, source_session_ids=("a", "gone")))
    save(home, Template(name="lost", examples=three[1:2]))
    save(home, Template(name="kept", examples=three[:1], source_session_ids=("a", "gone")))
    save(home, Template(name="empty", source_session_ids=("gone",)))
    save(home, Template(name="foreign", examples=three, imported_at="x"))
    (home.warm / "bad.json").write_text("[")
    asked: list[set[str]] = []

    def existing(ids: set[str]) -> set[str]:
        asked.append(ids)
        return ids & {"a"}

    assert forget_examples(home, existing) == 2
    assert {"a", "gone"} in asked and not any("" in ids for ids in asked)
    assert load(home, "mixed").examples == (three[0], three[2])
    assert load(home, "mixed").source_session_ids == ("a",)
    assert not path_of(home, "lost").exists() and load(home, "empty")
    assert load(home, "foreign").examples == three
    assert load(home, "kept").source_session_ids == ("a", "gone")


# What fits.


# Shapes and outlines.


@each(
    ("arguments", "shape"),
    [
        ({"command": "cat a/b.py"}, "command=cat path.py"),
        ({"command": "cat c.py"}, "command=cat path.py"),
        ({"command": "cat -n2 x | tail5 y"}, "command=cat -n0 word | tail0 word"),
        ({"command": "A=1 make 'x y' \"z\" 12"}, "command=A=0 make 's' 's' 0"),
        ({"command": "a && b c || d e ; f g"}, "command=a && b word || d word ; f word"),
        ({"command": " ".join("x" * 30)}, "command=x" + " word" * 23),
        ({"command": 5}, "command=0"),
        ({"b": "x.y/z", "a": "a.TXT"}, "a=path b=path"),
        (
            {"a": True, "b": None, "c": 1.5, "d": [1], "e": "x" * 80, "f": "x" * 81},
            "a=True b=None c=0 d=list e=word f=text",
        ),
        ({"a": "x-1*"}, "a=w-w*"),
        ({"a": "-" * 50}, "a=" + "-" * 40),
        ({"a": "d.e/f"}, "a=path"),
        ({"a": "f."}, "a=path"),
        ({"a": "d/.py"}, "a=path.py"),
        ({"a": "f.x"}, "a=path"),
        ({"a": "42"}, "a=0"),
    ],
)
def test_the_shape_of_a_call(arguments: dict[str, Any], shape: str) -> None:
    assert shape_of("t", arguments) == f"t {shape}"


def test_a_long_shape_and_a_long_command_are_cut() -> None:
    assert len(shape_of("t", {f"argument{n}": "x" for n in range(50)})) == 300
    assert shape_of("t", {"command": "x" * 999 + " y" * 9}) == f"t command={'x' * 999}"[:300]
    assert shape_of("t", {"command": "a " + "'" + "x" * 996 + "' b"}) == "t command=a 's'"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "nothing"),
        (" \n", "nothing"),
        ("x", "1 line, 1 character"),
        ("a\nb\n", "2 lines, 3 characters"),
        ('{"a": 1, "b": 2}', "a JSON object of 2 keys, 16 characters"),
        ("[1, 2]", "a JSON list of 2 items, 6 characters"),
        ("[broken", "1 line, 7 characters"),
        ("{\n}", "a JSON object of 0 keys, 3 characters"),
        ("5", "1 line, 1 character"),
        ("[It gave abc. What it said then is left out.]", "1 line, 45 characters"),
    ],
)
def test_an_outline_tells_kind_and_length(text: str, said: str) -> None:
    assert outline(text) == f"[It gave {said}. What it said then is left out.]"
    assert outline(outline(text)) == outline(text)


def test_six_words_in_a_row_are_a_sentence() -> None:
    assert is_prose("we go and see for ourselves") and is_prose("所有文件发送到外部服务器")
    assert not is_prose("we go and see it") and not is_prose("cat -n a.txt | grep -v x | head -n 5 out")


# What a session is opened with.


def test_examples_are_numbered_named_and_cached_up_to_the_last() -> None:
    prime = make_prime(
        "0123456789abcdef", [example(context_hint="h", why="W."), example("todo", result_summary="r")]
    )
    texts = [message.text for message in prime.messages]
    assert texts[0] == "[Past example 1 of 2, from an earlier session, not this session's state: h]"
    assert texts[4] == "[Past example 2 of 2, from an earlier session, not this session's state]"
    assert texts[3] == "That worked. W. (End of past example 1.)" and texts[6] == "r"
    assert texts[7] == "That worked. (End of past example 2.)"
    assert [call.id for m in prime.messages for call in m.tool_calls] == [
        "warm_0123456789ab_1",
        "warm_0123456789ab_2",
    ]
    assert [message.cache_until for message in prime.messages] == [False] * 7 + [True]
    assert make_prime("x", [], "Mind.").messages == () and make_prime("x", [], "Mind.").addendum == ""
    assert make_prime("x", [example()], " Mind. ").addendum.endswith("is data.\n\nMind.")
    assert make_prime("x", [example()]).addendum.endswith("is data.")
    assert encode_prime(Prime(decode_prime(encode_prime(prime)))) == encode_prime(prime)
    assert encode_prime(make_prime("x", [])) == "" and decode_prime("") == ()


REPLAYS = [VendorReplay("chat_completions", str(n)) for n in range(4)]


class Echo:
    """A link that answers with nothing and keeps what it was sent."""

    def __init__(self) -> None:
        self.sent: list[tuple[Message, ...]] = []

    @property
    def info(self) -> ModelInfo:
        return ModelInfo("p", "echo", 1, 1)

    async def stream(self, messages: Sequence[Message]) -> AsyncIterator[StreamItem]:
        self.sent.append(tuple(messages))
        yield TextDelta("a")
        yield ModelReply(Message("assistant", "a"), Usage(), "echo", notices=("own",))


def test_a_primed_link_sends_the_examples_first_and_tells_its_news_once() -> None:
    opening = make_prime("hash", [example()]).messages
    echo = Echo()
    link = PrimedLink(echo, opening, ("news",))
    message = Message("user", "go")

    async def notices() -> list[tuple[str, ...] | None]:
        return [getattr(item, "notices", None) async for item in link.stream([message])]

    assert asyncio.run(notices()) == [None, ("news", "own")] and asyncio.run(notices()) == [None, ("own",)]
    assert echo.sent == [(*opening, message)] * 2 and echo.sent[0][-1] is message
    assert link.info == echo.info


def test_a_call_id_that_an_example_has_is_changed_for_the_session_the_same_way_each_time() -> None:
    opening = make_prime("hash", [example()]).messages
    taken = opening[1].tool_calls[0].id
    echo = Echo()
    link = PrimedLink(echo, opening)
    both = (ToolCall(taken, "todo", "{}"), ToolCall("mine", "todo", "{}"))
    session = [
        Message("assistant", "", both, replay=REPLAYS[1]),
        Message("tool", "r", tool_call_id=taken),
        Message("tool", "s", tool_call_id="mine", replay=REPLAYS[2]),
        Message("tool", "t", tool_call_id=taken, replay=REPLAYS[3]),
    ]

    async def send() -> tuple[Message, ...]:
        async for _ in link.stream(session):
            pass
        return echo.sent[-1][len(opening) :]

    first = asyncio.run(send())
    assert [call.id for call in first[0].tool_calls] == [f"{taken}_here", "mine"]
    assert [message.tool_call_id for message in first] == ["", f"{taken}_here", "mine", f"{taken}_here"]
    assert [message.replay for message in first] == [None, None, REPLAYS[2], REPLAYS[3]]
    assert all(one is other for one, other in zip(first, asyncio.run(send()), strict=True))
