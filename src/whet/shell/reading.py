"""Read which programs a command runs and which files its text names, for all callers alike.

Wrappers are looked through. Nothing is run and no file is examined. If the syntax is doubtful
(`is_doubtful`), the plain words of the text count in addition to the parsed ones.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from fnmatch import fnmatchcase
from functools import lru_cache
from itertools import accumulate

import msgspec

from whet.late import late_pattern
from whet.shell.code import find_interpreter_code
from whet.shell.parse import parse
from whet.shell.programs import UNKNOWN, program, read_git_verbs
from whet.shell.spellings import find_operands, may_match, shape_of
from whet.shell.state import Invocation
from whet.shell.words import Word, fill_own_texts, fill_variables, name_of
from whet.shell.wrappers import unwrap

_MAX_NESTING, _MAX_COMMANDS = 6, 50
_MAX_STARTS = 40
_LONGEST = 100_000
_MAX_NAME_CHARS = 255
_MIN_ATTACHED_CHARS = 3  # `-la` are two options
# The characters of a path in code. Parts filled in at run time may be anything.
_IN_CODE = late_pattern(
    r"(?:[\w.~*-]|\$?\{[^{}\s]*\}|\$\w+|%[sd])*[./](?:[\w./*-]|\$?\{[^{}\s]*\}|\$\w+|%[sd])+"
)
_LITERAL = late_pattern(r"(['\"])([^'\"\s]+)\1")
_FILLED_IN = late_pattern(r"\$?\{[^{}\s]*\}|%[sd]|\$\{[^}]*\}|\$\w+|\$\([^)]*\)|`[^`]*`")


Span = tuple[int, int, bool]
"""The position of a quoted string, or of a here-document (True)."""


class ReadPart(msgspec.Struct, frozen=True):
    """One simple command: its words, program first, with known variables filled in.

    `text` is its source with redirections, and `bare` the same with its strings masked. `code` is the code
    it passes to an interpreter. `guessed`: it runs only if a wrapper's options have one of their possible
    meanings. `shapes` are patterns of what its words may become, empty for known ones.
    """

    words: tuple[str, ...]
    text: str
    bare: str
    code: str = ""
    guessed: bool = False
    shapes: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The program's bare name."""
        return self.words[0].rpartition("/")[2]

    @property
    def line(self) -> str:
        """Its words in one line, starting with the program's bare name."""
        return " ".join((self.name, *self.words[1:]))

    @property
    def scripts(self) -> Sequence[str]:
        """The words that may name a script which it runs: its program, and the operands of an interpreter."""
        facts = program(self.name.rstrip("0123456789."))
        is_interpreter = facts.code is not None or "shell" in facts.kinds
        runs_files = self.words[0] in (".", "source") or is_interpreter
        return self.words if runs_files else self.words[:1]

    @property
    def lines(self) -> list[str]:
        """The lines that a rule which forbids must look at: the words as they are; without the options before
        the first operand (`git -C DIR push`), which may take a value or not; each command that a script, a
        program that nothing is known of or one that runs others may have been given to run; and the command
        of git that a verb which no table describes may run (`git subtree push`)."""
        names = ((start, self.words[start].rpartition("/")[2]) for start in self._starts)
        return [line for start, name in names for line in self._lines(start, name)]

    def may_match(self, pattern: str) -> bool:
        """Return whether a rule's pattern may match it when it runs: a word known only then may become a
        word of the rule. A program is unknown by a pattern (`/usr/bin/s?q`), or by the output of a command
        that names it (`$(which seq)`)."""
        program_name = re.split(r"[\s*?\\]", pattern, maxsplit=1)[0]
        return bool(program_name) and any(self._may_match(at, pattern, program_name) for at in self._starts)

    def _may_match(self, start: int, pattern: str, program_name: str) -> bool:
        words, shapes = list(self.words[start:]), list(self.shapes[start:])
        words[0] = words[0].rpartition("/")[2]
        if shapes[0] and _may_become(self.words[start], program_name):
            rule_program = pattern.split(maxsplit=1)[0]
            return may_match(pattern, [program_name, *words[1:]], [rule_program, *shapes[1:]])
        is_literal = not shapes[0] or shapes[0].rpartition("/")[2].startswith("git-")
        return is_literal and may_match(pattern, words, shapes)

    @property
    def _starts(self) -> Sequence[int]:
        facts = program(self.name.rstrip("0123456789."))
        runs_words = (
            facts.code is not None or facts.wraps is not None or facts.kinds & {"shell", "runs-words"}
        )
        return range(len(self.words) if facts == UNKNOWN or runs_words else 1)[:_MAX_STARTS]

    def _lines(self, start: int, name: str) -> list[str]:
        words = self.words[start + 1 :]
        texts = [(name, *words[at:]) for at in find_operands(words, _MAX_STARTS)]
        if name.startswith("git-"):
            texts += [("git", name[4:], *text[1:]) for text in texts]
        verbs = read_git_verbs()
        foreign = (text for text in texts if text[0] == "git" and text[1:] and text[1] not in verbs)
        others = [("git", *text[2:]) for text in foreign if not text[1].startswith("-")]
        return [" ".join(text) for text in (*texts, *others)]


