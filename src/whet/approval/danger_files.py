"""Judge commands that destroy, overwrite or expose files: rm, find -delete, dd, chmod, mv, tee, mkfs and
similar.

Each rule examines the words of one simple command and the folder it runs in, and yields findings: a level
and a reason. No finding means that the rule has no objection, not that the command is harmless.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Sequence

from whet.approval.paths import (
    RUN_BY_OTHERS,
    WRITING,
    Zone,
    absolute_path,
    is_run_by_others,
    is_vital,
    within,
    zone_of,
)
from whet.approval.risk import CommandSetting, Finding, Irreversible, Lasting
from whet.late import late_pattern
from whet.shell.options import has_option, operands
from whet.shell.programs import by_name, program
from whet.shell.sed import parse_sed_call
from whet.shell.words import Word, literal, unknown

_DELETING: dict[Zone, str] = {"unknown": "can't tell what it deletes", "whet": "deletes from Whet's own home"}
Rule = Callable[[Sequence[Word], CommandSetting], Iterator[Finding]]


def judge_write(word: Word, setting: CommandSetting) -> Finding:
    """Judge writing to the file that `word` names."""
    if word.dynamic and (not word.prefix or ".." in word.text):
        return "dangerous", "can't tell where it writes"
    path, cwd, scope = word.prefix if word.dynamic else word.text, setting.cwd, setting.scope
    zone = zone_of(path, cwd, scope)
    level, reason = WRITING[zone]
    full = absolute_path(path, cwd) if zone == "workspace" else None
    if full is not None and is_run_by_others(full, scope):
        level, reason = "dangerous", RUN_BY_OTHERS
    return level, f"{reason}: {word.plain}" if reason else ""


def judge_deletion(word: Word, setting: CommandSetting, *, recursive: bool) -> Iterator[Finding]:
    """Judge deleting what `word` names."""
    scope = setting.scope
    if is_vital_target(word, setting):
        yield (
            ("forbidden" if recursive else "dangerous"),
            f"deletes {word.plain}, which the system or your home needs",
        )
        return
    if word.dynamic and not (word.prefix and ".." not in word.text and not word.prefix.endswith("/.")):
        yield "dangerous", f"can't tell what it deletes: {word.plain}"
        return
    zone = zone_of(word.prefix if word.dynamic else word.text, setting.cwd, scope)
    if zone == "disk":
        yield "forbidden", f"destroys a disk: {word.plain}"
    elif zone not in ("workspace", "temp", "null"):
        reason = _DELETING.get(zone, "deletes outside the workspace")
        yield "dangerous", f"{reason}: {word.plain}" if zone != "hooks" else Lasting("deletes from .git")
    full = absolute_path(word.text, setting.cwd)
    if word.glob and re.fullmatch(r"(\./)?\.?\*(\.\*)?/?", word.text):
        yield "dangerous", "deletes everything in the folder"
    elif full is not None and within(scope.workspace, full):
        yield "dangerous", Lasting("deletes the workspace itself")


def is_vital_target(word: Word, setting: CommandSetting) -> bool:
    """Return whether `word` names, or matches everything in, a folder that the machine or the person can't
    lose."""
    if len(word.text) > 4_096:
        return False
    text = re.sub(r"(/(\*|\.\*|\{,\.\}\*|\.\[\^?.*\]\*|\?\*)?)+$", "", word.text) if word.glob else word.text
    if (word.glob and text == "") or word.text.startswith("/*"):
        return True
    if word.glob and re.fullmatch(r"\.?\*", word.text):
        text = "."
    if word.dynamic:
        return False
    full = absolute_path(text or "/", setting.cwd)
    return full is not None and is_vital(full, setting.scope)


def _rm(words: Sequence[Word], setting: CommandSetting) -> Iterator[Finding]:
    recursive = has_option(words, "rR", "recursive") or any(w.may_be_flag and w.dynamic for w in words)
    if has_option(words, "rR", "recursive"):
        yield "dangerous", "deletes folders with all that is in them"
    if has_option(words, "", "no-preserve-root"):
        yield "forbidden", "switches off the guard around /"
    for word in operands(words):
        yield from judge_deletion(word, setting, recursive=recursive)


def _unlink(words: Sequence[Word], setting: CommandSetting) -> Iterator[Finding]:
    for word in operands(words, "sn"):
        yield from judge_deletion(word, setting, recursive=False)


def _find(words: Sequence[Word], setting: CommandSetting) -> Iterator[Finding]:
    starts: list[Word] = []
    for word in words:
        if word.text.startswith(("-", "(", "!")):
            break
        starts.append(word)
    texts = {word.text for word in words}
    if _destroys(words) and texts & {"-exec", "-execdir", "-ok", "-okdir"}:
        yield "dangerous", "deletes or overwrites every file that find finds"
    for at, word in enumerate(words):
        if word.text == "-delete":
            yield "dangerous", "deletes every file that find finds"
            bare = len(words) == len(starts) + 1
            for start in starts:
                if bare and is_vital_target(start, setting):
                    yield "forbidden", f"deletes {start.plain}"
        elif word.text in ("-fprint", "-fprint0", "-fls", "-fprintf") and at + 1 < len(words):
            yield judge_write(words[at + 1], setting)


def _destroys(words: Sequence[Word]) -> bool:
    """Return whether a word is the name of a program that destroys its operands."""
    return any("destroys" in program(re.sub(r"^(/usr)?/bin/(?=rm$)", "", w.text)).kinds for w in words)


def _dd(words: Sequence[Word], setting: CommandSetting) -> Iterator[Finding]:
    for word in words:
        if word.text.startswith("of="):
            yield judge_write(word.after(3), setting)


def judge_disk_wipe(words: Sequence[Word], setting: CommandSetting) -> Iterator[Finding]:
    """mkfs and similar: forbidden on a disk, dangerous on an image file."""
    yield "dangerous", "makes a new file system or wipes one"
    for word in operands(words):
        if zone_of(word.text, setting.cwd, setting.scope) == "disk":
            yield "forbidden", f"destroys a disk: {word.plain}"


_OPENS_TO_ALL = late_pattern(r"[0-7]?[0-7]?[0-7]?[2367]|(?:\S*,)?[ugoa]*[oa][ugoa]*[+=][rxXst]*w\S*")


def _mode(words: Sequence[Word], setting: CommandSetting) -> Iterator[Finding]:
    """chmod, chown, chgrp."""
    recursive = has_option(
        [w for w in words if re.match(r"-{1,2}[a-zA-Z]*R|--rec", w.text)], "R", "recursive"
    )
    if recursive:
        yield "dangerous", "changes permissions or owners of whole folders"
    arguments = [w for w in words if not re.match(r"-[a-zA-Z]*[A-Zcfvh]|--", w.text)]
    if arguments and re.search(r"[ug]?\+[rwx]*s|^[2467]\d{3}$", arguments[0].text):
        yield "dangerous", "sets a program to run with its owner's rights"
    # `find -exec` and xargs give it more files than its line names.
    many = recursive or any("{}" in word.text for word in words) or len(arguments) == 1
    if many and arguments and _OPENS_TO_ALL.fullmatch(arguments[0].text):
        yield "dangerous", Irreversible("lets every user change whole folders")
    for word in arguments[1:]:
        if recursive and is_vital_target(word, setting):
            yield "forbidden", f"changes the permissions of {word.plain}"
        else:
            yield judge_write(word, setting)


def _write_rule(valued: str, operand_slice: slice) -> Rule:
    """Return the rule for a program that writes the given slice of its operands."""

    def rule(words: Sequence[Word], setting: CommandSetting) -> Iterator[Finding]:
        for word in operands(words, valued)[operand_slice]:
            yield judge_write(word, setting)

    return rule


def _judge_last_operand(words: Sequence[Word], setting: CommandSetting) -> Iterator[Finding]:
    """cp, install, ln: the last operand, or the target of -t; every folder that install -d makes."""
    arguments = operands(words, "mgoS")
    targets = arguments if any(w.text in ("-d", "--directory") for w in words) else arguments[1:][-1:]
    for at, word in enumerate(words):
        if word.text in ("-t", "--target-directory") and at + 1 < len(words):
            targets = [words[at + 1]]
        elif word.text.startswith("--target-directory="):
            targets = [word.after(19)]
    for word in targets:
        yield judge_write(word, setting)


def _mv(words: Sequence[Word], setting: CommandSetting) -> Iterator[Finding]:
    yield from _judge_last_operand(words, setting)
    arguments = operands(words, "tS")
    if arguments and arguments[-1].text == "/dev/null":
        yield "dangerous", "moves files to where they are lost"
    for word in arguments[:-1] or arguments:
        yield from judge_deletion(word, setting, recursive=True)


def _in_place(words: Sequence[Word], setting: CommandSetting) -> Iterator[Finding]:
    """sed -i and perl -i: the files are overwritten."""
    if any(re.match(r"-[a-zA-Z]*i|--in-place", w.text) for w in words):
        for word in operands(words, "ef")[0 if any(w.text == "-e" for w in words) else 1 :]:
            yield judge_write(word, setting)


def _judge_sed(words: Sequence[Word], setting: CommandSetting) -> Iterator[Finding]:
    yield from _in_place(words, setting)
    script = parse_sed_call(words)
    if script.commands is None:
        yield "dangerous", "a sed script that can't be read"
    for sed_command in script.commands or ():
        if sed_command.runs:
            yield "dangerous", "sed's e command runs programs"
        elif sed_command.name in "wW":
            yield judge_write(literal(sed_command.given), setting)


_MAX_SCRIPT_CHARS = 2_000
_AWK_WRITES = late_pattern(r'print[^;}\n]*?>>?\s*("[^"]*"(?![\s]*["\w$(])|[^\s;}]+)')


def _awk(words: Sequence[Word], setting: CommandSetting) -> Iterator[Finding]:
    for word in words:
        if re.search(r"\bsystem\s*\(|\|&?\s*getline|\|\s*\"|\"\s*\|", word.text):
            yield "dangerous", "awk runs other programs"
        for match in _AWK_WRITES.finditer(word.text[:_MAX_SCRIPT_CHARS]):
            target = re.fullmatch(r'"([^"]*)"', match[1])
            yield judge_write(literal(target[1]) if target else unknown(match[1]), setting)


def _ln(words: Sequence[Word], setting: CommandSetting) -> Iterator[Finding]:
    """A link to an outside path allows writes there that can't be recognised before the link exists."""
    yield from _judge_last_operand(words, setting)
    arguments = operands(words, "tS")
    cwd = setting.cwd
    if (
        has_option(words, "s", "symbolic")
        and arguments[1:]
        and cwd
        and (to := absolute_path(arguments[-1].text, cwd))
    ):
        cwd = to if os.path.isdir(to) else os.path.dirname(to)  # a relative link is resolved from this folder
    for word in arguments[:-1] or arguments:
        zone = "unknown" if word.dynamic else zone_of(word.text, cwd, setting.scope)
        if zone in ("startup", "hooks", "whet", "root", "disk", "outside"):
            yield "dangerous", f"makes a link to {word.plain}, through which it can be changed"


