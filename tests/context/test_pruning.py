from __future__ import annotations

import json

from tests.context.talk import Talk
from whet.context import rows as chat
from whet.context.pruning import clip_text, describe, prune, shorten


def test_equal_results_point_to_the_newest_which_stays():
    talk = Talk()
    for _ in range(3):
        talk.call("read_file", "the same text of a file\n" * 30, path="a.py")
    pruned = prune(talk.rows[:4], talk.rows[4:])
    assert "same result as #6" in pruned[1]["content"]
    assert "same result as #6" in pruned[3]["content"]
    assert pruned[0] is talk.rows[0]
    assert talk.rows[5]["content"].startswith("the same text")


def test_a_long_result_becomes_one_line_with_tool_arguments_exit_size_and_number():
    talk = Talk()
    talk.call(
        "terminal", "warning\n" * 100 + "E  assert 1 == 2\n[exit 1]", command="make test", workdir="api"
    )
    line = prune(talk.rows, [])[1]["content"]
    assert "\n" not in line
    for part in ("terminal", "make test", "api", "exit 1", "characters", "assert 1 == 2", "recall #2]"):
        assert part in line
    assert chat.seq_of(prune(talk.rows, [])[1]) == 2


def test_short_results_and_those_already_cut_stay_the_same_objects():
    talk = Talk()
    talk.call("terminal", "ok", command="true")
    talk.call("read_file", "long text " * 100, path="a")
    once = prune(talk.rows, [])
    assert once[1] is talk.rows[1]
    twice = prune(once, [])
    assert all(new is old for new, old in zip(twice, once, strict=True))


def test_long_arguments_are_cut_inside_valid_json():
    talk = Talk()
    talk.call("write_file", "created", path="src/a.py", content='say "hi" ünïcode\n' * 200)
    call = prune(talk.rows, [])[0]["tool_calls"][0]
    arguments = json.loads(call["function"]["arguments"])
    assert arguments["path"] == "src/a.py"
    assert len(arguments["content"]) < 200
    assert "recall #1]" in arguments["content"]
    assert call["id"] == talk.rows[0]["tool_calls"][0]["id"]


def test_the_items_of_a_list_in_long_arguments_are_cut_each_by_itself():
    talk = Talk()
    talk.call("write_files", "created", paths=["a.py", {"of": "b.py"}, "c" * 900, "d" * 120, *"efghijk"])
    arguments = json.loads(prune(talk.rows, [])[0]["tool_calls"][0]["function"]["arguments"])
    short, inner, long, *rest = arguments["paths"]
    assert (short, inner, rest) == ("a.py", {"of": "b.py"}, ["d" * 120, "e", "f", "g", "h"])
    assert long.startswith("ccc") and len(long) < 200 and "more characters" in long


def test_unreadable_and_deep_arguments_become_json_too():
    nested = ["[" * depth + "]" * depth for depth in (900, 5_000)]
    wide = json.dumps([["y" * 300] * 5] * 9)
    for arguments in ('{"broken": "' + "x" * 900, wide, json.dumps("z" * 900), *nested):
        function = {"name": "t", "arguments": arguments}
        row = {
            "role": "assistant",
            "content": "",
            "tool_calls": [{"id": "1", "function": function}],
            "_seq": 7,
        }
        cut = prune([row], [])[0]["tool_calls"][0]["function"]["arguments"]
        json.loads(cut)
        assert len(cut) < len(arguments)


def test_an_old_image_leaves_a_line_and_its_number():
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    row = {"role": "user", "content": [{"type": "text", "text": "look"}, image], "_seq": 3}
    cut = prune([row], [])[0]
    assert cut["content"] == [
        {"type": "text", "text": "look"},
        {"type": "text", "text": "[cut: an image; recall #3]"},
    ]
    assert chat.seq_of(cut) == 3


def test_a_result_with_an_image_is_never_called_the_same_as_another():
    def shot(seq: int, *more: dict[str, object]) -> dict[str, object]:
        parts = [{"type": "text", "text": "A picture of the page. " * 20}, *more]
        return {"role": "tool", "tool_call_id": "1", "tool_name": "look", "content": parts, "_seq": seq}

    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    whole = "look -> 460 characters, 1 lines"
    pruned = prune([shot(2, image), shot(3, image), shot(4), shot(5)], [shot(6, image)])
    assert [row["content"] for row in pruned] == [
        f"[cut: {whole}, 1 images; recall #2]",
        f"[cut: {whole}, 1 images; recall #3]",
        f"[cut: same result as #5: {whole}; recall #4]",
        f"[cut: {whole}; recall #5]",
    ]


def test_secrets_do_not_get_into_the_lines():
    talk = Talk()
    key = "ghp_" + "a1B2c3" * 6
    talk.call("terminal", "x\n" * 200 + f"{key}\n[exit 1]", command=f"curl -u me:{key}")
    call = chat.calls_of(talk.rows[0])[0]
    assert key not in describe(talk.rows[1], call)


def test_shorten_clips_only_the_longest_and_names_what_is_cut():
    talk = Talk()
    talk.call("read_file", "short", path="a")
    talk.call("read_file", "b" * 40_000, path="b")
    talk.call("read_file", "数据库" * 8_000, path="c")
    cut = shorten(talk.rows, 2_000)
    assert chat.estimate(cut) < 2_300
    assert cut[1] is talk.rows[1]
    assert "recall #4 ...]" in cut[3]["content"]
    assert cut[5]["content"].startswith("数据库")
    assert shorten(talk.rows, 1_000_000) == talk.rows


