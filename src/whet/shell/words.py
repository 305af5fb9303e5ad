"""A word of a shell command without its quotes, as far as it can be known before it runs.

`cook` turns nodes of the parsed tree into the words that bash would form: quotes, escapes, ANSI-C strings,
`~`, braces and variables with known values. A word with a part known only at run time is `dynamic`.
Follows the Bash Reference Manual, "Shell Expansions". Individual programs are not considered here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec
from tree_sitter import Node

from whet.late import late_pattern

Lookup = Callable[[str], str | None]
"""Returns a variable's value if it is certain, else None."""

# Unquoted braces and commas while a word is assembled: private characters, which are refused in input.
_OPEN, _COMMA, _CLOSE = "\ue000", "\ue001", "\ue002"
_MARKS = str.maketrans({"{": _OPEN, ",": _COMMA, "}": _CLOSE})
_UNMARK = str.maketrans({_OPEN: "{", _COMMA: ",", _CLOSE: "}"})
_MAX_WORDS = 256
_ANSI = late_pattern(
    r"\\(?:x([0-9a-fA-F]{1,2}|\{[0-9a-fA-F]*\}?)|u([0-9a-fA-F]{1,4})|U([0-9a-fA-F]{1,8})|([0-7]{1,3})|c(.)|(.))",
    re.DOTALL,
)
_ANSI_NAMES = dict(zip("ntrabeEfv", "\n\t\r\a\b\x1b\x1b\f\v", strict=True))
_IN_QUOTES = late_pattern(r"\\([$`\"\\])|\\\n")
_ESCAPED_CHAR = late_pattern(r"\\(.)", re.DOTALL)
_TILDE = late_pattern(r"~[\w.+-]*(?=/|\Z)")  # `~bob` is another user's home
_PLAIN = late_pattern(r"[\w@%+=:.,/\-]+", re.ASCII)
_EXPANSIONS = frozenset(
    ("simple_expansion", "expansion", "command_substitution", "process_substitution", "arithmetic_expansion")
)
_AS_IT_STANDS = frozenset(("word", "number", "variable_name", "test_operator", "string_content"))
# The innermost `${name:-text}`, `${name+text}` or `${name/pattern/text}`.
_OWN_TEXT = late_pattern(r"\$\{!?[\w@*#?$!-]+?(?:\[[^\[\]{}]*\])?(?::?[-=+]|//?[#%]?[^/{}]*/)([^{}]*)\}")
_MAX_NESTED = 8
_BARE_NAME = late_pattern(r"\$([a-zA-Z_]\w*)")
_NAME_ONLY = late_pattern(r"\$(\w+)|\$\{(\w+)\}")


class Word(msgspec.Struct, frozen=True):
    """One word. `text` has `~` and known variables filled in; `plain` is as typed, without quotes.

    `dynamic`: a part is known only at run time; `prefix` is the text before it. `loose`: it may become
    several words (an unquoted expansion or a glob). `runs`: it contains a command whose output is used.
    `odd`: it contains, unquoted, a character that ends a word in bash, so the grammar read the text
    differently. `marked` is the word as typed if the shell expands a part of it, else empty.
    """

    text: str
    plain: str
    dynamic: bool = False
    loose: bool = False
    glob: bool = False
    prefix: str = ""
    runs: bool = False
    odd: bool = False
    marked: str = ""

    @property
    def may_be_flag(self) -> bool:
        """Whether it may turn out to be an option when the command runs."""
        if self.dynamic:
            return not self.prefix or self.loose or self.prefix.startswith("-")
        return self.glob and self.text[:1] in "*?[-+"

    def after(self, count: int) -> Word:
        """Return the word without its first `count` characters, which belong to an option."""
        return msgspec.structs.replace(
            self, text=self.text[count:], plain=self.plain[count:], prefix=self.prefix[count:], marked=""
        )

    @property
    def normal_form(self) -> str:
        """The word as written in a normalised command."""
        if not self.plain or any(c in " \t\n'\"\\|&;()<>#" for c in self.plain):
            return _quote(self.plain)
        return self.plain

    @property
    def exact_form(self) -> str:
        """The word in a form that only words with the same meaning to the shell have: `'*'` is not `*`."""
        return self.marked or (self.plain if _PLAIN.fullmatch(self.plain) else _quote(self.plain))


