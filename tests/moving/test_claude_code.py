"""Claude Code's titles, and the lines that the program added to a transcript."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.moving.test_transcripts import lines, said
from whet.moving import claude_code

_COMMAND = "<command-message>{0} is running</command-message>\n<command-name>/{0}</command-name>\n{1}"
_ARGUMENTS = "<command-args>{}</command-args>"
_MODEL = _COMMAND.format("model", _ARGUMENTS.format("opus"))
_REVIEW = _COMMAND.format("review", _ARGUMENTS.format("the last\ncommit"))


def block(text: str) -> list[dict[str, str]]:
    return [{"type": "text", "text": text}]


@pytest.mark.parametrize(
    ("titles", "title"),
    [
        ([{"summary": "a"}, {"summary": "b"}], "a"),
        ([{"aiTitle": "a"}, {"aiTitle": "b"}, {"summary": "c"}], "b"),
        ([{"customTitle": "mine"}, {"customTitle": "my own"}, {"aiTitle": "b"}], "my own"),
        ([{"customTitle": 7}, {"aiTitle": None}], "hello"),
    ],
)
def test_a_title_that_the_person_chose_comes_first(tmp_path: Path, titles: list[Any], title: str) -> None:
    kinds = {"summary": "summary", "aiTitle": "ai-title", "customTitle": "custom-title"}
    rows = [{"type": kinds[next(iter(fields))], **fields} for fields in titles]
    past, _ = claude_code.read(lines(tmp_path / "s.jsonl", said("user", "hello"), *rows))
    assert past is not None and past.header.title == title


@pytest.mark.parametrize(
    "rows",
    [
        [said("user", _MODEL), said("user", "<local-command-stdout>Set</local-command-stdout>")],
        [said("user", "[Request interrupted by user]")],
        [said("user", block("[Request interrupted by user for tool use]"))],
        [said("assistant", block("API Error: 529 overloaded"), isApiErrorMessage=True)],
        [said("user", "<bash-input>ls</bash-input>"), said("user", "<bash-stdout>a</bash-stdout>")],
    ],
)
def test_lines_that_the_program_added_are_left_out(tmp_path: Path, rows: list[Any]) -> None:
    path = lines(tmp_path / "s.jsonl", said("user", "why?"), *rows, said("user", "go on"))
    past, _ = claude_code.read(path)
    assert past is not None
    assert [row.message.text for row in past.messages] == ["why?", "go on"]


def test_a_slash_command_that_the_model_answered_is_a_message(tmp_path: Path) -> None:
    path = lines(
        tmp_path / "s.jsonl",
        said("user", _REVIEW),
        said("user", "Review what was asked.", isMeta=True),
        said("assistant", block("It is good.")),
        said("user", "What does <command-name>/x</command-name> mean?"),
        said("user", "Why [Request interrupted by user]?"),
    )
    past, _ = claude_code.read(path)
    assert past is not None
    texts = [row.message.text for row in past.messages]
    assert texts[:2] == ["/review the last\ncommit", "It is good."]
    assert texts[2:] == [
        "What does <command-name>/x</command-name> mean?",
        "Why [Request interrupted by user]?",
    ]


def test_an_answer_counts_once_if_its_request_was_sent_again(tmp_path: Path) -> None:
    def answer(uuid: str, parent: str, message_id: str, text: str, **fields: Any) -> dict[str, Any]:
        return said(
            "assistant", block(text), uuid=uuid, parentUuid=parent, message={"id": message_id}, **fields
        )

    path = lines(
        tmp_path / "s.jsonl",
        said("user", "why?", uuid="u1", parentUuid=None),
        answer("a1", "u1", "m1", "Because"),
        answer("a2", "a1", "m1", "of the"),
        answer("a3", "u1", "m2", "Because of rain."),
        answer("a4", "a3", "m2", "And wind."),
        answer("a5", "u1", "m3", "API Error: 529", isApiErrorMessage=True),
    )
    past, _ = claude_code.read(path)
    assert past is not None
    assert [row.message.text for row in past.messages] == ["why?", "Because of rain.\n\nAnd wind."]
