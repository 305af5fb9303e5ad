"""Decide whether a command line takes back what an earlier one did: the same program with the opposite verb.

`npm uninstall x` takes `npm install x` back, `git tag -d v1` the tag, `dropdb shop` the database. The verbs
are those that programs use; the object must be the earlier one's. Nothing is parsed for safety.
"""

from __future__ import annotations

import re
from functools import cached_property, lru_cache

from whet.late import late_pattern

PARTS = late_pattern(r"&&|\|\||;|\n")
"""Separates the parts of a command line."""
_TEXT = late_pattern(r"(?:-m|--message)[= ]*(?:'[^']*'|\"[^\"]*\")")
_WORD = late_pattern(r"[+-]?[\w./@:~-]+")
_GLUED = late_pattern(r"^(create|drop|add|del)(?=[a-z]{2})|(?<=[a-z]{2})(add|del)$")
_WRAPPERS = frozenset(("sudo", "npx", "bundle", "exec"))
_VERBS = 4
_MAKE_WORDS = "install i add create new run apply up put push set enable init clone make tag start deploy"
_MAKES = frozenset(_MAKE_WORDS.split())
_BACK: dict[str, frozenset[str]] = {
    **dict.fromkeys(
        ("rm", "remove", "delete", "del", "drop", "uninstall", "destroy", "down", "purge"), _MAKES
    ),
    **dict.fromkeys(("kill", "stop", "revoke", "withdraw"), frozenset(("new", "start", "run", "grant"))),
    "close": frozenset(("create", "open", "reopen")),
    "reopen": frozenset(("close",)),
    "downgrade": frozenset(("upgrade",)),
    "rollback": frozenset(("migrate", "upgrade", "apply")),
    "undo": frozenset(("set", "apply", "scale", "restart")),
    "reset": frozenset(("add", "commit", "cherry-pick", "merge", "rebase", "pull", "am")),
    "restore": frozenset(("add", "rm")),
    "checkout": frozenset(("rm",)),
}
"""A verb that takes back, and the verbs that it takes back."""
_HINT = late_pattern(
    r"\b(?:git|rm|rmdir|mv|unlink|sed|perl|" + "|".join(_BACK) + r")\b|\b(?:drop|del)[a-z]|[a-z](?:del)\b"
    r"|\s-\w\b|--(?:reverse|unset|abort|delete)\b|\b(?:un|um|dis|de)-?[a-z]{3}"
)
_PREFIX = late_pattern(r"(?:un|dis|de|u(?=m))-?([a-z]{3,})$")
_WHOLE = frozenset(("down", "destroy", "downgrade", "rollback", "reset", "stop"))
"""These may name no object: they take back the last work of their program."""
_FLAGS = frozenset(("-R", "--reverse", "--unset", "--abort", "--delete", "-d", "-D"))
_RUNNING = frozenset(("run", "up", "start", "new"))
_ANSWERS = frozenset(["get", "list", "ls", "show", "describe", "status", "logs", "ps", "inspect"])
_WORD_EDITS = frozenset(("sed", "mv", "perl", "git"))


def may_undo(command: str) -> bool:
    """Return whether a command line has a word that could undo something; quick."""
    return _HINT.search(command) is not None


def reverses(done: str, command: str, *, was_used: bool) -> bool:
    """Return whether a part of `command` takes back a part of `done`.

    `was_used`: other work was done between them, so what was started (`docker run`) had served its purpose.
    """
    for new in _split(command):
        for old in _split(done):
            if old.words[0] == new.words[0] and _takes_back(old, new, was_used):
                return True
    return False


