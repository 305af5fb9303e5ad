"""Decide whether the next try of a command shows that the one before it had done nothing.

A program that ends with 0 may have failed in any language. The agent's next call shows it: it runs the same
program again, and the change supplies what the first output had named, or the first output counted nothing
and the second one something. The next item of a list is no such retry: its output has the same words.
"""

from __future__ import annotations

import re
from difflib import SequenceMatcher

from whet.late import late_pattern
from whet.warm.outcome import read_program

_MAX_LINES = 6
_MIN_SHARED_WORDS = 0.25
_MIN_LIKENESS = 0.6
_MAX_MESSAGE_LINES = 3
_NO_OUTPUT = ("", "(no output)")
# The lines that the shell's tool adds below a command's output.
_NOTES = late_pattern(
    r"(?:(?:^|\n)\[(?:no output, exit 0|the next command begins in [^\n]*|cd to [^\n]*)\])+\s*$"
)
_INLINE = (["-c"], ["-e"], ["-"])
_MASK = late_pattern(r"^\s*sleep\s+\S+\s*(?:;|&&)|(?:\s*(?:\|\||;)\s*(?:true|:|echo\b[^;&|]*))+\s*$")
_TOKEN = late_pattern(r"[\w./@:=-]+")
_WORD = late_pattern(r"[^\W\d_]{2,}")
_COUNT = late_pattern(r"(?<![\w.:-])\d+(?![\w:-]|\.\d)")
_ASKS = late_pattern(r"(?i)[\"']\s*select\b|\b(?:wc|count)\b")
_COMPLAINT = late_pattern(r"(?m)^\D{2,60}?(?::\s|：)\s*\D|(?<!\w)['\"«„“‘`「][^\n]{1,60}['\"»“”’`」]|!")


def find_vain_try(first: tuple[str, str], second: tuple[str, str]) -> str:
    """Return why the first call (command, output) did nothing, or an empty string. Both ended with 0."""
    (command, text), (again, result) = first, second
    before, after = (_TOKEN.findall(_MASK.sub("", line)) for line in (command, again))
    is_part = set(before) < set(after)
    if before == after or not (is_part or _runs_again(before, after)):
        return ""
    if text.count("\n") >= _MAX_LINES or not text.strip() or not result.strip():
        return ""
    return _compare_outputs((command, text, before), (again, result, after))


def own_output(result: str | None) -> str:
    """Return a command's own output, without what its tool adds; empty if it printed nothing."""
    text = _NOTES.sub("", result or "")
    return "" if text.strip() in _NO_OUTPUT else text


def is_same_run(command: str, later: str) -> bool:
    """Return whether two commands are the same but for what hides an exit code, and show no data."""
    return _MASK.sub("", command) == _MASK.sub("", later) and not read_program(command)[1]


def find_vain_run(first: tuple[str, str], second: tuple[str, str], *, by_command: bool) -> str:
    """Return why a command (command, output) did nothing that ran again unchanged after other calls.
    `by_command`: one of those was a command; an edit changes what a program prints without mending it."""
    text, result = first[1], second[1]
    if _counts_flip(text, result):
        return "it counted nothing, and did so after other calls"
    is_short = text.strip().count("\n") < _MAX_MESSAGE_LINES and bool(text.strip())
    is_mended = by_command and is_short and not is_alike(first, second)
    return "it ended with a message, and worked after other calls" if is_mended else ""


