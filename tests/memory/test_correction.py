from __future__ import annotations

import pytest

from whet.memory.correction import is_correction

CORRECTIONS = [
    "No, the tests run with ./check, not pytest.",
    "no that's the old host",
    "Nope. It's in config/prod.yaml",
    "That's wrong, the port is 8443.",
    "that is not what I asked for",
    "This didn't work.",
    "It's still wrong",
    "Wrong file!",
    "Don't touch the migrations folder.",
    "please never push to main",
    "stop using sudo for this",
    "You forgot the changelog.",
    "you should have run the linter first",
    "I said in German!",
    "I meant the other repository",
    "I told you to use uv",
    "Actually, the flag is called --seed.",
    "actually it's spelled Müller",
    "Undo that, I want the old layout back",
    "As I said, no emojis.",
    "Hm, no, use the second one",
    "Use tabs instead, please.",
    "use make check, not pytest",
    "Fine, but next time ask before you delete files.",
    "From now on write commit messages in the imperative.",
    "Always run the formatter before you commit.",
    "Remember that staging is called stg-2.",
    "How often do I have to tell you that?",
    "Nein, das ist der falsche Ordner.",
    "Das stimmt nicht.",
    "Bitte nicht auf main pushen",
    "Ab jetzt bitte kurze Antworten.",
    "Non, c'est l'autre fichier",
    "不对，应该用 8443",
    "違います、別のファイルです",
]
NOT = [
    "",
    "yes",
    "No.",
    "no thanks",
    "No problem, go on",
    "No need to run it again",
    "Now add a test for this.",
    "Can you explain why that is?",
    "What's wrong with this code?",
    "Is that wrong?",
    "Thanks, that works!",
    "Why don't the tests pass?",
    "Fix the error: assertion failed, expected 3",
    "The build says:\n> that's wrong\n> no such file",
    "```\nno, this is a log\n```\nwhat does it mean?",
    "Note the time and start the run",
    "nothing else, thanks",
    "Normalise the names in users.csv",
    "stopwatch.py needs a docstring",
    "Do the rest.",
    "Actually, can you also add a flag?",
    "Notify the team when done",
    "Write a story about a dog who never came home",
    "Is there anything you missed?",
]


@pytest.mark.parametrize("text", CORRECTIONS)
def test_a_correction_is_heard(text: str) -> None:
    assert is_correction(text)


@pytest.mark.parametrize("text", NOT)
def test_an_answer_a_question_or_a_task_is_no_correction(text: str) -> None:
    assert not is_correction(text)


def test_hostile_text_is_read_in_no_time() -> None:
    assert not is_correction("a " * 200_000)
    assert not is_correction("```" * 100_000)
    assert not is_correction("use " * 50_000)
