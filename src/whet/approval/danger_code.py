"""Judge code and queries on the command line: `python -c`, `node -e`, `psql -c`, here-documents into them.

The languages are not parsed. Calls that run programs, delete or connect are found by patterns; all other
code is merely normal, which needs a question by default. Findings as in danger_files.
"""

from __future__ import annotations

import re

from whet.approval.risk import Finding, Irreversible
from whet.approval.sql_texts import read_mysql, read_nested, read_standard
from whet.late import late_pattern

_MAX_QUERY_CHARS = 20_000
_COMMENT = late_pattern(r"/\*|--|#")
_SQL = late_pattern(
    r"\b(drop\s+(table|database|schema|index|view|user|role|column)|truncate\b|alter\s+table\s+\S+\s+drop"
    r"|delete\s+from\s+\S+(?![^;]{0,2000}?\bwhere\b)|update\s+\S+\s+set\b(?![^;]{0,2000}?\bwhere\b)|grant\b|revoke\b|shutdown\b)"
    r"|(^|;)[^\S\n]*(system|tee|pager|source|edit)\s+\S|\\(o|g)\s*\||\\setenv\b|\bpg_(read|ls)_|\blo_(import|export)\b"
    r"|\b(writefile|load_extension|edit|fts3_tokenizer)\s*\(|^[^\S\n]*\.load\b|attach\s+(database\s+)?'[/~.]"
    r"|^[^\S\n]*\.(once|output|save|backup|clone|log|import|ar|archive|cd|excel)[^\S\n][-\w \t]*+['\"]?"
    r"([|/~]|\.\.)"
    r"|dropDatabase|\.drop\(|deleteMany\(\s*\{\s*\}|\bflush(all|db)\b|\\!|^[^\S\n]*\.(shell|system)\b|into\s+(outfile|dumpfile)|\\gexec\b|copy\s[^;\n]{1,300}\sprogram\b",
    re.IGNORECASE | re.MULTILINE,
)


def judge_query(text: str) -> Finding | None:
    """Judge text for a database client: statements that destroy data or run programs."""
    if finding := judge_query_length(text):
        return finding
    # What one dialect takes for a comment, another one runs, and a comment separates words.
    readings = (read_standard, read_nested, read_mysql) if _COMMENT.search(text) else ()
    if any(map(_SQL.search, dict.fromkeys((text, *(read(text).text for read in readings))))):
        return "dangerous", Irreversible("deletes or overwrites data in a database")
    return None


def judge_query_length(text: str) -> Finding | None:
    """Judge a text by its length: looking through a long one would take seconds."""
    is_long = len(text) > _MAX_QUERY_CHARS
    return ("dangerous", Irreversible("a query too long to be looked through")) if is_long else None


_CODE = late_pattern(
    r"os\.(system|popen|remove|unlink|rmdir|removedirs|exec\w*|spawn\w*|kill|rename|chmod|chown|truncate)"
    r"|subprocess|shutil\.(rmtree|move)|rmtree|pty\.spawn|ctypes|__import__|importlib|\b(eval|exec|compile)\s*\("
    r"|\.unlink\(|\.rmdir\(|child_process|exec(File)?(Sync)?\s*\(|spawn(Sync)?\s*\(|(rm|rmdir|unlink)(Sync)?\s*\("
    r"|\bsystem\b|`|\bqx\b|\bIO\.popen|FileUtils|File\.delete|shell_exec|passthru|proc_open|\bunlink\b"
    r"|socket|https?\.(request|get)\(|requests\.(post|put|delete|patch)|urlopen|\bfetch\(|base64|getattr\(|Net::HTTP|LWP"
)


# A call that hands a statement to a database.
_STATEMENT_CALL = late_pattern(r"\bexecut\w*\s*\(|\bexec\s*\(|\.(query|run|raw|prepare)\s*\(", re.IGNORECASE)


def judge_code(text: str) -> Finding | None:
    """Judge code on an interpreter's command line: calls that run programs, delete, or connect."""
    if _STATEMENT_CALL.search(text[:_MAX_QUERY_CHARS]) and (finding := judge_query(text)):
        return finding
    match = _CODE.search(text)
    return ("dangerous", f"its code uses {match[0].strip('(').strip() or match[0]}") if match else None
