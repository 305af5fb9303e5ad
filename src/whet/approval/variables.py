"""Variables that make programs run or read something else, for one command or for later ones."""

from __future__ import annotations

import os
import re

from whet.approval.readonly import only_reads
from whet.approval.risk import Piece
from whet.approval.scopes import escape_pattern
from whet.late import late_pattern
from whet.shell.programs import ProgramWords
from whet.shell.state import ShellScript
from whet.shell.words import Word, literal

# Setting these makes a program run something else or look elsewhere.
_STEERING = late_pattern(
    r"PATH|(LD|DYLD|GIT|PYTHON(?!UNBUFFERED|DONTWRITE|HASHSEED|WARNINGS|UTF8|IOENCODING)|PERL5|RUBY"
    r"|NODE_(?!ENV$)|JAVA_TOOL|BASH|XDG|SSH)\w*|\w+_(proxy|PROXY)"
    r"|(npm_config|NPM_CONFIG|PNPM|YARN|PIP|UV|PDM|POETRY|CARGO|BUNDLE|GEM|GO|RUST)\w*|DOCKER_HOST|TAR_OPTIONS|ZIPOPT"
    r"|\w*(PAGER|EDITOR|WRAPPER|LAUNCHER|RUNNER|LINKER|_RSH|MAKEFLAGS|MAKEFILES)|LD|AR|VISUAL|BROWSER|SHELL|SHELLOPTS|ENV|IFS|PS\d|PROMPT_COMMAND|CDPATH|HOME|CC|CXX|LESS\w*|GCONV_PATH"
)
# Those of them that name a program, and the programs that they are usually set to.
_PROGRAMS = late_pattern(
    r"\w*(PAGER|EDITOR|WRAPPER|LAUNCHER|RUNNER|LINKER|_RSH)|VISUAL|BROWSER|SHELL|CC|CXX|LESS|LESSEDIT|RUSTC|LD|AR"
)
_KNOWN_PROGRAMS = ProgramWords(
    "cat less more most true false nano vi vim nvim code emacs micro ed gcc g++ cc c++ clang clang++ ccache"
    " sccache bash sh zsh firefox ld lld mold ar delta bat -R -F -X -RFX -FRX FRX RFX R"
)
# Variables that determine where programs, their options and their packages come from.
_SOURCES = late_pattern(
    r"(npm_config|NPM_CONFIG|PNPM|YARN)_\w*(shell|SHELL|registry|REGISTRY|config|CONFIG|options|OPTIONS)\w*"
    r"|(PIP|UV|PDM|POETRY|CARGO|BUNDLE|GEM|GO)_\w*(INDEX|CONFIG|TRUSTED|REGISTR|MIRROR|LINKS)\w*"
    r"|\w*(MAKEFLAGS|MAKEFILES|RUSTFLAGS|TAR_OPTIONS|ZIPOPT|GOFLAGS|GOPROXY|CARGO_BUILD_\w+|CARGO_TARGET_\w+|DOCKER_HOST)"
)
_HIJACKING = late_pattern(
    r"LD_(PRELOAD|AUDIT|LIBRARY_PATH)|DYLD_\w+|IFS|BASH_ENV|ENV|PS4|PROMPT_COMMAND|SHELLOPTS|BASHOPTS|LESSOPEN|LESSCLOSE"
    r"|SSH_ASKPASS|GIT_(SSH|SSH_COMMAND|EXTERNAL_DIFF|PROXY_COMMAND|ASKPASS|EXEC_PATH|CONFIG\w*|TEMPLATE_DIR|DIR|COMMON_DIR|\w*OBJECT\w*|ATTR\w*)|PERL5(OPT|DB|LIB)|RUBYOPT"
    r"|PYTHON(STARTUP|HOME|INSPECT)|BASH_FUNC\S*|GCONV_PATH|JAVA_TOOL_OPTIONS|NODE_REPL_EXTERNAL_MODULE"
)
_HARMLESS_SETTINGS = late_pattern(
    r"LANG|LC_\w+|TZ|TERM|NO_COLOR|COLUMNS|LINES|FORCE_COLOR|CI|[a-z_][a-z0-9_]*"
)

_EXPORTERS = ProgramWords("export declare typeset set readonly local")


def is_name_table(name: str) -> bool:
    """Return whether a variable, or its item, is one of bash's tables of what a command's name runs."""
    return name.partition("[")[0] in ("BASH_CMDS", "BASH_ALIASES")


def judge_variable(name: str, word: Word) -> tuple[Piece | None, bool]:
    """Judge an assignment. Returns its piece, or None, and whether a command with it may run without a
    question."""
    text, exact = (f"{name}={form}" for form in (word.normal_form, word.exact_form))
    if _HIJACKING.fullmatch(name) or (_STEERING.fullmatch(name) and _names_program(name, word)):
        reason = f"{name} makes other programs run or load something else"
        return Piece(text, name, "dangerous", (reason,), escape_pattern(exact), exact=exact), True
    if name == "PYTHONPATH" and not word.dynamic and not word.text.startswith("/"):
        return None, False
    if _STEERING.fullmatch(name):
        return Piece(text, name, "normal", (), escape_pattern(exact), exact=exact), True
    return None, _HARMLESS_SETTINGS.fullmatch(name) is not None


def judge_loops(script: ShellScript) -> tuple[list[Piece], bool]:
    """Judge the variables that loops set. Returns their pieces, and whether a command with them may run
    without a question: programs see a variable only if it is exported."""
    may_export = any(run.words and run.words[0].text in _EXPORTERS for run in script.invocations)
    pieces, is_everyday = list[Piece](), True
    for name, word in script.loops:
        piece, is_harmless = judge_variable(name, word)
        if piece is not None:
            pieces.append(piece)
        is_everyday = is_everyday and (is_harmless or not (may_export or name in os.environ))
    return pieces, is_everyday


def _names_program(name: str, word: Word) -> bool:
    """Return whether a variable that names a program or its source is set to an unusual value."""
    if _SOURCES.fullmatch(name):
        return True
    if name == "NODE_OPTIONS":
        return re.search(r"-(r|-require|-import|-loader|-experimental-loader)\b", word.text) is not None
    if not _PROGRAMS.fullmatch(name) or word.text == "":
        return False
    if re.fullmatch(r"[\w+.-]+( -[\w-]+)*", word.text) and not word.dynamic:
        first = word.text.split(" ")[0]
        return first not in _KNOWN_PROGRAMS and not only_reads([literal(first)])
    return True
