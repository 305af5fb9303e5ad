"""Judge the statements that a database client is given: on its line, as input, or in a file that it names.

Statements that begin with an ordinary verb pass, unless `judge_query` finds them dangerous (DELETE without
WHERE). Any other one, and a text that can't be read here, counts as irreversible. Findings as in
danger_files.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence

import msgspec

from whet.approval.danger_code import judge_query, judge_query_length
from whet.approval.risk import CommandSetting, Finding, Irreversible
from whet.approval.sql_texts import SqlText, read_mysql, read_nested, read_standard
from whet.late import late_pattern
from whet.regular import read_regular_text
from whet.shell.options import operands
from whet.shell.programs import ProgramWords, by_name, program
from whet.shell.state import Invocation, ShellScript
from whet.shell.words import Word, literal, name_of
from whet.shell.wrappers import join_words

_MAX_FILE_BYTES = 200_000
_MAX_FILES = 20
_MAX_TOTAL_CHARS = 100_000
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
_ORDINARY = late_pattern(
    r"\(*\s*(select|with|from|show|summarize|explain|describe|desc|values|table|pragma|insert|update|create|comment|analyze|vacuum"
    r"|begin|start|commit|end|rollback|savepoint|release|set|reset|use|delete|fetch|declare|help|exit|quit|go)\b|\\[a-zA-Z?]"
    r"|\.(?:backup|bail|changes|clone|databases|dbinfo|dump|echo|eqp|excel|exit|explain|fullschema|head(?:ers?)?|help|import|index(?:es)?"
    r"|indices|limit|mode|nullvalue|once|output|parameter|print|prompt|q(?:uit)?|save|sch(?:ema)?|separator|sha3sum|show|stats|tab(?:les?)?"
    r"|time(?:out|r)|width)\b",
    re.IGNORECASE,
)
# Rows that are printed, or added from the input.
_COPY = late_pattern(r"copy\b.*\b(?:to\s+stdout|from\s+stdin)\b", re.IGNORECASE | re.DOTALL)
_NAMED_FILE = late_pattern(
    r"^[^\S\n]*(?:\\(?:ir?|include\w*)|source|\\\.|\.read)[^\S\n]+([^\n;]+)", re.MULTILINE | re.IGNORECASE
)
_METHOD = late_pattern(r"\.\s*(\w+)\s*\(|\]\s*\(")
_READING_METHODS = ProgramWords(
    "find findOne count countDocuments estimatedDocumentCount aggregate distinct explain stats"
    " getIndexes limit sort skip toArray pretty map filter forEach project getCollection"
    " getCollectionNames getCollectionInfos getSiblingDB listCollections hello ping insertOne insertMany"
    " updateOne serverStatus stringify getName version keys length log status"
)
_Reader = Callable[[str], SqlText]
_DIALECTS: dict[str, _Reader] = by_name(
    {"mysql mariadb mycli": read_mysql, "sqlite sqlite3 sqlcmd sqlplus clickhouse-client": read_standard}
)


class _Includes(msgspec.Struct):
    """The files that one client has been seen to read, and the characters in them."""

    paths: set[str] = msgspec.field(default_factory=set[str])
    size_chars: int = 0

    @property
    def is_full(self) -> bool:
        return len(self.paths) > _MAX_FILES or self.size_chars > _MAX_TOTAL_CHARS


def judge_database(name: str, words: Sequence[Word], setting: CommandSetting) -> Iterator[Finding]:
    """Judge a client's words: statements on its line and in the files that it names."""
    if findings := list(filter(None, (judge_query(word.text) for word in words))):
        yield from findings
        return
    includes = _Includes()
    for word in _list_queries(name, words):
        yield from _judge_statements(name, word, setting, includes)
    files = [*_values_of(words, _FILES.get(name, ProgramWords()))]
    files += (word for word in operands(words) if word.text.lower().endswith(_ENDINGS))
    for word in dict.fromkeys(files):
        yield from _judge_file(name, word, setting, includes)


