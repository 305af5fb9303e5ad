"""Judge how a tool call went from its own result.

Evidence in this order: the error flag that dispatch stored, the exit code (as the command means it: `grep`
with 1 found nothing), fields of a JSON result that report success or error, and phrases by which a shell
tool reports that it failed. Text that a call only shows (a file, a log, a page) is data and says nothing
about the call. `aftermath.py` judges a call by later events.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Any, Literal

from whet.contract.texts import NOT_JSON, shared_decoder
from whet.contract.tools import tags_of
from whet.late import late_pattern
from whet.store.calls import StoredCall
from whet.warm.masking import (
    find_empty_file,
    find_hidden_exit,
    find_http_error,
    find_masked_error,
    find_reported_failure,
    is_masked,
)

Outcome = Literal["ok", "failed", "corrected", "undone", "objected", "denied", "unknown"]
"""ok; failed: it did not do its task; corrected: it worked but was repeated with fixed arguments; undone and
objected: the person reverted or rejected it; denied: not allowed; unknown: no evidence."""


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
# Programs that show what they find: error words in their output belong to that data.
_SHOWS = _words(
    "cat head tail less more grep egrep fgrep zgrep zcat rg ag sed awk journalctl dmesg git diff jq sort uniq"
    " cut tac nl strings find ls echo printf man history docker kubectl"
)
# Of these, the ones whose verb decides: with any other verb they act, and their output is about themselves.
_SHOWING_VERBS = {
    "git": _words("log show diff grep blame status ls-files ls-tree ls-remote cat-file bisect shortlog help"),
    "docker": _words("logs ps inspect images image exec top events run"),
    "kubectl": _words("logs get describe exec explain top events config"),
}
EDITS_IN_PLACE = r"\bsed\s+-i\b"
# A command that names failures was run to show them.
_ABOUT_FAILURES = r"(?i)(?<![a-z])(?:error|failed|failure)s?(?![a-z])"
_WRAPPERS = _words("sudo env time nice nohup command exec stdbuf timeout then do")
_RUNNERS = (
    r"\b(?:pytest|py\.test|unittest|nose2?|tox|jest|vitest|mocha|ctest|phpunit|rspec)\b"
    r"|\b(?:npm|yarn|pnpm|cargo|go|mvn|gradlew?|make|bun|deno|dotnet|swift)\s+(?:run\s+)?\S*(?:test|check)\b"
)
_TESTS_RAN = (
    r"\b[1-9]\d* failed\b|FAILED \((?:[^)]*\b)?failures=\d+|^--- FAIL: |\bTests?:\s+[1-9]\d* failed"
    r"|test result: FAILED\. \d+ passed; [1-9]|\b[1-9]\d* (?:failing|failures?)\b|^not ok \d+"
    r"|Failures: [1-9]"
)
_TESTS_BROKEN = (
    r"\b[1-9]\d* errors?\b|errors=[1-9]|ERROR collecting|no tests ran|ImportError|ModuleNotFoundError"
    r"|error\[E\d+\]|cannot find (?:module|package)|SyntaxError|usage: "
)
_NO_TESTS = (
    r"\b(?:0|no) (?:tests?|test files?|specs?|examples?|scenarios?|suites?)\b|\bcollected 0\b"
    r"|\btest NO-SOURCE$"
)
_COUNTED_TESTS = r"(?<![\d.])[1-9]\d* (?:passed|tests?|specs?|examples?|scenarios?|suites?)\b|^ok\s+\S+/"
_SHELL_TROUBLE = (
    r"^(?:bash|sh|zsh|dash|/bin/\w+)(?:: line \d+)?: .*(?:not found|No such file|Permission denied"
    r"|syntax error|unbound variable|cannot|ambiguous)"
    r"|^\S{1,60}: (?:command not found|cannot (?:access|open|stat|create|remove|find)\b.*|Permission denied)"
    r"|^\S{1,80}: .{1,200}: (?:No such file or directory|Permission denied|Is a directory|Not a directory)$"
    r"|^fatal: |^make(?:\[\d+\])?: \*\*\* |^npm (?:ERR!|error) |^curl: \(\d+\) |^\S+: error: "
    r"|^(?:error|ERROR): |^E: |^panic: |^Segmentation fault|^Killed$"
)
# The expression above can match only if one of these occurs; searching for them is quicker.
_HINTS = (
    *("rror: ", "ERROR: ", "not found", "irectory", "enied", "cannot", "fatal: ", "***", "ERR!", "curl: ("),
    *("npm error", "E: ", "panic: ", "Segm", "Killed", "syntax", "unbound", "ambiguous"),
)
_FRAME = late_pattern(r'^  File "[^"\n]+", line \d+', re.M)
_RAISED = late_pattern(r"^[\w.]+(?:Error|Exception|Interrupt|Exit|Warning)\b(?::.*)?$")
_CALM = late_pattern(r"(?i)\bwarning\b|\b0 errors?\b|no errors?\b|without errors?\b|errors?: 0\b")
_ERROR_FIELD = late_pattern(r"(?:error|errors|errormessage|errortype|errorcode|iserror|exception|fault)$")
_FAILED_STATUS = late_pattern(r"(?i)(?:error|fail(?:ed|ure)?)$")
_EDGES_CHARS = 4_000
_ENDED_EARLY = (0, 141)
"""Success, and the signal that a writer gets whose reader has ended."""
_SEPARATORS = late_pattern(r"\|\||&&|;|\n|\|&?|&(?![>\d])")
_QUOTED = late_pattern(r"'[^']*'|\"(?:[^\"\\]|\\.)*\"")
_ASSIGNMENT = late_pattern(r"[A-Za-z_]\w*=\S*$")


def judge_alone(call: StoredCall, arguments: dict[str, Any], request: str = "") -> tuple[Outcome, str]:
    """Judge a call by its own result. Returns the outcome and a reason of a few words for a person.
    `arguments` are the call's, `request` is what the person asked for."""
    kind = call.error_kind
    if kind in _NOT_RUN:
        return ("denied", "not let through") if kind == "denied" else ("unknown", kind)
    if call.result is None:
        return "unknown", "no result"
    if kind and kind != "exit":
        return "failed", kind.replace("_", " ")
    if "command" in tags_of(call.name) or call.exit_code is not None:
        return _judge_command(call, arguments, request)
    if trouble := find_json_error(call.result):
        return "failed", trouble
    return "ok", "no error flag"


