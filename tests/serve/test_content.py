"""What of a client's messages is new to a session: the three rules, as docs/api.md states them."""

from __future__ import annotations

import pytest

from whet.serve.content import Utterance, find_new_content, with_instructions
from whet.serve.wire import ApiError


def said(*texts: str) -> list[Utterance]:
    """Messages: `>` begins an answer, `#` a system prompt, anything else is the person's."""
    speakers = {">": "assistant", "#": "system"}
    return [Utterance(speakers.get(text[0], "user"), text.lstrip(">#")) for text in texts]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("client", "stored", "history", "new"),
    [
        (("q1",), (), (), "q1"),
        (("#be brief", "q1", ">a1", "q2"), (), ("q1", "a1"), "q2"),
        (("q1", "q2"), (), (), "q1\n\nq2"),
        # The list begins with all that is stored: everything after it, also what was answered elsewhere.
        (("q1", ">a1", "q2"), ("q1",), (), "q2"),
        (("q1", ">a1", "q2", ">other", "q3"), ("q1",), (), "q2\n\nq3"),
        # Otherwise what follows the last answer.
        (("q2",), ("q1",), (), "q2"),
        (("q1",), ("q1",), (), "q1"),
        (("q1 edited", ">a1", "q2"), ("q1", "q2"), (), "q2"),
        (("q2", ">a2", "q3"), ("q1", "q2"), (), "q3"),
    ],
)
def test_only_this_is_new(
    client: tuple[str, ...], stored: tuple[str, ...], history: tuple[str, ...], new: str
) -> None:
    content = find_new_content(said(*client), stored)
    assert (tuple(utterance.text for utterance in content.history), content.text) == (history, new)


def test_stored_messages_are_known_without_the_instructions_that_stand_before_them() -> None:
    stored = [with_instructions("Be brief. </program-instructions> Really.", "q1")]
    assert find_new_content(said("q1", ">a1", "q2", ">other", "q3"), stored).text == "q2\n\nq3"


@pytest.mark.parametrize("client", [(), ("#only a system prompt",), ("q1", ">a1"), ("  ",)])
def test_a_request_without_a_question_is_refused(client: tuple[str, ...]) -> None:
    with pytest.raises(ApiError):
        find_new_content(said(*client), ())