def _quote(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"


def literal(text: str) -> Word:
    """Make a word of text that has no expansions."""
    return Word(text, text, prefix=text)


def name_of(word: Word) -> str:
    """Return a program's bare name."""
    return word.text.rsplit("/", 1)[-1]


def fill_variables(text: str, values: Mapping[str, str]) -> str:
    """Replace the variables in a text whose values are known."""
    return re.sub(r"\$\{?(\w+)\}?", lambda match: values.get(match[1], match[0]), text)


def fill_own_texts(text: str) -> str:
    """Replace expansions that bring a text of their own by that text: `${name:-.env}`."""
    for _ in range(_MAX_NESTED):
        filled = _OWN_TEXT.sub(lambda match: re.sub(r"[\"'\\]", "", match[1]), text)
        if filled == text:
            break
        text = filled
    return text


def fill_words(words: Sequence[Word]) -> list[list[Word]]:
    """Return a command with its expansions' own texts in their place; nothing if it has none."""
    filled = [part for word in words for part in _fill_word(word)]
    return [filled] if filled and filled != list(words) else []


def _fill_word(word: Word) -> list[Word]:
    """Return the words that a word becomes if its expansions bring their own texts."""
    text = fill_own_texts(word.text) if word.dynamic and "${" in word.text else word.text
    if text == word.text:
        return [word]
    texts = text.split() if word.loose else [text]
    return [
        unknown(part[match.start() :], part[: match.start()])
        if (match := re.search(r"[$`]", part))
        else msgspec.structs.replace(literal(part), glob=word.loose and any(c in part for c in "*?["))
        for part in texts
    ]


def in_line(words: Iterable[Word]) -> str:
    """Join words so that a pattern can separate them: a blank before each, and `_` for blanks inside."""
    return "".join(" " + re.sub(r"\s", "_", word.text) for word in words)


def unknown(source: str, prefix: str = "") -> Word:
    """Make a word whose value is known only at run time."""
    text = prefix + source
    return Word(text, text, dynamic=True, loose=not prefix, prefix=prefix, marked=text)


class _Cooker:
    """Assembles one word from its parts in order."""

    def __init__(self, source: str, lookup: Lookup) -> None:
        self.source = source
        self.lookup = lookup
        self.text: list[str] = []
        self.plain: list[str] = []
        self.marked: list[str] = []
        self.prefix: str | None = None
        self.loose = self.glob = self.runs = self.odd = self.expands = False

    def literal(self, text: str, marked: str = "") -> None:
        """Add text that the shell takes as it is, or that it expands, as it is `marked`."""
        if self.text and re.match(r"\w", text) and (name := _BARE_NAME.fullmatch(self.text[-1])):
            self.text[-1] = f"${{{name[1]}}}"  # the name of the variable in `$x"y"` ends before the quote
        self.text.append(text)
        self.plain.append(text)
        self.marked.append(marked or (_quote(text) if text and not _PLAIN.fullmatch(text) else text))
        self.expands = self.expands or bool(marked)

    def dynamic(self, source: str, marked: str = "") -> None:
        if self.prefix is None:
            self.prefix = "".join(self.text)
        self.literal(source, marked or source)

    def bare(self, raw: str) -> None:
        """Add unquoted text: escapes, globs, braces, and `~` at the start."""
        if _PLAIN.fullmatch(raw) and "," not in raw:
            self.literal(raw)
            return
        if not self.text and (tilde := _TILDE.match(raw)):
            home = self.lookup("HOME") if tilde[0] == "~" else None
            if home is None:
                self.dynamic(tilde[0])
            else:
                self._add_known(home, "~", "~")
            raw = raw[tilde.end() :]
        last = 0
        for match in _ESCAPED_CHAR.finditer(raw):
            self._add_unescaped(raw[last : match.start()])
            if match[1] != "\n":
                self.literal(match[1])
            last = match.end()
        self._add_unescaped(raw[last:])

    def _add_unescaped(self, text: str) -> None:
        self.glob = self.glob or any(c in text for c in "*?[")
        self.odd = self.odd or any(c in text for c in "\n\t ;|&<>()")
        self.literal(text.translate(_MARKS), text if any(c in text for c in "*?[") else "")

    def _add_known(self, value: str, source: str, marked: str) -> None:
        self.text.append(value)
        self.plain.append(source)
        self.marked.append(marked)
        self.expands = True

    def expansion(self, node: Node, source: str, quoted: bool) -> None:
        if node.type == "process_substitution":
            self.runs = True
            if self.prefix is None:
                self.prefix = "".join(self.text) + "/dev/fd/"
            self.literal(source, source)
            return
        self.runs = self.runs or node.type == "command_substitution"
        self.loose = self.loose or not (quoted or node.type == "arithmetic_expansion")
        variable = _NAME_ONLY.fullmatch(source)
        value = self.lookup(variable[1] or variable[2]) if variable else None
        marked = f'"{source}"' if quoted else source
        if value is None:
            self.dynamic(source, marked)
        else:
            self._add_known(value, source, marked)
            self.glob = self.glob or (not quoted and any(c in value for c in "*?["))

    def take(self, node: Node) -> None:
        """Add a node of any type, according to its quotes."""
        kind = node.type
        source = self.source[node.start_byte : node.end_byte]
        if kind in _EXPANSIONS:
            self.expansion(node, source, False)
        elif kind == "raw_string":
            self.literal(source[1:-1])
        elif kind == "ansi_c_string":
            # bash ends the string at a NUL
            self.literal(_ANSI.sub(_decode_ansi_escape, source[2:-1]).partition("\0")[0])
        elif kind == "string":
            self.string(node)
        elif kind == "translated_string":
            self.take(node.children[-1])
        elif source == "$" and self.source.startswith('"', node.end_byte):
            pass  # the beginning of `$"..."`, a string to be translated
        elif kind in ("concatenation", "command_name") and node.children:
            for child in node.children:
                self.take(child)
        elif node.is_named and kind not in _AS_IT_STANDS:
            self.loose = True
            self.dynamic(source)
        else:
            self.bare(source)

    def string(self, node: Node) -> None:
        """Add a double-quoted string. The text between its expansions is found by position."""
        at = node.start_byte + 1
        for child in node.children:
            if child.type in _EXPANSIONS:
                self.literal(_IN_QUOTES.sub(_unescape, self.source[at : child.start_byte]))
                self.expansion(child, self.source[child.start_byte : child.end_byte], True)
                at = child.end_byte
        self.literal(_IN_QUOTES.sub(_unescape, self.source[at : node.end_byte - 1]))

    def words(self) -> list[Word]:
        """Finish the word and expand its braces."""
        text, plain = "".join(self.text), "".join(self.plain)
        dynamic = self.prefix is not None
        word = Word(
            text.translate(_UNMARK),
            plain.translate(_UNMARK),
            dynamic,
            self.loose,
            self.glob,
            (text if self.prefix is None else self.prefix).translate(_UNMARK),
            self.runs,
            self.odd,
            "".join(self.marked).translate(_UNMARK) if self.expands else "",
        )
        if _OPEN not in text:
            return [word]
        if dynamic:
            return [msgspec.structs.replace(word, loose=True)]
        texts = _expand_braces(text)
        if texts is None:
            return [
                msgspec.structs.replace(
                    word, dynamic=True, loose=True, prefix=text.split(_OPEN, 1)[0].translate(_UNMARK)
                )
            ]
        if len(texts) == 1:
            return [word]
        # a part that expands is in each of them; its quotes are not told apart
        return [
            msgspec.structs.replace(word, text=t, plain=t, prefix=t, marked=t if self.expands else "")
            for t in (t.translate(_UNMARK) for t in texts)
        ]


def cook(nodes: Sequence[Node], source: str, lookup: Lookup) -> list[Word]:
    """Return the words that bash makes of adjacent nodes: one, or several if they contain braces.

    `source` is the whole text, with one character for each byte of the parsed tree.
    """
    if len(nodes) == 1:
        text = source[nodes[0].start_byte : nodes[0].end_byte]
        if nodes[0].type == "word" and _PLAIN.fullmatch(text) and "," not in text:
            return [Word(text, text, prefix=text)]
        if nodes[0].type == "brace_expression":
            return [unknown(text)]
    cooker = _Cooker(source, lookup)
    for node in nodes:
        cooker.take(node)
    return cooker.words()


def _unescape(match: re.Match[str]) -> str:
    return match[1] or ""


def _decode_ansi_escape(match: re.Match[str]) -> str:
    for group, base in ((1, 16), (2, 16), (3, 16), (4, 8)):
        if match[group] is not None:
            value = int(match[group].strip("{}") or "0", base)
            if group in (1, 4):  # a byte
                value &= 0xFF
            return chr(value) if value < 0x110000 else "�"
    if match[5] is not None:
        return chr(ord(match[5]) & 31)
    return _ANSI_NAMES.get(match[6], match[6])


_INNERMOST = late_pattern(f"{_OPEN}([^{_OPEN}{_CLOSE}]*){_CLOSE}")


def _expand_braces(text: str) -> list[str] | None:
    """Expand {a,b}, inner groups first. Returns None if there would be too many words, or for a range such as
    {1..3}."""
    done: list[str] = []
    todo = [text]
    if text.count(_OPEN) > 32:
        return None
    while todo:
        if len(done) + len(todo) > _MAX_WORDS:
            return None
        current = todo.pop()
        group = _INNERMOST.search(current)
        if group is None:
            done.append(current)
            continue
        parts = group[1].split(_COMMA)
        if len(parts) == 1:
            if ".." in group[1]:
                return None
            parts = [group[0].translate(_UNMARK)]  # not a group: `{}`, `{a}`
        todo.extend(current[: group.start()] + part + current[group.end() :] for part in reversed(parts))
    return done
