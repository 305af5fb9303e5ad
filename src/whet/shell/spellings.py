"""Compare a command with the words of a rule if some of its words are known only when it runs.

A word of a known text must match the rule's word. An unknown one may become any word that the rule names and
that its known characters allow; a word of the rule that begins with a wildcard names nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from whet.contract.wildcards import matches
from whet.late import late_pattern
from whet.shell.words import Word

GIT_VALUED = ("-c", "-C", "--git-dir", "--work-tree", "--namespace", "--config-env")
"""Git's own options that take the next word."""
_MAX_CHARS = 255
# The last expansion of a word, and the characters after it.
_ENDING = late_pattern(r".*(?:[)}`]|\$(?:\w+|[@*#?$!-]))([^)}`$]*)", re.DOTALL)
_CAN_DEFINE_VERBS = ("alias.*", "include.*", "includeif.*")


def shape_of(word: Word) -> str:
    """Return a pattern of the texts that a word may become, or an empty string if its text is known."""
    if not word.dynamic and not word.glob:
        return ""
    shape = word.text
    if word.dynamic:
        ending = _ENDING.fullmatch(shape)
        shape = f"{word.prefix.partition('{')[0]}*{ending[1] if ending else ''}"
    shape = re.sub(r"[?*+@!]\(.*", "*", shape, flags=re.DOTALL)
    return re.sub(r"\[[^]]+\]", "?", shape) if len(shape) <= _MAX_CHARS else "*"


def may_match(pattern: str, words: Sequence[str], shapes: Sequence[str]) -> bool:
    """Return whether a rule's pattern may match a command, program first. `shapes` are those of its words."""
    name = shapes[0].rpartition("/")[2] or words[0]
    if name.startswith("git-"):
        words, shapes = ["git", name[4:], *words[1:]], ["", shapes[0] and name[4:], *shapes[1:]]
    starts = _find_arguments(words)
    if words[0] == "git":
        shapes, starts = _read_git_options(words, shapes)
    rule_words = _split_rule(pattern)
    return any(shapes) and any(
        _may_spell(rule_words, [words[0], *words[at:]], [shapes[0], *shapes[at:]]) for at in starts
    )


def find_operands(words: Sequence[str], max_count: int = 40) -> list[int]:
    """Return each position at which the operands may begin, because an option may take the next word."""
    positions, states = {0}, [0]
    while states and len(positions) < max_count:
        at = states.pop()
        if words[at : at + 1] and words[at].startswith("-"):
            following = {at + 1, at + 2} - positions
            positions |= following
            states += following
    return [at for at in sorted(positions) if not at or (at < len(words) and not words[at].startswith("-"))]


def _find_arguments(words: Sequence[str]) -> list[int]:
    return [at + 1 for at in find_operands(words[1:])]


def _read_git_options(words: Sequence[str], shapes: Sequence[str]) -> tuple[Sequence[str], list[int]]:
    """Return the shapes of a git command's words, and where its arguments and its verb begin. The verb is
    unknown if a setting on the line may define it."""
    at, is_defined = 1, False
    while at < len(words) and words[at].startswith("-"):
        option, following = words[at], at + 1 if words[at] in GIT_VALUED else at
        if option.startswith("--config-env"):
            is_defined = True
        elif option == "-c" and following < len(words):
            setting = (shapes[following] or words[following]).lower()
            is_defined = is_defined or any(_overlaps(name, setting) for name in _CAN_DEFINE_VERBS)
        at = following + 1
    if is_defined and at < len(words):
        shapes = [*shapes[:at], "*", *shapes[at + 1 :]]
    return shapes, [1, at]


def _split_rule(pattern: str) -> list[str]:
    """Return the words of a rule's pattern. A star at the end of a word also stands for further words."""
    words: list[str] = []
    for word in pattern.split():
        words += [word, "*"] if len(word) > 1 and re.search(r"(?<!\\)\*$", word) else [word]
    return words


def _may_spell(rule_words: Sequence[str], words: Sequence[str], shapes: Sequence[str]) -> bool:
    def follow(number: int, at: int) -> list[tuple[int, int]]:
        if number == len(rule_words):
            return []
        if rule_words[number].strip("*") == "":
            return [(number + 1, at), (number, at + 1)] if at < len(words) else [(number + 1, at)]
        return _follow(rule_words[number], number, at, words[at], shapes[at]) if at < len(words) else []

    return _reaches((len(rule_words), len(words)), follow)


def _reaches(end: tuple[int, int], follow: Callable[[int, int], list[tuple[int, int]]]) -> bool:
    """Return whether steps from the beginning of two sequences lead to the `end` of both."""
    states = [(0, 0)]
    visited: set[tuple[int, int]] = set()
    while states:
        state = states.pop()
        if state == end:
            return True
        if state not in visited:
            visited.add(state)
            states += follow(*state)
    return False


def _follow(rule_word: str, number: int, at: int, word: str, shape: str) -> list[tuple[int, int]]:
    """Return the next positions in the rule and in the command."""
    if not shape:
        return [(number + 1, at + 1)] if matches(rule_word, word) else []
    states: list[tuple[int, int]] = []
    if rule_word[0] not in "*?" and _overlaps(rule_word, shape):
        states.append((number + 1, at + 1))
        if shape.startswith("*") and number:
            states.append((number + 1, at))  # it may become several words
    if shape.startswith("*") and number:
        states.append((number, at + 1))  # or none, or an option
    return states


def _overlaps(rule_word: str, shape: str) -> bool:
    """Return whether a text matches both of two patterns."""
    pattern = re.sub(r"\\.", "?", rule_word[:_MAX_CHARS])

    def follow(at: int, shape_at: int) -> list[tuple[int, int]]:
        char, shape_char = pattern[at : at + 1], shape[shape_at : shape_at + 1]
        if char == "*":
            return [(at + 1, shape_at), (at, shape_at + 1)] if shape_char else [(at + 1, shape_at)]
        if shape_char == "*":
            return [(at, shape_at + 1), (at + 1, shape_at)] if char else [(at, shape_at + 1)]
        is_same = char and shape_char and (char == shape_char or "?" in (char, shape_char))
        return [(at + 1, shape_at + 1)] if is_same else []

    return _reaches((len(pattern), len(shape)), follow)
