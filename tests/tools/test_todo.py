"""todo: the list, its limits, and getting it back from a transcript."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from tests.tools.running import call, context, find_tool
from whet.contract.errors import BadInput
from whet.tools.todo import TodoItem, TodoLists, format_list
from whet.tools.toolsets.planning import PlanningTools


def use(lists: TodoLists, session_id: str = "s1", **arguments: Any) -> str:
    todo = find_tool(PlanningTools(lists), "todo")
    return asyncio.run(call(todo, context(Path("/"), session_id=session_id), **arguments)).text


def test_a_list_is_set_read_changed_and_added_to() -> None:
    lists = TodoLists()
    assert use(lists) == "The list is empty."
    items = [{"content": "read"}, {"content": "  fix\nit ", "status": "in_progress"}]
    text = use(lists, items=[*items, {"id": "t", "content": "test"}])
    assert text == "[ ] 1: read\n[>] 2: fix it\n[ ] t: test\n0 of 3 done"
    items = [{"id": "1", "status": "completed"}, {"id": "t", "content": "test all"}, {"content": "new"}]
    text = use(lists, merge=True, items=items)
    assert text == "[x] 1: read\n[>] 2: fix it\n[ ] t: test all\n[ ] 3: new\n1 of 4 done"
    assert use(lists) == text
    assert use(lists, items=[{"content": "only", "status": "cancelled"}]) == "[-] 1: only\n1 of 1 done"
    assert use(lists, items=[]) == "The list is empty."


def test_sessions_have_lists_of_their_own() -> None:
    lists = TodoLists()
    use(lists, "a", items=[{"content": "of a"}])
    assert use(lists, "b") == "The list is empty."
    assert "of a" in use(lists, "a")


def test_the_list_comes_back_from_the_transcript() -> None:
    calls: list[dict[str, Any]] = [
        {"items": [{"content": "one"}, {"content": "two"}]},
        {"items": [{"id": "x", "status": "completed"}], "merge": True},
        {},
        {"items": [{"id": "2", "status": "completed"}, {"content": "three"}], "merge": "true"},
    ]
    before, after = TodoLists(), TodoLists()
    for arguments in (calls[0], calls[2], calls[3]):
        text = use(before, **arguments)
    restored = after.restore(
        "s1", [json.dumps(arguments) for arguments in calls] + ["not json", '{"items": 3}']
    )
    assert format_list(restored) == use(after) == text


@pytest.mark.parametrize(
    ("items", "complaint"),
    [
        ([{"content": "x"}] * 51, "at most 50"),
        ([{"content": "x" * 301}], "longer than 300"),
        ([{"id": "1" * 41, "content": "x"}], "longer than"),
        ([{"content": " "}], "no content"),
        ([{"content": "x", "status": "done"}], "items"),
    ],
)
def test_what_is_refused_changes_nothing(items: list[dict[str, Any]], complaint: str) -> None:
    lists = TodoLists()
    use(lists, items=[{"content": "kept"}])
    with pytest.raises(BadInput, match=complaint):
        use(lists, items=items)
    assert "kept" in use(lists)


def test_a_list_of_the_largest_size_is_taken() -> None:
    items = [{"id": f"{n:040}", "content": "x" * 300} for n in range(50)]
    assert use(TodoLists(), items=items).endswith("\n0 of 50 done")


def test_the_lists_longest_unused_are_let_go() -> None:
    lists, item = TodoLists(), [TodoItem(content="x")]
    for n in range(1_000):
        lists.update(str(n), item, merge=False)
    assert lists.get("0")
    lists.update("0", item, merge=True)
    lists.update("new", item, merge=False)
    assert [name for name in ("0", "1", "2", "new") if lists.get(name)] == ["0", "2", "new"]
