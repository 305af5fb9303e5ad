"""Parse tool calls that a model wrote as text and its server passed on unparsed.

Each model family has its notation: JSON between tags, `<function=...>`, `<invoke name="...">`, keys and
values in tags, a name before its arguments, or Python. A text counts only if it contains nothing but calls.
Loaded if an answer ends with something that looks like calls. Does no I/O.
"""

from __future__ import annotations

import ast
import json
import re
from typing import Any, cast

import msgspec

from whet.contract.texts import is_object

Calls = list[tuple[str, str]]
"""Names and arguments as JSON text."""
_BARS = r"[|｜‖]"
_TAGS = re.compile(rf"</?(?:{_BARS}{{1,2}})?[\w:|｜‖▁]+>|\[/?[A-Z_]+\]|<\|?\w*\|>")
_BLANK = re.compile(rf"\s+|{_TAGS.pattern}")
_CHANNEL = re.compile(
    r"(?:<\|start\|>assistant)?<\|channel\|>\w+(?P<to>[^<>\n]{0,80}(?:<\|constrain\|>\w+)?)<\|message\|>"
)
_NAMED = re.compile(r"<function=(?P<name>[\w.-]+)>(?P<body>.*?)(?:</function>|\Z)", re.DOTALL)
_PARAMETER = re.compile(r"<parameter=(?P<key>[\w.-]+)>\n?(?P<value>.*?)\n?</parameter>", re.DOTALL)
_INVOKED = re.compile(
    r"<[^<>\s]*?invoke name=\"(?P<name>[\w.:-]+)\"[^<>]*>(?P<body>.*?)</[^<>\s]*?invoke>", re.DOTALL
)
_GIVEN = re.compile(
    r"<[^<>\s]*?parameter name=\"(?P<key>[\w.-]+)\"(?P<kind>[^<>]*)>(?P<value>.*?)</[^<>\s]*?parameter>",
    re.DOTALL,
)
_KEYED = re.compile(r"<tool_call>\s*(?P<name>[\w.-]+)\s*(?P<body>(?:<arg_key>.*?)?)</tool_call>", re.DOTALL)
_PAIR = re.compile(r"<arg_key>(?P<key>.*?)</arg_key>\s*<arg_value>(?P<value>.*?)</arg_value>", re.DOTALL)
# Kimi: `functions.NAME:0<|tool_call_argument_begin|>{...}`; Mistral: `NAME[ARGS]{...}`.
_PREFIXED = re.compile(
    r"(?:functions\.)?(?P<name>[\w-]+)(?::\d+)?\s*(?:<\|tool_call_argument_begin\|>|\[ARGS\])"
)
_PYTHON = re.compile(r"<\|tool_call_start\|>(?P<body>\[.*\])(?:<\|tool_call_end\|>)?", re.DOTALL)
_JSON = json.JSONDecoder(strict=False)


def calls_in(text: str) -> Calls:
    """Return the calls that a text consists of, or [] if it contains anything else."""
    if match := _CHANNEL.match(text):
        name = re.search(r"to=(?:functions\.)?([\w.-]+)", match["to"])
        body = re.sub(r"<\|(?:call|end|return)\|>\s*\Z", "", text[match.end() :])
        return [(name[1], body.strip())] if name else []
    if "<function=" in text:
        return _tagged_calls(text, _NAMED, _PARAMETER)
    if "invoke name=" in text:
        return _tagged_calls(text, _INVOKED, _GIVEN)
    if _KEYED.match(text.strip()):
        return _tagged_calls(text, _KEYED, _PAIR)
    if match := _PYTHON.fullmatch(text.strip()):
        return _python_calls(match["body"])
    return _json_calls(text)


def _tagged_calls(text: str, call: re.Pattern[str], argument: re.Pattern[str]) -> Calls:
    calls: Calls = []
    for match in call.finditer(text):
        values = {pair["key"]: _value(pair) for pair in argument.finditer(match["body"])}
        calls.append((match["name"], msgspec.json.encode(values).decode()))
    return [] if _TAGS.sub("", call.sub("", text)).strip() else calls


def _value(pair: re.Match[str]) -> object:
    """Return the value of an argument: its text, or decoded JSON if its tag has string="false"."""
    text = pair["value"]
    if "kind" not in pair.groupdict() or 'string="false"' not in pair["kind"]:
        return text
    try:
        return _JSON.decode(text)
    except (ValueError, RecursionError):
        return text


def _json_calls(text: str) -> Calls:
    """Read objects with a name and arguments, or arguments that follow a name."""
    calls: Calls = []
    at, name = 0, ""
    while at < len(text):
        if match := _PREFIXED.match(text, at):
            name, at = match["name"], match.end()
        elif blank := _BLANK.match(text, at):
            at = blank.end()
        else:
            try:
                value, at = _JSON.raw_decode(text, at)
            except (ValueError, RecursionError):
                return []
            new_calls = _arguments_of(name, value) if name else _objects_of(value)
            if not new_calls:
                return []
            calls += new_calls
            name = ""
    return [] if name else calls


def _arguments_of(name: str, value: object) -> Calls:
    if isinstance(value, str):
        return [(name, value)] if is_object(value) else []
    return [(name, json.dumps(value))] if isinstance(value, dict) else []


def _objects_of(value: object) -> Calls:
    calls = [_call_of(item) for item in (cast("list[Any]", value) if isinstance(value, list) else [value])]
    return [call for call in calls if call is not None] if None not in calls else []


def _call_of(value: object) -> tuple[str, str] | None:
    if not isinstance(value, dict):
        return None
    fields = cast("dict[str, Any]", value)
    inner = fields.get("function")
    if isinstance(inner, dict):
        fields = cast("dict[str, Any]", inner)
    name = fields.get("name")
    keys = [key for key in ("arguments", "parameters", "args", "input") if key in fields]
    arguments: object = fields[keys[0]] if keys else "{}"
    if not isinstance(name, str) or not isinstance(arguments, dict | str):
        return None
    return name, arguments if isinstance(arguments, str) else json.dumps(arguments)


def _python_calls(text: str) -> Calls:
    """Read a list of Python calls with named, literal arguments."""
    calls: Calls = []
    try:
        tree = ast.parse(text, mode="eval").body
        for call in tree.elts if isinstance(tree, ast.List) else []:
            if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name) or call.args:
                return []
            values = {word.arg or "": ast.literal_eval(word.value) for word in call.keywords}
            calls.append((call.func.id, msgspec.json.encode(values).decode()))
    except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError):
        return []
    return calls