class _Part:
    """The words of a part of a command line. Each is compared with many others, so what is read is kept."""

    def __init__(self, words: list[str]) -> None:
        self.words = words

    @cached_property
    def verbs(self) -> list[tuple[str, frozenset[str]]]:
        """The first verbs that take something back, each with the verbs that it takes back."""
        firsts = ((verb, _BACK.get(verb) or _stem(verb)) for verb in self.names[: 2 * _VERBS])
        return [(verb, forward) for verb, forward in firsts if forward]

    @cached_property
    def has_flag(self) -> bool:
        """Whether an option is one that takes back."""
        return not _FLAGS.isdisjoint(self.words)

    @cached_property
    def opposites(self) -> frozenset[str]:
        """The options with the other sign: `+x` for `-x`."""
        signs = {"-": "+", "+": "-"}
        return frozenset(signs[word[0]] + word[1:] for word in self.words if word[0] in signs)

    @cached_property
    def sorted_operands(self) -> list[str]:
        """The operands in an order that doesn't depend on their places."""
        return sorted(self.operands)

    @cached_property
    def plain(self) -> list[str]:
        """The words behind the program that aren't options."""
        return [word for word in self.words[1:] if word[0] not in "-+"]

    @cached_property
    def names(self) -> list[str]:
        """The plain words in lower case, each with its pieces (`db:migrate`, db, migrate)."""
        return [part.lower() for word in self.plain for part in (word, *re.split("[:-]", word))]

    @cached_property
    def operands(self) -> list[str]:
        """The program and the plain words in pieces, as `s/x/y/` holds x and y."""
        return re.findall(r"[\w.]+", " ".join(word for word in self.words if word[0] != "-"))


@lru_cache(maxsize=256)
def _split(command: str) -> list[_Part]:
    """Return each part of a command line that has any words."""
    parts = PARTS.split(_TEXT.sub("", command[:2_000]))
    return [_Part(words) for words in map(_split_part, parts) if words]


def _split_part(part: str) -> list[str]:
    words = _WORD.findall(part)
    while words and words[0] in _WRAPPERS:
        words = words[1:]
    if words and (match := _GLUED.search(words[0])):
        verb, rest = match[0], words[0].replace(match[0], "", 1)
        words = [rest, verb, *words[1:]]
    return words


def _takes_back(old: _Part, new: _Part, was_used: bool) -> bool:
    if _flips_option(old, new) or _swaps_words(old, new):
        return True
    for verb, forward in new.verbs:
        if verb in old.names:
            continue
        if len(old.plain) > 1 and [word for word in new.plain if word.lower() != verb] == old.plain:
            return True  # the same words after a verb that takes back: `ufw delete allow 80`
        made = forward & set(old.names[: 2 * _VERBS])
        if not made or (was_used and made <= _RUNNING):
            continue
        objects = [
            word
            for word in new.plain
            if verb not in re.split("[:-]", word.lower()) and not re.match(r"HEAD[~^@]|ORIG_HEAD$|\d+$", word)
        ]
        if not objects:
            return verb in _WHOLE
        # `deploy/web` is what the earlier call named as `deploy web`
        is_named = set(objects[-1].split("/")) <= set(old.plain)
        return is_named or objects[-1] in old.plain or objects[-1].lower() in old.names
    return False


def _stem(verb: str) -> frozenset[str]:
    """Return the verb that one with a prefix of reversal takes back: `unblock`, `disable`, `detach`,
    `umount`."""
    match = _PREFIX.match(verb)
    return frozenset((match[1], f"at{match[1]}", f"en{match[1]}")) if match else frozenset()


def _flips_option(old: _Part, new: _Part) -> bool:
    """Return whether the later command differs by an option that takes back: `-R`, or `-` instead of `+`."""
    if not new.has_flag and new.opposites.isdisjoint(old.words):
        return False
    added = [word for word in new.words if word not in old.words]
    gone = [word for word in old.words if word not in new.words]
    if len(added) != 1 or len(new.words) < 3 or any(word in _ANSWERS for word in new.words):
        return False
    word = added[0]
    if word in _FLAGS:
        return all(item[0] == "-" or item == old.words[-1] for item in gone)
    return len(gone) == 1 and {word[0], gone[0][0]} == {"-", "+"} and word[1:] == gone[0][1:]


def _swaps_words(old: _Part, new: _Part) -> bool:
    """Return whether two words changed places: `mv a b` and `mv b a`, `s/x/y/` and `s/y/x/`."""
    if old.words[0] not in _WORD_EDITS or old.sorted_operands != new.sorted_operands:
        return False
    differ = [pair for pair in zip(old.operands, new.operands, strict=True) if pair[0] != pair[1]]
    return len(differ) == 2 and differ[0] == differ[1][::-1]
