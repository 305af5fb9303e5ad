"""Judge the statements that a database client is given: on its line, as input, or in a file that it names.

Statements that only read or add pass. Any other one, and a text that can't be read here, may change what
nobody can bring back. Findings as in danger_files.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence

from whet.approval.danger_code import judge_query
from whet.approval.risk import CommandSetting, Finding, Irreversible
from whet.late import late_pattern
from whet.regular import read_regular_text
from whet.shell.options import operands
from whet.shell.programs import ProgramWords, by_name, program
from whet.shell.state import Invocation, ShellScript
from whet.shell.words import Word, literal, name_of
from whet.shell.wrappers import join_words

_MAX_FILE_BYTES = 200_000
_QUERIES = by_name(
    {
        "psql usql": ProgramWords("-c --command"),
        "mysql mariadb mycli pgcli cqlsh": ProgramWords("-e --execute"),
        "clickhouse-client": ProgramWords("-q --query"),
        "sqlcmd": ProgramWords("-Q -q"),
        "mongo mongosh": ProgramWords("--eval"),
        "duckdb": ProgramWords("-c -s -cmd"),
        "sqlite sqlite3": ProgramWords("-cmd"),
    }
)
_FILES = by_name(
    {
        "psql usql pgcli cqlsh mongosh": ProgramWords("-f --file"),
        "duckdb": ProgramWords("-f --file -init"),
        "clickhouse-client": ProgramWords("--queries-file"),
        "sqlcmd": ProgramWords("-i"),
        "sqlite sqlite3": ProgramWords("-init --init"),
    }
)
_ENDINGS = (".sql", ".cql", ".ddl", ".js", ".mjs")
_FLAGS = "AbBCeElnNqrsStwxXz0"
_SCRIPTED = ProgramWords("mongo mongosh")
_COMMENT = late_pattern(r"--[^\n]*|/\*.*?\*/|'(?:[^']|'')*'|\"[^\"]*\"|\$(\w*)\$.*?\$\1\$", re.DOTALL)
_ORDINARY = late_pattern(
    r"(select|with|show|explain|describe|desc|values|table|pragma|insert|update|create|comment|analyze|vacuum"
    r"|begin|start|commit|end|rollback|savepoint|release|set|reset|use|delete|fetch|declare|help|exit|quit|go)\b|\\[a-zA-Z?]|\.[a-z]",
    re.IGNORECASE,
)
_NAMED_FILE = late_pattern(
    r"^\s*(?:\\(?:ir?|include\w*)|source|\\\.|\.read)\s+([^\n;]+)", re.MULTILINE | re.IGNORECASE
)
_METHOD = late_pattern(r"\.\s*(\w+)\s*\(|\]\s*\(")
_READING_METHODS = ProgramWords(
    "find findOne count countDocuments estimatedDocumentCount aggregate distinct explain stats"
    " getIndexes limit sort skip toArray pretty map filter forEach project getCollection"
    " getCollectionNames getCollectionInfos getSiblingDB listCollections hello ping insertOne insertMany"
    " updateOne serverStatus stringify getName version keys length log"
)


def judge_database(name: str, words: Sequence[Word], setting: CommandSetting) -> Iterator[Finding]:
    """Judge a client's words: statements on its line and in the files that it names."""
    if findings := list(filter(None, (judge_query(word.text) for word in words))):
        yield from findings
        return
    for word in _list_queries(name, words):
        yield from judge_statements(name, word, setting)
    files = [*_values_of(words, _FILES.get(name, ProgramWords()))]
    files += (word for word in operands(words) if word.text.lower().endswith(_ENDINGS))
    for word in dict.fromkeys(files):
        yield from judge_statement_file(name, word, setting)


def judge_client_input(name: str, invocation: Invocation, setting: CommandSetting) -> Iterator[Finding]:
    """Judge the text that a client reads: a here-document, or what other commands print."""
    if invocation.stdin is not None:
        texts: list[Word] = [invocation.stdin]
    else:
        texts = [word for source in invocation.piped_from for word in join_words(source.words)]
    findings = list(filter(None, (judge_query(text.text) for text in texts)))
    yield from findings
    if findings or "sql" not in program(name).kinds:
        return
    if invocation.stdin is not None:
        yield from judge_statements(name, invocation.stdin, setting)
        return
    for source in invocation.piped_from[-1:]:
        printer = name_of(source.words[0]) if source.words else ""
        arguments = [word for word in source.words[1:] if word.text not in ("-n", "-e")]
        if printer == "cat" and arguments:
            for word in arguments:
                yield from judge_statement_file(name, word, setting)
        elif printer in ("echo", "printf") and arguments:
            yield from judge_statements(name, join_words(arguments)[0], setting)
        else:
            yield "dangerous", Irreversible(f"{name} runs statements that another command makes")


