"""Notes as text: entries, the section of pitfalls, single edits that leave the rest as it was typed."""

from __future__ import annotations

import pytest

from whet.memory import notes
from whet.memory.notes import plan_change as plan
from whet.memory.requests import MemoryAction, MemoryRequest, Refused

TYPED = """# Memory

Some prose of mine,
over two lines.

- a list item
  that goes on
* another

## Pitfalls
- make test hangs

## Mine
<!-- not an entry -->
- own section
"""


def after(text: str, action: MemoryAction, content: str = "", old_text: str = "") -> str:
    return plan(text, MemoryRequest(action, "memory", content, old_text), 2_000)[0]


def test_entries_are_list_items_and_paragraphs() -> None:
    rows = [(entry.text, entry.section) for entry in notes.parse_entries(TYPED)]
    assert rows == [
        ("Some prose of mine,\nover two lines.", ""),
        ("a list item\nthat goes on", ""),
        ("another", ""),
        ("make test hangs", "pitfalls"),
        ("own section", "mine"),
    ]


def test_an_edit_touches_its_entry_only() -> None:
    added = after(TYPED, "add", "new one")
    assert added.replace("- new one\n", "") == TYPED
    assert added.index("- new one") < added.index("## Pitfalls")
    changed = after(TYPED, "replace", "changed", "another")
    assert changed == TYPED.replace("* another", "- changed")
    assert after(TYPED, "remove", old_text="a list item") == TYPED.replace(
        "- a list item\n  that goes on\n", ""
    )


def test_a_pitfall_goes_to_its_section() -> None:
    text, edit = plan("", MemoryRequest("add", content="Pitfall: make test hangs; use make check"), 500)
    assert text == "# Memory\n\n## Pitfalls\n\n- make test hangs; use make check\n"
    assert edit.after == "Pitfall: make test hangs; use make check"
    again = after(text, "add", "a fact")
    assert again.index("a fact") < again.index("## Pitfalls")


def test_the_last_pitfall_takes_its_heading_with_it() -> None:
    pitfall = "Pitfall: make test hangs; use make check"
    for text in ("# Memory\n", "# Memory\n\n- a fact\n", "# Memory\n\n- a fact\n\n## Mine\n- own\n"):
        added = after(text, "add", pitfall)
        assert after(added, "remove", old_text="make test hangs") == text
        two = after(added, "add", "Pitfall: tar needs -z")
        assert after(two, "remove", old_text="make test hangs").count("## Pitfalls") == 1
    assert after(TYPED, "remove", old_text="make test hangs") == TYPED.replace(
        "## Pitfalls\n- make test hangs\n\n", ""
    )
    for typed in ("# Memory\n\n## pitfalls\n- x y\n", "# Memory\n\n## Pitfalls\n<!-- mine -->\n- x y\n"):
        assert after(typed, "remove", old_text="x y") == typed.replace("- x y\n", ""), (
            "a person's own words stay"
        )


@pytest.mark.parametrize("content", ["", "  \n ", "# heading", "x" * 800])
def test_what_is_no_entry_is_refused(content: str) -> None:
    with pytest.raises(Refused):
        after("", "add", content)


def test_changes_and_carrying_them_over() -> None:
    before = "- one\n- two\n- three\n"
    theirs = "- one\n- two, changed by hand\n- three\n"
    ours = "- one\n- two\n- three\n- four\n"
    assert notes.diff_entries(before, theirs) == [notes.EntryChange("two", "two, changed by hand")]
    merged, lost = notes.apply_changes(theirs, "memory", notes.diff_entries(before, ours))
    assert (merged, lost) == ("- one\n- two, changed by hand\n- three\n- four\n", [])
    _, lost = notes.apply_changes(theirs, "memory", [notes.EntryChange("two", "zwei")])
    assert lost == [notes.EntryChange("two", "zwei")]


def test_a_note_keeps_its_dashes() -> None:
    """Only a bullet at its beginning is none of it."""
    for text in ("`git branch` → “* main / dev”", "Tea - not coffee - at four", "2 + 2 is four"):
        assert plan("", MemoryRequest("add", "memory", text), 2_000)[1].after == text
    assert plan("", MemoryRequest("add", "memory", "- Tea at four"), 2_000)[1].after == "Tea at four"