def _judge_command(call: StoredCall, arguments: dict[str, Any], request: str) -> tuple[Outcome, str]:
    command, text = arguments.get("command"), call.result or ""
    if not isinstance(command, str):
        command = ""
    if call.exit_code:
        return _judge_exit(command, call.exit_code, text)
    if call.effects is not None and call.effects.pipeline:
        return _judge_pipeline(command, call.effects.pipeline, text)
    return _judge_output(command, text, request) if text else ("ok", "exit 0")


def _judge_output(command: str, text: str, request: str) -> tuple[Outcome, str]:
    """Judge a command that ended with 0 by its output."""
    if (hidden := find_hidden_exit(command, text)) is not None:
        outcome, reason = _judge_exit(hidden.command, hidden.code, text)
        return (outcome, reason) if outcome == "ok" else ("failed", f"exit 0, but {hidden.shown}")
    if path := find_empty_file(command, text):
        return "failed", f"exit 0, but {path[:80]} has 0 bytes"
    first, shows = read_program(command)
    if shows:
        text = _own_message(first, text[:_EDGES_CHARS])
    elif trouble := find_json_error(text):
        return "failed", f"exit 0, but {trouble}"
    elif _ran_tests(command, text):
        return "ok", "the tests ran and report failures"
    elif _ran_no_test(command, text):
        return "failed", "exit 0, but no test ran"
    trouble = find_error_line(text) if text else ""
    if not trouble and (not shows or is_masked(command)):
        status = find_http_error(first, command, text)
        trouble = status if status.rpartition(" ")[2] not in request else ""
        trouble = trouble or _find_said_failure(command, text[-_EDGES_CHARS:])
    return ("failed", f"exit 0, but it says: {trouble}") if trouble else ("ok", "exit 0")


