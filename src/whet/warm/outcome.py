"""Judge how a tool call went from what was recorded of it.

The evidence is the error flag that dispatch stored, the exit code (as the command means it: `grep` with 1
found nothing), the exit codes of a pipeline's parts, and the fields of a JSON result that report success or
error. Other words of an output decide nothing: what failed in words of its own only a review can see.
`aftermath.py` judges a call by later calls.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Any, Literal

from whet.agent.test_runs import read_counts
from whet.approval.readonly import only_reads
from whet.contract.texts import NOT_JSON, shared_decoder
from whet.contract.tools import tags_of
from whet.late import late_pattern
from whet.shell.words import literal
from whet.store.calls import StoredCall

Outcome = Literal["ok", "failed", "corrected", "undone", "objected", "denied", "unknown"]
"""ok; failed: it did not do its task; corrected: it worked but was repeated with fixed arguments; undone: its
changes were reverted; objected: the person rejected it; denied: not allowed; unknown: no evidence."""


_NOT_RUN = {"denied": "denied", "interrupted": "unknown", "cancelled": "unknown"}


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# The long expressions are text: `re` compiles each when a call first needs it, and few turns need them all.
# Programs whose exit code 1 is an answer:
_ANSWERS_1 = _words(
    "grep egrep fgrep zgrep rg ag diff cmp test [ [[ pgrep expr which type false systemctl pidof let"
    " colordiff sdiff look"
)
_GIT_1 = (
    r"\bgit\b[^|;&]*\s(?:grep|diff\b.*--(?:exit-code|quiet|no-index)"
    r"|merge-base\s+--is-ancestor|check-ignore)\b"
)
_COMMAND_1 = r"(?:^|[|;&\n])\s*(?:!\s*)?command\s+-[vV]\s[^|;&\n]*$"
_WRAPPERS = _words("sudo env time nice nohup command exec stdbuf timeout then do")
# Runners count tests that could not run as errors.
_BROKEN = r"\b[1-9]\d* errors?\b|\berrors=[1-9]"
_ERROR_FIELD = late_pattern(r"(?:error|errors|errormessage|errortype|errorcode|iserror|exception|fault)$")
_FAILED_STATUS = late_pattern(r"(?i)(?:error|fail(?:ed|ure)?)$")
_TESTS_FAILED = (1, 101)
_ENDED_EARLY = (0, 141)
"""Success, and the signal that a writer gets whose reader has ended."""
_SEPARATORS = late_pattern(r"\|\||&&|;|\n|\|&?|&(?![>\d])")
_QUOTED = late_pattern(r"'[^']*'|\"(?:[^\"\\]|\\.)*\"")
_ASSIGNMENT = late_pattern(r"[A-Za-z_]\w*=\S*$")


def judge_alone(
    call: StoredCall, arguments: dict[str, Any], *, is_reviewed: bool = False
) -> tuple[Outcome, str]:
    """Judge a call by its own record. Returns the outcome and a reason of a few words for a person.

    `arguments` are the call's. `is_reviewed`: a review read the call and did not point at it. A command that
    ended with 0 is then fine, whatever the parts of its pipeline and its JSON output say.
    """
    kind = call.error_kind
    if kind in _NOT_RUN:
        return ("denied", "not let through") if kind == "denied" else ("unknown", kind)
    if call.result is None:
        return "unknown", "no result"
    if kind and kind != "exit":
        return "failed", kind.replace("_", " ")
    if "command" in tags_of(call.name) or call.exit_code is not None:
        command = arguments.get("command")
        command = command if isinstance(command, str) else ""
        if call.exit_code:
            return _judge_exit(command, call.exit_code, call.result)
        return ("ok", "exit 0") if is_reviewed else _judge_success(command, call)
    if trouble := find_json_error(call.result):
        return "failed", trouble
    return "ok", "no error flag"


def _judge_success(command: str, call: StoredCall) -> tuple[Outcome, str]:
    """Judge a command that ended with 0."""
    text = call.result or ""
    if call.effects is not None and call.effects.pipeline:
        return _judge_pipeline(command, call.effects.pipeline, text)
    trouble = "" if read_program(command)[1] else find_json_error(text)
    return ("failed", f"exit 0, but {trouble}") if trouble else ("ok", "exit 0")


def _judge_pipeline(command: str, codes: tuple[int, ...], text: str) -> tuple[Outcome, str]:
    """Judge a pipeline by the exit codes of its parts. A reader that ends early ends the writer before it."""
    parts = re.split(r"(?<!\|)\|&?(?!\|)", _QUOTED.sub("_", command))[-len(codes) :]
    why_ok = "each part of the pipe ended with 0"
    for part, code in zip(parts, codes, strict=False):
        if code in _ENDED_EARLY:
            continue
        outcome, reason = _judge_exit(part, code, text)
        if outcome == "failed":
            program = next(programs_of(part), "")
            return outcome, f"exit 0, but {program} ended with {reason}"
        why_ok = reason
    return "ok", why_ok


@lru_cache(maxsize=1_024)
def read_program(command: str) -> tuple[str, bool]:
    """Return a command's first program, or an empty string, and whether the command shows data. Kept, since a
    command is compared with those near it."""
    program = next(programs_of(command), "")
    return program, _is_showing(program, command)


def _is_showing(program: str, command: str) -> bool:
    """Return whether a command begins with a program that only reads: its output is data."""
    words = _SEPARATORS.split(command, maxsplit=1)[0].split()
    names = [word.strip("(){}!").rpartition("/")[2] for word in words]
    return program in names and only_reads(
        [literal(program), *map(literal, words[names.index(program) + 1 :])]
    )


def _judge_exit(command: str, code: int, text: str) -> tuple[Outcome, str]:
    last = next(reversed(list(programs_of(command))), "")
    answers = last in _ANSWERS_1 or (last == "git" and re.search(_GIT_1, command) is not None)
    if code == 1 and answers:
        return "ok", f"{last} answers no with exit 1"
    if code == 1 and re.search(_COMMAND_1, command):
        return "ok", "command -v answers no with exit 1"
    counts = read_counts(command, text) if code in _TESTS_FAILED else None
    if counts is not None and counts.failed and not re.search(_BROKEN, text):
        return "ok", "the tests ran and report failures"
    return "failed", f"exit {code}"


_json_decoder = shared_decoder(dict[str, Any])


def find_json_error(text: str) -> str:
    """Return the error that a JSON object reports, in a few words, or an empty string."""
    if text.lstrip()[:1] != "{":
        return ""
    try:
        fields = _json_decoder.decode(text.strip())
    except NOT_JSON:
        return ""
    names = {re.sub(r"[^a-z]", "", name.lower()): name for name in fields}
    values = {key: fields[name] for key, name in names.items()}
    verdict = [values.get(name) for name in ("success", "succeeded", "ok")]
    for name, value in zip(("success", "succeeded", "ok"), verdict, strict=True):
        if value is False or (isinstance(value, str) and value.lower() == "false"):
            return f"{name} is false"
    for value in (values.get("status"), values.get("statuscode"), values.get("code")):
        number = int(value) if isinstance(value, str) and value.isdecimal() and len(value) == 3 else value
        if isinstance(number, int) and 400 <= number < 600:
            return f"its status is {number}"
    status = values.get("status")
    if isinstance(status, str) and _FAILED_STATUS.match(status):
        return f"status is {status[:40]}"
    if True in verdict or values.get("data") or values.get("result"):
        return ""
    return next(
        (f"{name[:40]} is {word}" for key, name in names.items() if (word := _judge_field(key, values[key]))),
        "",
    )


def _judge_field(key: str, value: object) -> str:
    """Return "set" or "true" if a field of a JSON object reports an error, else an empty string."""
    # A text in the plural is a heading, and a number counts.
    kinds = (dict, list) if key.endswith("s") else (dict, list, str)
    if not value or not _ERROR_FIELD.search(key):
        return ""
    return "true" if value is True else "set" if isinstance(value, kinds) else ""


def programs_of(command: str) -> Iterator[str]:
    """Yield the programs that a command line names, roughly and in order; quoting is respected.

    A guess for reading exit codes, never for deciding what may run.
    """
    for part in _SEPARATORS.split(_QUOTED.sub("_", command[:2_000])):
        for word in part.split():
            word = word.strip("(){}!")
            if (
                not word
                or word.startswith("-")
                or _ASSIGNMENT.match(word)
                or word in _WRAPPERS
                or word.isdigit()
            ):
                continue
            yield word.rpartition("/")[2]
            break