def test_a_text_that_just_fits_is_left_as_it_is():
    row = {"role": "assistant", "content": "words of some length " * 200}
    size = chat.tokens_of(row)
    assert clip_text(row, size) is row and clip_text(row, chat.text_tokens(row["content"])) is row
    assert chat.tokens_of(clip_text(row, size // 2)) < size
    empty = {"role": "assistant", "content": ""}
    assert clip_text(empty, size) is empty


def test_what_stays_too_long_in_its_shape_becomes_the_beginning_of_its_text():
    arguments = json.dumps({"rows": [["y" * 300] * 5] * 9})
    function = {"name": "t", "arguments": arguments}
    row = {"role": "assistant", "content": None, "tool_calls": [{"id": "1", "function": function}], "_seq": 7}
    [cut] = prune([row], [])
    kept = f"{'y' * 120} [180 more characters; recall #7]"
    inner = json.dumps({"rows": [[kept] * 5] * 8}, separators=(",", ":"))
    expected = {"cut": f"{inner[:120]} [{len(inner) - 120:,} more characters; recall #7]"}
    assert json.loads(cut["tool_calls"][0]["function"]["arguments"]) == expected
    assert cut["content"] == "" and row["tool_calls"] == [{"id": "1", "function": function}]
    short = {**function, "arguments": json.dumps({"a": "x" * 492})}
    assert len(short["arguments"]) == 501
    both = {**row, "tool_calls": [{"id": "1", "function": function}, {"id": "2", "function": short}]}
    second = prune([both], [])[0]["tool_calls"][1]["function"]["arguments"]
    assert json.loads(second) == {"a": f"{'x' * 120} [372 more characters; recall #7]"}
    whole = {**row, "tool_calls": [{"id": "1", "function": {**function, "arguments": "x" * 500}}]}
    assert prune([whole], [])[0] is whole
    assert prune([{**row, "_seq": 0}], [])[0]["tool_calls"][0]["function"]["arguments"].endswith(
        'characters]"}'
    )
    for size, is_whole in ((1_000, True), (1_001, False)):
        least = len(json.dumps({"": ["x" * 110] * 8}, separators=(",", ":")))
        arguments = json.dumps({"k" * (size - least): ["x" * 110] * 8}, separators=(",", ":"))
        wide = {**row, "tool_calls": [{"id": "1", "function": {**function, "arguments": arguments}}]}
        cut = prune([wide], [])[0]["tool_calls"][0]["function"]["arguments"]
        assert (cut == arguments) is is_whole and len(arguments) == size


def test_a_line_names_arguments_that_are_no_object_and_a_result_without_a_number():
    def told(arguments: str, text: str, name: str = "t") -> str:
        row = {"role": "tool", "tool_call_id": "1", "content": text}
        return describe(row, chat.RowCall("1", name, arguments))

    assert told("not json", "a\nb") == "t not json -> 3 characters, 2 lines"
    assert told("[1,2]", "x") == "t [1, 2] -> 1 characters, 1 lines" and told("{}", "").startswith("t -> 0")
    assert told('{"a": 1, "b": "c"}', "x" * 1_000) == "t a=1, b=c -> 1,000 characters, 1 lines"
    assert describe({"role": "tool", "content": "x", "name": "n"}, None) == "n -> 1 characters, 1 lines"
    assert describe({"role": "tool", "content": "x"}, None) == "tool -> 1 characters, 1 lines"
    rows = [{"role": "tool", "tool_call_id": str(at), "content": "long " * 60} for at in range(2)]
    assert prune(rows, [])[0]["content"].startswith("[cut: same result again below: tool -> 300 characters")


def test_a_result_of_200_characters_stays_and_images_in_results_are_counted():
    for size, is_cut in ((200, False), (201, True)):
        row = {"role": "tool", "tool_call_id": "1", "content": "z" * size, "_seq": 2}
        assert (prune([row], [])[0] is not row) is is_cut
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    shown = {
        "role": "tool",
        "tool_call_id": "1",
        "content": [{"type": "text", "text": "hi"}, image],
        "_seq": 2,
    }
    assert prune([shown], [])[0]["content"] == "[cut: tool -> 2 characters, 1 lines, 1 images; recall #2]"


def test_results_share_the_room_that_is_left_evenly():
    def rows(*sizes: int) -> list[dict[str, object]]:
        return [{"role": "tool", "tool_call_id": "1", "content": "word" * (size - 4)} for size in sizes]

    fields = {"role": "user", "content": "word" * 96}
    small, large, largest = rows(200, 900, 2_000)
    cut = shorten([fields, small, large, largest], 1_300)
    assert cut[:2] == [fields, small]
    assert [abs(chat.tokens_of(row) - 500) < 30 for row in cut[2:]] == [True, True], "(1300 - 100 - 200) / 2"
    assert shorten([fields, small, large], 1_200) == [fields, small, large]
    exact, long = rows(100, 500)
    assert shorten([exact, long], 201) == [exact, clip_text(long, 101)], "what one leaves is the other's"
    assert [chat.tokens_of(row) < 120 for row in shorten(rows(900, 2_000), 50)] == [True, True], (
        "100 at least"
    )