def judge_client_input(name: str, invocation: Invocation, setting: CommandSetting) -> Iterator[Finding]:
    """Judge the text that a client reads: a here-document, or the output of other commands."""
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
            includes = _Includes()
            for word in arguments:
                yield from _judge_file(name, word, setting, includes)
        elif printer in ("echo", "printf") and arguments:
            yield from judge_statements(name, join_words(arguments)[0], setting)
        else:
            yield "dangerous", Irreversible(f"{name} runs statements that another command makes")


def judge_input_file(script: ShellScript, target: Word, setting: CommandSetting) -> Iterator[Finding]:
    """Judge a file that the shell opens for input, if a client in the same text may read it."""
    names = (name_of(invocation.words[0]) for invocation in script.invocations if invocation.words)
    for name in dict.fromkeys(name for name in names if "database" in program(name).kinds):
        yield from judge_statement_file(name, target, setting)


def judge_statement_file(name: str, word: Word, setting: CommandSetting) -> Iterator[Finding]:
    """Judge the statements in a file, as it is now, and in the files that it includes."""
    yield from _judge_file(name, word, setting, _Includes())


def judge_statements(name: str, query: Word, setting: CommandSetting) -> Iterator[Finding]:
    """Judge a text of statements, and the files that it includes."""
    yield from _judge_statements(name, query, setting, _Includes())


def _judge_file(name: str, word: Word, setting: CommandSetting, includes: _Includes) -> Iterator[Finding]:
    """Judge a file that the client has not been seen to read. After too many files, none is read any more."""
    path = os.path.normpath(os.path.join(setting.cwd or "", word.text))
    if path in includes.paths or includes.is_full or word.text in ("-", "/dev/stdin", "/dev/null"):
        return
    includes.paths.add(path)
    text = None if includes.is_full else _read_file(word, setting)
    includes.size_chars += len(text or "")
    if text is None or includes.is_full:
        yield "dangerous", Irreversible(f"{name} runs statements that can't be read here: {word.plain}")
    elif finding := judge_query_length(text) or _judge_readings(name, text):
        yield finding
    elif text:
        yield from _judge_statements(name, literal(text), setting, includes)


def _judge_readings(name: str, text: str) -> Finding | None:
    """Return the finding about a text in the first dialect in which it is dangerous: what one of them takes
    for a comment, another one runs."""
    if name in _SCRIPTED:
        return judge_query(text)
    texts = dict.fromkeys(read(text).text for read in (read_standard, read_nested, read_mysql))
    return next(filter(None, map(judge_query, texts)), None)


def _judge_statements(
    name: str, query: Word, setting: CommandSetting, includes: _Includes
) -> Iterator[Finding]:
    if query.dynamic:
        yield "dangerous", Irreversible(f"{name} runs statements that are made at run time")
        return
    for match in _NAMED_FILE.finditer(query.text):
        yield from _judge_file(name, literal(match[1].strip().strip("'\"")), setting, includes)
    read = _DIALECTS.get(name, read_nested)
    unknown = _find_method(query.text) if name in _SCRIPTED else _find_statement(read(query.text).code)
    if unknown:
        yield "dangerous", Irreversible(f"{name}: may change what nobody can bring back: {unknown[:60]}")


def _find_statement(code: str) -> str:
    """Return the first statement without an ordinary verb, or an empty string."""
    for part in re.split(r";|\n(?=[^\S\n]*[\\.])|(?<=\n)(?=[^\S\n]*(?:source|go)\b)", _end_lines(code)):
        statement = part.strip()
        is_known = any(pattern.match(statement) for pattern in (_ORDINARY, _NAMED_FILE, _COPY))
        if statement and not is_known:
            return " ".join(statement.split())
    return ""


def _end_lines(text: str) -> str:
    """Return the text with an end after each command of the client, which takes a line: `\\d users`."""
    return re.sub(r"(?m)^([^\S\n]*[\\.][^\n;]*)$", r"\1;", text)


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