def _compare_outputs(first: tuple[str, str, list[str]], second: tuple[str, str, list[str]]) -> str:
    """Return why the first of two near calls (command, output, words) did nothing, or an empty string."""
    (command, text, before), (again, result, after) = first, second
    is_part = set(before) < set(after)
    is_same = is_alike((command, text), (again, result))
    is_countable = before[1:2] not in _INLINE or (is_same and _WORD.search(text))
    if is_countable and _counts_nothing(command, text) and _counts(again, result)[:1] not in ([], ["0"]):
        return "it counted nothing, and the next try did"
    if is_same or text.lstrip()[:1] in ("{", "["):
        return ""
    gone, new = set(before) - set(after), set(after) - set(before)
    named = [word for word in _TOKEN.findall(text) if len(word) > 2]
    if any(word.endswith(f"/{name}") for word in new for name in named):
        return "it named a file, and the next try gave its path"
    is_swap = len(gone) == len(new) == 1
    if is_swap and _is_option_value(command, *gone) and gone <= set(named):
        return "it named an option's value, and the next try had another"
    max_lines = _MAX_MESSAGE_LINES if is_part else 1
    if text.strip().count("\n") >= max_lines or not (is_part or (is_swap and len(before) == len(after))):
        return ""
    if is_part and any(_is_value(word) for word in new):
        return "it ended with a message, and the next try with more to go on did the work"
    is_tried = is_part or _is_option_value(command, *gone)
    is_counted = (
        is_tried and not _counts(command, text) and any(count.strip("0") for count in _counts(again, result))
    )
    is_message = _is_complaint(text, gone) and not _is_complaint(result, new)
    return "it ended with a message, and the next try did the work" if is_counted or is_message else ""


def _is_value(word: str) -> bool:
    """Return whether a word is a value, such as a path, a setting or a name with a digit, and not a mode of
    the program (a flag, a verb)."""
    return word == "sudo" or (not word.startswith("-") and re.search(r"[\d/.=:@]", word) is not None)


def _counts_flip(text: str, result: str) -> bool:
    """Return whether two outputs have the same words, and one of the counts is no longer zero."""
    if _COUNT.sub("#", text.strip()) != _COUNT.sub("#", result.strip()):
        return False
    return any(
        old == "0" != new for old, new in zip(_COUNT.findall(text), _COUNT.findall(result), strict=True)
    )


def _is_complaint(text: str, gone: set[str]) -> bool:
    """Return whether a short output has the form of a complaint in any language: a prefix with a colon, a
    name in quotation marks, or a word of the command that the next try no longer has."""
    return _COMPLAINT.search(text) is not None or any(len(word) > 2 and word in text for word in gone)


def is_alike(first: tuple[str, str], second: tuple[str, str]) -> bool:
    """Return whether the outputs of two calls (command, output) share words other than those of the
    commands."""
    words = {*_TOKEN.findall(first[0]), *_TOKEN.findall(second[0])}
    return _share_words(first[1], second[1], words) >= _MIN_SHARED_WORDS


def is_again(command: str, later: str) -> bool:
    """Return whether the later command runs the earlier one's program again, and not only in another mode:
    more than its options differ."""
    before, after = _TOKEN.findall(command), _TOKEN.findall(later)
    differ = set(before) ^ set(after)
    return _runs_again(before, after) and any(not word.startswith("-") for word in differ)


def _runs_again(before: list[str], after: list[str]) -> bool:
    """Return whether a command runs a program again: the same script, or similar inline code."""
    if before[1:2] in _INLINE:
        likeness = SequenceMatcher(None, before, after, autojunk=False).ratio()
        return before[:2] == after[:2] and likeness >= _MIN_LIKENESS
    size = 1 if "/" in before[0] else 2
    return before[:size] == after[:size]


def _counts_nothing(command: str, text: str) -> bool:
    """Return whether the first count of an output is zero, and not the answer to a query."""
    return _ASKS.search(command) is None and _counts(command, text)[:1] == ["0"]


def _counts(command: str, text: str) -> list[str]:
    """Return the whole numbers of an output but for those that the command names."""
    named = re.findall(r"\d+", command)
    return [number for number in _COUNT.findall(text) if number not in named]


def _is_option_value(command: str, word: str) -> bool:
    return re.search(rf"(?:^|\s)--?[\w-]+[= ]{re.escape(word)}(?!\S)", command) is not None


def _share_words(first: str, second: str, arguments: set[str]) -> float:
    """Return the share of words that two outputs have in common, without the words of the commands."""
    old, new = (
        set(_WORD.findall(" ".join(word for word in text.split() if word.strip("'\"`:,.") not in arguments)))
        for text in (first, second)
    )
    return len(old & new) / len(old | new) if old | new else 1.0
