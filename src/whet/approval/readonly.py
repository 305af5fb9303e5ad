"""Decide which simple commands only read: programs, and the options with which they are harmless.

The programs are listed in shell/tables; this module holds the checks that need more than words. A command
that neither covers is asked about, so both may be incomplete but must never be wrong. Options are judged
by exclusion only for programs whose complete set of options was reviewed (GNU coreutils 9, findutils 4,
ripgrep 14, git 2.4x, util-linux 2.40).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from whet.shell.options import has_any, has_option, operands
from whet.shell.programs import ProgramWords, Reading, by_name, git_verb, program
from whet.shell.sed import parse_sed_call
from whet.shell.words import Word, in_line, name_of


def only_reads(words: Sequence[Word]) -> bool:
    """Return whether a simple command (program first) certainly changes nothing and contacts no one."""
    first = words[0]
    if first.dynamic or first.glob or ("/" in first.text and not is_standard_path(first.text)):
        return False
    name = name_of(first)
    facts = program(name)
    if "reads" in facts.kinds:
        return True
    texts = [word.text for word in words[1:]]
    if "versioned" in facts.kinds and texts == ["--version"]:
        return True
    check = _CHECKS.get(name)
    if check is None and facts.reads_if is None:
        return False
    if any(word.may_be_flag for word in words[1:]):
        return False
    return check(words[1:]) if check is not None else fits_reading(facts.reads_if, words[1:])


def fits_reading(reading: Reading | None, words: Sequence[Word]) -> bool:
    """Return whether the words after a program or verb are such that it only reads."""
    if reading is None or has_any(words, reading.without):
        return False
    if reading.only is not None and any(word.text not in reading.only for word in words):
        return False
    if reading.most is not None and len(operands(words, reading.values)) > reading.most:
        return False
    if reading.line and not re.fullmatch(reading.line, in_line(words)):
        return False
    if reading.verbs is None or not words:
        return reading.verbs is None or reading.bare
    return words[0].text in reading.verbs


def is_standard_path(path: str) -> bool:
    """Return whether a program's path is in one of the standard installation folders."""
    return re.fullmatch(r"(/usr(/local)?|/opt/homebrew)?/s?bin/[^/]+", path) is not None


_SED_PLAIN = frozenset("{}#=dDFgGhHlnNpPqQsxyz:btTvaic")


def _sed_only_reads(words: Sequence[Word]) -> bool:
    """Return whether sed only prints, deletes and substitutes: no -i, no script file, no w, r or e."""
    options = (word.text for word in words if word.text[:1] == "-" and word.text not in ("-", "-e"))
    script = parse_sed_call(words)
    if script.dynamic or not all(
        re.fullmatch(r"-[nErzu]+|--quiet|--regexp-extended", option) for option in options
    ):
        return False
    commands = script.commands or ()
    return bool(commands) and all(command.name in _SED_PLAIN and not command.runs for command in commands)


def _awk_only_reads(words: Sequence[Word]) -> bool:
    """Return whether awk gets its program on the line and only reads the files that the line names."""
    at = 0
    while at < len(words) and words[at].text.startswith("-"):
        if not re.match(r"-[Fv]", words[at].text):
            return False
        at += 2 if len(words[at].text) == 2 else 1
    if at >= len(words) or len(words[at].text) > 2_000:
        return False
    if any(word.dynamic or word.glob for word in words[: at + 1]):  # a value may become the program
        return False
    # Search in strings as well: a quote in a regular expression hides the beginning of a string.
    return not re.search(r"system|getline|@|\||ENVIRON|ARG[CV]|print.*>", words[at].text, re.DOTALL)


_GIT_PLAIN = ProgramWords("--no-pager -P -C --no-optional-locks --literal-pathspecs")


def _git_only_reads(words: Sequence[Word]) -> bool:
    """Return whether git's verb only reads with these arguments, and no option writes a file or runs a
    program."""
    at = 0
    while at < len(words) and words[at].text in _GIT_PLAIN:
        at += 2 if words[at].text == "-C" else 1
    if at >= len(words):
        return False
    verb, arguments = words[at].text, words[at + 1 :]
    if words[at].dynamic or has_option(arguments, "", "output", "ext-diff", "exec", "upload-pack"):
        return False
    facts = git_verb(verb)
    # `--no-list` takes back the `--list` before it.
    takes_back = any(word.text.startswith("--no-") for word in arguments)
    return facts.reads or (not takes_back and fits_reading(facts.reads_if, arguments))


_CHECKS: dict[str, Callable[[Sequence[Word]], bool]] = by_name(
    {"sed gsed": _sed_only_reads, "awk gawk mawk": _awk_only_reads, "git": _git_only_reads}
)