def _judge_pipeline(command: str, codes: tuple[int, ...], text: str) -> tuple[Outcome, str]:
    """Judge a pipeline by the exit codes of its parts. A reader that ends early ends the writer before it."""
    parts = re.split(r"(?<!\|)\|&?(?!\|)", _QUOTED.sub("_", command))[-len(codes) :]
    for part, code in zip(parts, codes, strict=False):
        outcome, reason = _judge_exit(part, code, text) if code not in _ENDED_EARLY else ("ok", "")
        if outcome == "failed":
            program = next(programs_of(part), "")
            return outcome, f"exit 0, but {program} ended with {reason}"
    return "ok", "each part of the pipe ended with 0"


def _find_said_failure(command: str, text: str) -> str:
    """Return the line that says that the work failed; empty if the command is about failures."""
    if re.search(_ABOUT_FAILURES, command):
        return ""
    return find_masked_error(text) if is_masked(command) else find_reported_failure(text)


def _ran_tests(command: str, text: str) -> bool:
    return (
        re.search(_RUNNERS, command) is not None
        and re.search(_TESTS_RAN, text, re.M) is not None
        and not re.search(_TESTS_BROKEN, text, re.I)
    )


def _ran_no_test(command: str, text: str) -> bool:
    """Return whether a test runner counted tests and came to none."""
    return (
        re.search(_RUNNERS, command) is not None
        and re.search(_NO_TESTS, text, re.I | re.M) is not None
        and re.search(_COUNTED_TESTS, text, re.I | re.M) is None
    )


@lru_cache(maxsize=1_024)
def read_program(command: str) -> tuple[str, bool]:
    """Return a command's first program, or an empty string, and whether the command shows data. Kept, since a
    command is compared with those near it."""
    program = next(programs_of(command), "")
    return program, _is_showing(program, command)


def _is_showing(program: str, command: str) -> bool:
    """Return whether a command shows data: its program does, and so does the verb if that decides."""
    verbs = _SHOWING_VERBS.get(program)
    if verbs is None:
        return program in _SHOWS and not re.search(EDITS_IN_PLACE, command)
    return not verbs.isdisjoint(_SEPARATORS.split(command, maxsplit=1)[0].split())


def _own_message(program: str, text: str) -> str:
    """Return the first line of the output that the program prints in its own name."""
    if f"{program}: " not in text:
        return ""
    match = re.search(rf"^{re.escape(program)}: .*", text, re.M)
    return match[0] if match else ""


def _judge_exit(command: str, code: int, text: str) -> tuple[Outcome, str]:
    last = next(reversed(list(programs_of(command))), "")
    answers = last in _ANSWERS_1 or (last == "git" and re.search(_GIT_1, command) is not None)
    if code == 1 and answers and not re.search(_SHELL_TROUBLE, text, re.M):
        return "ok", f"{last} answers no with exit 1"
    if code == 1 and re.search(_COMMAND_1, command):
        return "ok", "command -v answers no with exit 1"
    if code in (1, 101) and _ran_tests(command, text):
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


def find_error_line(text: str) -> str:
    """Return the line by which a shell reports a failure although it ended with 0, or an empty string.

    A traceback counts if it is the end of the output; a warning that mentions errors does not.
    """
    edges = text[-_EDGES_CHARS:]
    if _FRAME.search(edges):
        last = edges.rstrip().splitlines()[-1].strip()
        if _RAISED.match(last):
            return last[:120]
    for hint in _HINTS:
        if hint in edges:
            break
    else:
        return ""
    match = re.search(_SHELL_TROUBLE, edges, re.M)
    if match is None:
        return ""
    line, _, remainder = edges[match.start() :].partition("\n")
    # If much output follows, the line was about a part that did not matter.
    if _CALM.search(line) or remainder.strip().count("\n") >= 3:
        return ""
    return line.strip()[:120]


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