def judge_input_file(script: ShellScript, target: Word, setting: CommandSetting) -> Iterator[Finding]:
    """Judge a file that the shell opens for input, if a client in the same text may read it."""
    names = (name_of(invocation.words[0]) for invocation in script.invocations if invocation.words)
    for name in dict.fromkeys(name for name in names if "database" in program(name).kinds):
        yield from judge_statement_file(name, target, setting)


def judge_statement_file(name: str, word: Word, setting: CommandSetting, depth: int = 0) -> Iterator[Finding]:
    """Judge the statements in a file, as it is now."""
    text = "" if word.text in ("-", "/dev/stdin", "/dev/null") else _read_file(word, setting)
    if text is None or depth > 3:
        yield "dangerous", Irreversible(f"{name} runs statements that can't be read here: {word.plain}")
    elif finding := judge_query(_drop_comments(text)):
        yield finding
    elif text:
        yield from judge_statements(name, literal(text), setting, depth)


def judge_statements(name: str, query: Word, setting: CommandSetting, depth: int = 0) -> Iterator[Finding]:
    """Judge a text of statements, and the files that it includes."""
    if query.dynamic:
        yield "dangerous", Irreversible(f"{name} runs statements that are made at run time")
        return
    for match in _NAMED_FILE.finditer(query.text):
        yield from judge_statement_file(name, literal(match[1].strip().strip("'\"")), setting, depth + 1)
    unknown = _find_method(query.text) if name in _SCRIPTED else _find_statement(query.text)
    if unknown:
        yield "dangerous", Irreversible(f"{name}: may change what nobody can bring back: {unknown[:60]}")


def _find_statement(text: str) -> str:
    """Return the first statement that is not known to only read or add, or an empty string."""
    plain = _COMMENT.sub(lambda match: "''", _drop_comments(text))
    for part in re.split(r";|\n(?=\s*[\\.])|(?<=\n)(?=\s*(?:source|go)\b)", _end_lines(plain)):
        statement = part.strip()
        if statement and not _ORDINARY.match(statement) and not _NAMED_FILE.match(statement):
            return " ".join(statement.split())
    return ""


def _drop_comments(text: str) -> str:
    return _COMMENT.sub(lambda match: " " if match[0][:2] in ("--", "/*") else match[0], text)


def _end_lines(text: str) -> str:
    """Return the text with an end after each command of the client, which takes a line: `\\d users`."""
    return re.sub(r"(?m)^(\s*[\\.][^\n;]*)$", r"\1;", text)


def _find_method(text: str) -> str:
    """Return the first method in a script that is not known to only read or add, or an empty string."""
    for match in _METHOD.finditer(text):
        if match[1] not in _READING_METHODS:
            return match[0]
    match = re.search(r"\$(out|merge)\b", text)
    return match[0] if match else ""


def _list_queries(name: str, words: Sequence[Word]) -> Iterable[Word]:
    yield from _values_of(words, _QUERIES.get(name, ProgramWords()))
    if name in ("sqlite", "sqlite3", "duckdb"):
        yield from operands(words)[1:]


def _values_of(words: Sequence[Word], options: ProgramWords) -> Iterator[Word]:
    """Yield the values of options, in each way to write them: `-c X`, `-Atc X`, `-cX`, `--command=X`."""
    for option in options:
        is_short = re.fullmatch(r"-\w", option) is not None
        for at, word in enumerate(words):
            attached = re.match(f"{option}(?=.)" if is_short else f"{option}=", word.text)
            takes_next = f"-[{_FLAGS}]*{option[1]}" if is_short else option
            if re.fullmatch(takes_next, word.text):
                yield from words[at + 1 : at + 2]
            elif attached is not None and not word.text.startswith("--" if is_short else "---"):
                yield word.after(attached.end())


def _read_file(word: Word, setting: CommandSetting) -> str | None:
    if word.dynamic or word.glob or setting.cwd is None:
        return None
    try:
        text = read_regular_text(os.path.join(setting.cwd, word.text), _MAX_FILE_BYTES + 1)
    except (OSError, ValueError):
        return None
    return text if len(text) <= _MAX_FILE_BYTES and "\0" not in text else None