def _cp(words: Sequence[Word], setting: CommandSetting) -> Iterator[Finding]:
    is_linking = has_option(words, "sl", "symbolic-link", "link")
    yield from (_ln if is_linking else _judge_last_operand)(words, setting)


def _fd(words: Sequence[Word], setting: CommandSetting) -> Iterator[Finding]:
    if has_option(words, "xX", "exec", "exec-batch") and _destroys(words):
        yield "dangerous", "deletes or overwrites every file that fd finds"


FILE_RULES: dict[str, Rule] = by_name(
    {
        "fd fdfind": _fd,
        "rm grm": _rm,
        "unlink rmdir trash srm shred": _unlink,
        "find gfind": _find,
        "dd": _dd,
        "chmod chown chgrp setfacl": _mode,
        "cp": _cp,
        "install": _judge_last_operand,
        "ln": _ln,
        "patch": _write_rule("pdFBDiorVYz", slice(0, 1)),
        "rsync": _write_rule("eBTfM", slice(-1, None)),
        "uniq xxd": _write_rule("fswclgo", slice(1, 2)),
        "mv": _mv,
        "tee touch mkdir": _write_rule("smd", slice(None)),
        "truncate": _write_rule("srA", slice(None)),
        "sed gsed": _judge_sed,
        "perl": _in_place,
        "awk gawk mawk": _awk,
    }
)
