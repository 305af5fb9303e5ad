"""The signs that the terminal shows, in characters that its encoding has."""

from __future__ import annotations

from dataclasses import dataclass

_SPINNER = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
_PLAIN = str.maketrans("…·“”•─−→└", '~-""---~`')
Fragment = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Marks:
    """The few signs of the screen, in characters that its encoding has."""

    ok: str = "●"
    failed: str = "✗"
    running: str = "○"
    prompt: str = "› "
    queued: str = "↳"
    output: str = "│"
    spinner: str = _SPINNER
    plain: bool = False

    def fit(self, text: str) -> str:
        """Return `text` in characters that the encoding has, with the same width."""
        return text.translate(_PLAIN) if self.plain else text

    @classmethod
    def for_encoding(cls, encoding: str | None) -> Marks:
        """Return the signs that `encoding` can write."""
        try:
            "●✗○›↳│⠋…·".encode(encoding or "ascii")
        except (UnicodeEncodeError, LookupError):
            return cls("*", "x", "o", "> ", "+", "|", "-\\|/", plain=True)
        return cls()
