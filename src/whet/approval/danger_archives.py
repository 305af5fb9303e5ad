"""Judge archivers: whether the archive on their line is written or read follows from the mode or the verb.

Findings as in danger_files.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from whet.approval.danger_files import Rule, judge_write
from whet.approval.risk import CommandSetting, Finding
from whet.shell.options import operands
from whet.shell.programs import by_name
from whet.shell.words import Word

_WRITING_MODES = frozenset("cruA")
_WRITING_LONG = ("--create", "--append", "--update", "--catenate", "--concatenate", "--delete")
# tar's letters that take a value. In an old-style cluster without a dash the values follow in this order.
_VALUED = "fCbTXgKNVHLIF"
_READING_VERBS = frozenset(("l", "t", "x", "e", "b", "h", "i", "lb", "lt", "v", "vb", "p"))


def judge_tar(words: Sequence[Word], setting: CommandSetting) -> Iterator[Finding]:
    """Judge the archive that tar creates or changes, and whether it deletes what it packs."""
    modes: set[str] = set()
    archives: list[Word] = []
    at, is_first = 0, True
    while at < len(words):
        word = words[at]
        if word.text.startswith("--"):
            option, has_value, _ = word.text.partition("=")
            if len(option) > 4 and any(long.startswith(option) for long in _WRITING_LONG):
                modes.add("c")
            elif "--file".startswith(option) and len(option) > 4:
                archives += [word.after(len(option) + 1)] if has_value else words[at + 1 : at + 2]
        elif word.text.startswith("-") or is_first:
            letters = word.text.removeprefix("-")
            cluster = letters if not word.text.startswith("-") else re.split(f"(?<=[{_VALUED}])", letters)[0]
            modes.update(cluster)
            valued = [letter for letter in cluster if letter in _VALUED]
            is_hanging = len(cluster) < len(letters)
            for number, letter in enumerate(valued, 1):
                if letter == "f":
                    hanging = [word.after(len(word.text) - len(letters) + len(cluster))]
                    archives += hanging if is_hanging else words[at + number : at + number + 1]
            at += 0 if is_hanging else len(valued)
        is_first = False
        at += 1
    if modes & _WRITING_MODES:
        for word in archives:
            yield _judge_archive(word, setting)


def judge_zip(words: Sequence[Word], setting: CommandSetting) -> Iterator[Finding]:
    """Judge the archive that zip writes: the first operand, or the value of `-O`."""
    for at, word in enumerate(words):
        if word.text in ("-O", "--out") and at + 1 < len(words):
            yield _judge_archive(words[at + 1], setting)
        elif word.text.startswith("--out="):
            yield _judge_archive(word.after(6), setting)
    for word in operands(words, "bnPstOi", ("--out",))[:1]:
        yield _judge_archive(word, setting)


def judge_7z(words: Sequence[Word], setting: CommandSetting) -> Iterator[Finding]:
    """Judge the archive of a verb that writes (`7z a x.7z`), and the folder that another one unpacks to."""
    arguments = operands(words)
    if arguments and (arguments[0].dynamic or arguments[0].text.lower() not in _READING_VERBS):
        for word in arguments[1:2]:
            yield _judge_archive(word, setting)
    for word in words:
        if re.match("-[oO].", word.text):
            yield _judge_archive(word.after(2), setting)


def _judge_archive(word: Word, setting: CommandSetting) -> Finding:
    """Judge writing an archive. `-` is the output."""
    return ("safe", "") if word.text == "-" else judge_write(word, setting)


ARCHIVE_RULES: dict[str, Rule] = by_name(
    {"tar bsdtar gtar": judge_tar, "zip": judge_zip, "7z 7za 7zr 7zz": judge_7z}
)
