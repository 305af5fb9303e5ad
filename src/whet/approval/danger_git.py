"""What git does that can't be taken back or that leaves the machine: pushes, lost work, rewritten history,
settings that make git run programs. Findings as in danger_files.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence

from whet.approval.facts import ProgramWords, git_verb
from whet.approval.paths import absolute
from whet.approval.readonly import has_any, has_option, only_reads
from whet.approval.repository import runs
from whet.approval.risk import CommandPlace, Finding, Lasting
from whet.approval.shell_words import Word, in_line, literal


def _git_push(rest: Sequence[Word]) -> str:
    forced = has_option(rest, "fd", "force", "delete", "mirror", "prune") or any(
        w.text[:1] in "+:" for w in rest
    )
    return "overwrites or deletes what others may have" if forced else "sends commits to another machine"


_GIT_PROGRAMS = re.compile(
    r"(alias\.|core\.(hookspath|sshcommand|pager|editor|fsmonitor|askpass|gitproxy|worktree|attributesfile)"
    r"|diff\..*\.?(external|command|textconv)|(merge|filter|difftool|mergetool|pager|gpg|sequence|browser|man)\."
    r"|interactive\.|trailer\.|tar\.|submodule\..*\.update|core\.alternaterefs|guitool|sendemail"
    r"|credential|include|url\.|http\.proxy|protocol|uploadpack|receive\.|remote\..*\.(uploadpack|receivepack|vcs))",
    re.IGNORECASE,
)


def git(words: Sequence[Word], setting: CommandPlace) -> Iterator[Finding]:
    """Judge a git command: its own options, then its verb."""
    at = 0
    while at < len(words) and words[at].text.startswith("-"):
        if _sets_program(words[at].text, words[at + 1].text if at + 1 < len(words) else ""):
            yield "dangerous", "git is told to run another program"
        at += 2 if words[at].text in _GIT_VALUED else 1
    if at >= len(words):
        return
    verb, rest = words[at], words[at + 1 :]
    if verb.dynamic:
        yield "dangerous", "can't tell what git does"
        return
    yield from _by_repository(verb.text, rest, words[:at], setting)
    if _runs_another(verb.text, rest):
        yield "dangerous", "git is told to run another program"
    if verb.text == "push":
        yield "dangerous", f"git push: {_git_push(rest)}"
    else:
        yield from _by_table(verb.text, rest)
    if verb.text == "config":
        yield from _git_config([w.text for w in rest])


_WITHOUT_REPOSITORY = ProgramWords("clone init version help --version --help credential")


def _by_repository(
    verb: str, rest: Sequence[Word], options: Sequence[Word], setting: CommandPlace
) -> Iterator[Finding]:
    """Judge by the settings of the repository that git would work on."""
    folder, git_dir = setting.cwd, ""
    for option, value in zip(options, [*options[1:], literal("")], strict=False):
        if option.text == "-C":
            folder = None if value.dynamic else absolute(value.text, folder)
        elif option.text == "--git-dir" or option.text.startswith("--git-dir="):
            git_dir = value.text if option.text == "--git-dir" else option.text.partition("=")[2]
    if verb in _WITHOUT_REPOSITORY:
        return
    if folder is None:
        yield "dangerous", "can't tell which repository's settings git follows"
    elif os.path.isdir(folder):
        named = absolute(git_dir, folder) if git_dir else ""
        found = runs(
            folder, verb, reads=only_reads([literal("git"), literal(verb), *rest]), git_dir=named or ""
        )
        if found:
            yield "dangerous", f"the repository's own settings make git run a program: {found}"


def _by_table(verb: str, rest: Sequence[Word]) -> Iterator[Finding]:
    known = git_verb(verb)
    always = known.risky is None and not known.told
    risky = known.risky is not None and has_any(rest, known.risky)
    told = known.told and re.search(known.told, in_line(rest))
    only_shown = verb == "clean" and has_option(rest, "n", "dry-run")
    if known.why and (always or risky or told) and not only_shown:
        said = f"git {verb}: {known.why}"
        yield "dangerous", Lasting(said) if known.lasts else said


def _runs_another(verb: str, rest: Sequence[Word]) -> bool:
    """Whether a verb's own options or address make git run a program."""
    if any("ext::" in word.text for word in rest):
        return True
    is_remote = verb in ("clone", "fetch", "pull", "ls-remote", "push", "archive")
    if is_remote and has_option(rest, "u" if verb == "clone" else "", "upload-pack", "receive-pack", "exec"):
        return True
    return verb == "clone" and any(
        _GIT_PROGRAMS.match(word.text.removeprefix("--config=").removeprefix("-c")) for word in rest
    )


_GIT_VALUED = ("-c", "-C", "--git-dir", "--work-tree", "--namespace", "--config-env")


def _sets_program(option: str, value: str) -> bool:
    if option == "-c":
        return _GIT_PROGRAMS.match(value) is not None
    return option == "--config-env" or option.startswith(("--exec-path=", "--config-env="))


def _git_config(rest: list[str]) -> Iterator[Finding]:
    reads = {"--get", "--get-all", "--get-regexp", "--list", "-l", "get", "list", "--show-origin"}
    if reads & set(rest):
        return
    if {"--global", "--system", "--file", "-f", "--edit", "-e"} & set(rest) and len(rest) > 2:
        yield "dangerous", "changes git's settings outside this repository"
    if len(rest) > 1 and any(_GIT_PROGRAMS.match(text) for text in rest):
        yield "dangerous", "git is told to run another program"
