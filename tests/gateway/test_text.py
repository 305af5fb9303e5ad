"""Answers in pieces and in the platforms' markup, and files' names: pure functions, any input."""

from __future__ import annotations

import html
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.confirm.vendors.telegram import BadText, parse
from whet.app.received_files import safe_name
from whet.channels.markup import discord_markdown, slack_mrkdwn, telegram_html
from whet.channels.pieces import split_message
from whet.channels.telegram import mentions
from whet.markdown import code_span, escape_markdown

WORDS = st.sampled_from(
    ["a", "word", "```", "```python", "~~~", "\n", "\n\n", " ", "x" * 90, "- item", "**b**", "é\u0301", "<t>"]
)


@pytest.mark.slow
@given(st.lists(WORDS, max_size=120).map("".join), st.integers(200, 400))
def test_pieces_fit_and_lose_nothing_but_white_space(text: str, limit: int) -> None:
    messages = split_message(text, limit)
    assert all(len(piece) <= limit for piece in messages)
    drop = str.maketrans("", "", string.whitespace + "`~")
    rest = iter("".join(messages).translate(drop))  # fences opened again add their language
    assert all(character in rest for character in text.translate(drop))


def test_a_fence_that_is_cut_is_closed_and_opened_again() -> None:
    code = "\n".join(f"line {n}" for n in range(80))
    messages = split_message(f"Before.\n\n```python\n{code}\n```\n\nAfter.", 300)
    assert len(messages) > 2 and messages[0].startswith("Before.") and messages[-1].endswith("After.")
    for piece in messages[1:-1]:
        assert piece.startswith("```python\n") and piece.endswith("\n```")


@given(st.text(st.sampled_from("ab *_~`[]()<>&#|\\\\.-1"), min_size=1))
def test_escaped_text_is_shown_as_it_is(text: str) -> None:
    shown = f"= {text} ="
    assert html.unescape(telegram_html(escape_markdown(shown))) == shown
    assert telegram_html(f"{code_span(text)}").count("<code>") <= 1


@pytest.mark.slow
@given(
    st.lists(WORDS | st.sampled_from(["**", "*", "_", "~~", "`", "[a](https://b.c)", "&", "# h\n"])).map(
        "".join
    )
)
def test_telegrams_html_never_lets_text_become_markup(text: str) -> None:
    written = telegram_html(text)
    assert "<t>" not in written
    try:
        parse(written)
    except BadText as error:
        assert "tag" in str(error)  # marks that overlap: then it is sent as it stands


@pytest.mark.parametrize(
    "text", ["```\n```", "~~~py\n \n~~~", "```\n", " \n", "\u200b", "`\u200b`", "# **\u200b**"]
)
def test_no_platform_is_sent_a_message_in_which_nothing_shows(text: str) -> None:
    assert [telegram_html(text), slack_mrkdwn(text), discord_markdown(text, 2_000)] == ["…"] * 3
    assert telegram_html(f"{text}\n\n<").count("&lt;") == 1
    assert [telegram_html(""), slack_mrkdwn(""), discord_markdown("", 2_000)] == [""] * 3


@pytest.mark.parametrize(
    ("text", "html", "slack"),
    [
        (
            "**b** and *i* and `c<d`",
            "<b>b</b> and <i>i</i> and <code>c&lt;d</code>",
            "*b* and _i_ and `c&lt;d`",
        ),
        ("# Title\n- one", "<b>Title</b>\n• one", "*Title*\n• one"),
        ("```py\na < b\n```", "<pre>a &lt; b</pre>", "```\na &lt; b\n```"),
        ("[x](https://a.b/?c=1&d)", '<a href="https://a.b/?c=1&amp;d">x</a>', "<https://a.b/?c=1&d|x>"),
        (r"\*\*a\*\* \`b\` \# \<t\> \\ \q", "**a** `b` # &lt;t&gt; \\ \\q", "**a** `b` # &lt;t&gt; \\ \\q"),
        ("snake_case_name 2*3*4", "snake_case_name 2*3*4", "snake_case_name 2*3*4"),
    ],
)
def test_markdown_becomes_the_platforms_markup(text: str, html: str, slack: str) -> None:
    assert (telegram_html(text), slack_mrkdwn(text)) == (html, slack)


@given(st.text(max_size=300))
def test_a_files_name_leads_nowhere(name: str) -> None:
    safe = safe_name(name)
    assert safe and len(safe) <= 80 and not safe.startswith(".")
    assert not set(safe) & set("/\\\0\n\u202e") and safe not in (".", "..")


def test_a_mention_is_the_whole_name() -> None:
    assert mentions("hi @Whet_Bot!", "whet_bot") and mentions("@whet_bot", "whet_bot")
    assert not mentions("@whet_botanist", "whet_bot") and not mentions("mail me@whet_bot", "whet_bot")
