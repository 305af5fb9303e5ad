"""Find the tool that a package runner or an interpreter runs: `npx TOOL`, `python3 manage.py`."""

from __future__ import annotations

import re
from collections.abc import Sequence

from whet.late import late_pattern
from whet.shell.programs import by_name, program
from whet.shell.spellings import find_operands
from whet.shell.words import Word, literal, name_of

# The words that come before a runner's tool.
_RUNNERS: dict[str, tuple[tuple[str, ...], ...]] = by_name(
    {
        "npx bunx pnpx uvx": ((),),
        "bun": (("x",),),
        "pipx": (("run",),),
        "uv": (("tool", "run"),),
        "deno go": (("run",),),
    }
)
_RUNS_BINARIES = frozenset(("pnpm", "yarn", "bun"))
# The programs of packages that have another name.
_PACKAGES = {
    "firebase-tools": "firebase",
    "netlify-cli": "netlify",
    "aws-cdk": "cdk",
    "@railway/cli": "railway",
    "@cloudflare/wrangler": "wrangler",
}
# Runners of the project's own files too, and what tells a package from those.
_RUNS_FILES = frozenset(("deno", "go"))
_IS_PACKAGE = late_pattern(r"^(?:npm|jsr):|^[\w.-]+\.[a-z]+/.*@")
_VERSION = late_pattern(r"(?<=.)@[^/]*\Z|(?:\[|[=<>~!]=?).*", re.DOTALL)


def find_tool(words: Sequence[Word]) -> int | None:
    """Return the position of the last word before the options of a tool that `words` run, or None."""
    name = name_of(words[0])
    texts = [word.text for word in words[1:]]
    is_interpreter = program(name.rstrip("0123456789.")).code is not None
    runs_listed = name in _RUNS_BINARIES or is_interpreter
    for at in find_operands(texts) if runs_listed or name in _RUNNERS else ():
        for verbs in _RUNNERS.get(name, ()):
            if texts[at : at + len(verbs)] == list(verbs):
                is_far = name not in _RUNS_FILES or any(_IS_PACKAGE.search(t) for t in texts[at + 1 :])
                return (at + len(verbs) if verbs else 0) if is_far else None
        if runs_listed and at < len(texts) and _has_verbs(words[at + 1]):
            is_script = re.search(r"\.\w+\Z|(?:^|/)bin/|(?:^|/)artisan\Z", texts[at])
            return at if is_script or not is_interpreter else None
    return None


def name_tool(words: Sequence[Word]) -> list[Word]:
    """Return a tool's words with its program's name in place of its package's: `wrangler@3`, `@a/tool`."""
    first = words[0]
    if first.dynamic or first.text.startswith((".", "/")):
        return list(words)
    package = _VERSION.sub("", re.sub(r"^(?:npm|jsr):", "", first.text))
    return [literal(_PACKAGES.get(package) or package.rpartition("/")[2]), *words[1:]]


def _has_verbs(word: Word) -> bool:
    """Return whether a table lists the verbs of the program that a word names."""
    facts = program(name_of(word))
    return not word.dynamic and (facts.spared is not None or bool(facts.verbs))