class CommandReading(msgspec.Struct, frozen=True):
    """A whole command.

    `bare` is its text with `_` for the characters of strings and here-documents (blanks stay), except for
    text that a shell runs. `strings` are their positions; none is inside another. `files` are the words
    that may name files, `attached` the ends of options that may (`-fnames.txt`).
    """

    parts: tuple[ReadPart, ...]
    bare: str
    strings: tuple[Span, ...]
    files: tuple[str, ...]
    attached: tuple[str, ...]
    is_doubtful: bool

    @property
    def programs(self) -> set[str]:
        """The programs and scripts that it runs in its own shell or as a process, as named in the text."""
        word_lists = (
            part.words[part.words[0] in (".", "source") :] for part in self.parts if not part.guessed
        )
        return {words[0] for words in word_lists if words}


@lru_cache(1_000)
def read(command: str) -> CommandReading:
    """Read a command's text. Never raises for bad text. Only the first 100,000 characters are parsed."""
    reader = _Reader()
    bare, strings = reader.take(command[:_LONGEST], 0)
    if reader.is_doubtful or len(command) > _LONGEST:
        reader.words.extend(re.split(r"[\s;|&<>()]+", command))
    files = dict.fromkeys(reader.files())
    attached = dict.fromkeys(end for word in reader.words for end in _attached_names(word))
    return CommandReading(
        tuple(reader.parts), bare, strings, tuple(files), tuple(attached), reader.is_doubtful
    )


def file_names(words: Iterable[str]) -> Iterator[str]:
    """Yield the files that words may name: values of assignments and options, and paths or literals in code.

    For a name that is completed at run time, a pattern that it matches is yielded too.
    """
    for word in words:
        if re.search(r"[\s()]", word) and not re.fullmatch(r"[^\s()]*\$\([^()]*\)[^\s()]*", word):
            candidates = [*_IN_CODE.findall(word), *(match[2] for match in _LITERAL.finditer(word))]
        else:
            option, _, value = word.partition("=")
            name = value if value and "$" not in option else word
            candidates = [] if name.startswith("-") else [name.strip("<>;&|\"'")]
        for name in candidates:
            yield name
            if "${" in name and (filled := fill_own_texts(name)) != name:
                yield filled
            pattern = re.sub(r"\*+", "*", _FILLED_IN.sub("*", name))
            if pattern != name and pattern.strip("*./"):
                yield pattern


def _attached_names(word: str) -> Iterator[str]:
    """Yield the ends of a word of short options that may be a file's name: any after a letter or more."""
    letters = re.match(r"-\w{1,10}", word)
    for at in range(2, letters.end() + 1) if letters else ():
        if len(word) - at >= _MIN_ATTACHED_CHARS:
            yield word[at:]


