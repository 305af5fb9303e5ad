"""The form of an answer: texts that end it, and JSON that fits a schema."""

from __future__ import annotations

import pytest

from tests.serve.test_reading import refused
from whet.contract.events import Event, StepFinished, StreamRestarted, TextDelta
from whet.contract.messages import Usage
from whet.serve.forms import AnswerFilter, AnswerForm, read_answer_form, read_stop_texts


@pytest.mark.parametrize(
    ("given", "stops"),
    [
        (None, ()),
        ("END", ("END",)),
        (["a", "b"], ("a", "b")),
        ([], ()),
        (["x" * 1_000] * 16, ("x" * 1_000,) * 16),
    ],
)
def test_texts_that_end_an_answer(given: object, stops: tuple[str, ...]) -> None:
    assert read_stop_texts(given, "stop") == stops


@pytest.mark.parametrize("given", [7, {}, "", [""], ["a", 7], ["x" * 1_001], ["a"] * 17])
def test_texts_that_can_end_no_answer_are_refused(given: object) -> None:
    assert refused(lambda: read_stop_texts(given, "stop"))[1] == "stop"


def test_a_form_is_text_an_object_or_a_schema() -> None:
    assert read_answer_form("text", {}, "p") is None and read_answer_form(
        "json_object", None, "p"
    ) == AnswerForm(None)
    assert refused(lambda: read_answer_form("xml", None, "p")) == (
        "answers are text or JSON",
        "p",
        "unsupported_value",
    )
    assert refused(lambda: read_answer_form("json_schema", 7, "p")) == (
        "a JSON format needs a schema",
        "p",
        "invalid_value",
    )
    object_ = AnswerForm(None)
    assert object_.read('Here:\n```json\n{"a": 1}\n```\nDone.') == '{"a": 1}' == object_.read(' {"a": 1} ')
    with pytest.raises(ValueError, match="it is not a JSON object"):
        object_.read("[1]")
    with pytest.raises(ValueError, match="it is not JSON"):
        object_.read("none")
    listed = AnswerForm({"type": "array"})
    assert listed.read("[1]") == "[1]" and '{"type":"array"}' in listed.instructions
    with pytest.raises(ValueError, match="array"):
        listed.read("{}")


def shaped(
    events: list[Event], form: AnswerForm | None = None, *stops: str
) -> tuple[list[str], AnswerFilter, int]:
    """Give the texts that come out, the shaping, and how often it stopped the turn."""
    said: list[str] = []
    stopped: list[int] = []

    def hear(event: object) -> None:
        if not isinstance(event, StepFinished):
            said.append(event.text if isinstance(event, TextDelta) else "restarted")

    shaping = AnswerFilter(hear, form, stops, lambda: stopped.append(1))
    for event in events:
        shaping.event(event)
    return said, shaping, len(stopped)


def texts(*pieces: str) -> list[Event]:
    return [TextDelta(piece) for piece in pieces]


STEP = StepFinished(1, Usage())


def test_an_answer_ends_before_the_first_text_that_ends_it() -> None:
    said, shaping, stopped = shaped(texts("one E", "N", "D two", " three"), None, "STOP", "END")
    assert said == ["one "] and (shaping.found_stop, stopped) == ("END", 1)
    shaping.flush()
    assert said == ["one "], "what follows is kept from the client"
    said, shaping, stopped = shaped(texts("a STOP END"), None, "END", "STOP")
    assert (said, shaping.found_stop, stopped) == (["a "], "STOP", 1)
    assert shaped(texts("END"), None, "END")[0] == []
    said, shaping, stopped = shaped([*texts("so EN"), STEP, *texts("D of it")], None, "END")
    assert (said, shaping.found_stop, stopped) == (["so ", "EN", "D of it"], "", 0)
    said, shaping, _ = shaped(texts("so ", "EN"), None, "END")
    shaping.flush()
    shaping.flush()
    assert said == ["so ", "EN"]
    assert shaped([*texts("x EN"), StreamRestarted("it broke"), *texts("D")], None, "END")[0] == [
        "x ",
        "restarted",
        "D",
    ]
    assert shaped(texts("a", "b"))[0] == ["a", "b"]


def test_an_answer_in_a_form_is_the_last_step_and_comes_when_it_is_whole() -> None:
    form = AnswerForm(None)
    said, shaping, _ = shaped([*texts("I look.", " Now."), STEP, *texts('{"a"', ": 1}")], form)
    shaping.flush()
    assert said == []
    shaping.finish(form)
    assert said == ['{"a": 1}']
    shaping.reset()
    for event in texts("{", "}"):
        shaping.event(event)
    shaping.finish(form)
    assert said == ['{"a": 1}', "{}"]
    said, shaping, _ = shaped([*texts("{"), StreamRestarted("it broke"), *texts("[1]")], form)
    with pytest.raises(ValueError, match="it is not a JSON object"):
        shaping.finish(form)
    assert said == ["restarted"]
