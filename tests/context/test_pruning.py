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
    talk.call("write_files", "created", paths=["a.py", {"of": "b.py"}, "c" * 900, *"defghijk"])
    arguments = json.loads(prune(talk.rows, [])[0]["tool_calls"][0]["function"]["arguments"])
    short, inner, long, *rest = arguments["paths"]
    assert (short, inner, rest) == ("a.py", {"of": "b.py"}, ["d", "e", "f", "g", "h"])
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
    assert clip_text(row, size) is row
    assert chat.tokens_of(clip_text(row, size // 2)) < size