class _Reader:
    """Collects the parts of a text and of the texts that it runs."""

    def __init__(self) -> None:
        self.parts: list[ReadPart] = []
        self.words: list[str] = []
        self.is_doubtful = False
        self._values: dict[str, str] = {}

    def take(self, text: str, nesting: int) -> tuple[str, tuple[Span, ...]]:
        """Add a text. Returns it with its strings masked, and their positions."""
        script = parse(text, (), "~")
        self.is_doubtful = self.is_doubtful or bool(script.doubts) or nesting > _MAX_NESTING
        for name, word in (
            *script.assignments,
            *(pair for i in script.invocations for pair in i.assignments),
        ):
            self._values[name] = fill_variables(word.text, self._values)
        self.words += (fill_variables(word.text, self._values) for word in script.all_words)
        invocations = [(i, _find_inner_commands(i)) for i in script.invocations if i.words]
        strings = tuple(dict.fromkeys(sorted(script.strings)))
        bare = _mask_strings(text, strings, {run for _, (_, runs) in invocations for run in runs})
        for invocation, (commands, _) in invocations:
            span = slice(invocation.start, invocation.end)
            for words, guessed in commands:
                texts = tuple(fill_variables(word.text, self._values) for word in words)
                code = _find_code(words, invocation)
                shapes = tuple(map(shape_of, words))
                self.parts.append(ReadPart(texts, text[span], bare[span], code, guessed, shapes))
            if invocation.stdin is not None:
                input_text = invocation.stdin.text
                self.words += (
                    [input_text]
                    if any(input_text == part.code for part in self.parts)
                    else input_text.split()
                )
        for run in (run for _, (_, runs) in invocations for run in runs if nesting <= _MAX_NESTING):
            self.take(run, nesting + 1)
        ends = accumulate((end for _, end, _ in strings), max, initial=0)
        return bare, tuple(pair for pair, end in zip(strings, ends, strict=False) if pair[0] >= end)

    def files(self) -> Iterator[str]:
        """Yield the words that may name files, except bare program names."""
        words = list(self.words)
        for part in self.parts:
            if not part.guessed and "/" not in part.words[0] and part.words[0] in words:
                words.remove(part.words[0])
        return file_names(words)


def _may_become(text: str, program_name: str) -> bool:
    """Return whether a word that is known only at run time may be a program of that name. One without a
    literal character can be anything, and counts as none."""
    has_command = "$(" in text or "`" in text
    for word in re.split(r"[\s;|&()<>`\"'$]+", text) if has_command else (text,):
        name = word.rpartition("/")[2][:_MAX_NAME_CHARS]
        pattern = re.sub(r"\$?\{[^{}]*\}|\$\w+", "*", name)
        if re.sub(r"\[[^\[\]]*\]|[*?]", "", pattern) and fnmatchcase(program_name, pattern):
            return True
    return False


def _find_inner_commands(invocation: Invocation) -> tuple[list[tuple[Sequence[Word], bool]], list[str]]:
    """Return the commands that a command runs, itself first, each with whether it is a guess; and the texts
    it runs."""
    commands: list[tuple[Sequence[Word], bool]] = []
    runs: list[str] = []
    todo: list[tuple[Sequence[Word], bool]] = [(invocation.words, False)]
    while todo and len(commands) < _MAX_COMMANDS:
        words, guessed = todo.pop(0)
        commands.append((words, guessed))
        inside = unwrap(words)
        if inside is None:
            continue
        todo += ((command, guessed) for command in inside.commands)
        todo += ((command, True) for command in inside.maybe)
        runs += (word.text for word in inside.texts)
        if inside.fed and invocation.stdin is not None:
            runs.append(invocation.stdin.text)
    return commands, runs


def _find_code(words: Sequence[Word], invocation: Invocation) -> str:
    """Return the code that an interpreter gets on the line or as its input."""
    codes = find_interpreter_code(name_of(words[0]), words[1:])
    if codes == [] and invocation.stdin is not None:
        codes = [invocation.stdin]
    return "\n".join(word.text for word in codes or ())


def _mask_strings(text: str, strings: Iterable[Span], runs: Collection[str]) -> str:
    """Mask the strings that contain blanks, except those that are run."""
    for start, end, is_document in strings:
        string_text = text[start:end]
        inside = f"{string_text.rpartition(chr(10))[0]}\n" if is_document else string_text[1:-1]
        is_computed = string_text[:1] == '"' and re.search(r"\$\(|`", string_text)
        if (
            re.search(r"\s", string_text)
            and not is_computed
            and inside not in runs
            and inside.replace('\\"', '"') not in runs
        ):
            text = text[:start] + re.sub(r"\S", "_", string_text) + text[end:]
    return text
