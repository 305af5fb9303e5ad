"""Judge git commands that can't be undone or leave the machine: pushes, lost work, rewritten history,
settings that make git run programs.

Findings as in danger_files.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence

from whet.approval.danger_unknown import judge_unknown
from whet.approval.readonly import only_reads
from whet.approval.repository import find_risky_settings, list_git_commands
from whet.approval.risk import CommandSetting, Diverted, Finding, Lasting, UnknownVerb
from whet.late import late_pattern
from whet.shell.options import before_dashes, has_any, has_option
from whet.shell.programs import ProgramWords, git_verb, read_git_verbs
from whet.shell.spellings import GIT_VALUED
from whet.shell.words import Word, in_line, literal

_GIT_PROGRAMS = late_pattern(
    r"(alias\.|core\.(hookspath|sshcommand|pager|editor|fsmonitor|askpass|gitproxy|worktree|attributesfile)"
    r"|diff\..*\.?(external|command|textconv)|(merge|filter|difftool|mergetool|pager|gpg|sequence|browser|man)\."
    r"|interactive\.|trailer\.|tar\.|submodule\..*\.update|core\.alternaterefs|guitool|sendemail"
    r"|credential|include|url\.|http\.proxy|protocol|uploadpack|receive\.|remote\..*\.(uploadpack|receivepack|vcs))",
    re.IGNORECASE,
)


_RUNS, _RUNS_ANOTHER = "runs another program", "git is told to run another program"
# Options before the verb that only say where it works and how it prints. Commands' pager only prints.
_HARMLESS = ProgramWords(
    "--no-pager -P -p --paginate -C --git-dir --work-tree --namespace --bare --no-optional-locks"
    " --no-lazy-fetch --no-replace-objects --literal-pathspecs --glob-pathspecs --noglob-pathspecs"
    " --icase-pathspecs --version -v --help -h"
)


def judge_git(words: Sequence[Word], setting: CommandSetting) -> Iterator[Finding]:
    """Judge a git command: its own options, then its verb."""
    at = 0
    while at < len(words) and words[at].text.startswith("-"):
        if _sets_program(words[at].text, words[at + 1].text if at + 1 < len(words) else ""):
            yield "dangerous", Diverted(_RUNS_ANOTHER)
        elif words[at].dynamic or words[at].text.partition("=")[0] not in _HARMLESS:
            yield "normal", Diverted("an option before git's verb can change what it does")
        at += 2 if words[at].text in GIT_VALUED else 1
    if at >= len(words):
        yield from _by_repository("help", (), words, setting)
        return
    verb, arguments = words[at], words[at + 1 :]
    if verb.dynamic:
        yield "dangerous", "can't tell what git does"
        return
    yield from _judge_undescribed(verb.text, arguments, setting)
    yield from _by_repository(verb.text, arguments, words[:at], setting)
    if _runs_another(verb.text, arguments):
        yield "dangerous", Diverted(_RUNS_ANOTHER)
    yield from _by_table(verb.text, arguments)
    if git_verb(verb.text).reads and not only_reads([literal("git"), verb, *arguments]):
        yield "normal", Diverted(f"git {verb.text}: an option makes it write a file or run a program")
    reads = only_reads([literal("git"), literal("config"), *arguments])
    if verb.text == "config" and not reads and any(_GIT_PROGRAMS.match(word.text) for word in arguments):
        yield "dangerous", Diverted(_RUNS_ANOTHER)


def _judge_undescribed(verb: str, arguments: Sequence[Word], setting: CommandSetting) -> Iterator[Finding]:
    """Judge a verb that git does not have, or that no table describes: it may be an alias or a program."""
    if verb not in list_git_commands(setting.scope.workspace):
        reason = f"git {verb} may be an alias of another command of git, or do its work"
        yield "dangerous", UnknownVerb(reason)
    if verb not in read_git_verbs():
        yield from judge_unknown([literal(f"git-{verb}"), *arguments])


_WITHOUT_REPOSITORY = ProgramWords("clone init version help --version --help credential")


def _by_repository(
    verb: str, arguments: Sequence[Word], options: Sequence[Word], setting: CommandSetting
) -> Iterator[Finding]:
    """Judge by the settings of the repository that git would use."""
    folder, git_dir = setting.cwd, ""
    for option, value in zip(options, [*options[1:], literal("")], strict=False):
        if option.text == "-C":
            folder = _change_folder(folder, value)
        elif option.text == "--git-dir" or option.text.startswith("--git-dir="):
            git_dir = value.text if option.text == "--git-dir" else option.text.partition("=")[2]
    if verb in _WITHOUT_REPOSITORY and not _shows_manual([*options, literal(verb), *arguments]):
        return
    if folder is None:
        yield "dangerous", "can't tell which repository's settings git follows"
    elif os.path.isdir(folder):
        git_dir = os.path.join(folder, git_dir) if git_dir else ""
        reads = only_reads([literal("git"), literal(verb), *arguments])
        running, fetching = find_risky_settings(folder, verb, reads=reads, git_dir=git_dir)
        if running:
            yield "dangerous", f"the repository's own settings make git run a program: {running}"
        elif fetching:
            yield "normal", f"git may fetch missing objects from the repository's remote: {fetching}"


def _shows_manual(words: Sequence[Word]) -> bool:
    """Return whether git may show a manual, with a program that settings name: `git version --help` does."""
    return len(words) > 1 and any(word.may_be_flag or word.text in ("help", "--help", "-h") for word in words)


def _change_folder(folder: str | None, value: Word) -> str | None:
    """Return the folder after `-C`, with the links and `..` that git follows, or None if it is unknown."""
    if value.dynamic or value.glob or (folder is None and not value.text.startswith("/")):
        return None
    return os.path.join(folder or "/", value.text)


def _by_table(verb: str, arguments: Sequence[Word]) -> Iterator[Finding]:
    facts = git_verb(verb)
    problems = [why for pattern, why in facts.told.items() if re.search(pattern, in_line(arguments))]
    only_shown = verb == "clean" and has_option(before_dashes(arguments), "n", "dry-run")
    if facts.why and (facts.risky is None or has_any(arguments, facts.risky)) and not only_shown:
        problems.append(facts.why)
    for why in problems:
        reason = f"git {verb}: {why}"
        kind = Diverted if why == _RUNS else Lasting if facts.lasts else str
        pushes = verb != "push" and why == git_verb("push").why
        yield "dangerous", UnknownVerb(reason) if pushes else kind(reason)


def _runs_another(verb: str, arguments: Sequence[Word]) -> bool:
    """Return whether a verb's own options or address make git run a program."""
    if any("ext::" in word.text for word in arguments):
        return True
    return verb == "clone" and any(
        _GIT_PROGRAMS.match(word.text.removeprefix("--config=").removeprefix("-c")) for word in arguments
    )


def _sets_program(option: str, value: str) -> bool:
    if option == "-c":
        return _GIT_PROGRAMS.match(value) is not None
    return option == "--config-env" or option.startswith(("--exec-path=", "--config-env="))
