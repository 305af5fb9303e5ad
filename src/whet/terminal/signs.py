"""The signs on the screen, such as ● and ✗, and their ASCII substitutes."""

from __future__ import annotations

from dataclasses import dataclass

_SPINNER = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
_PLAIN = str.maketrans("…·“”•─−→└", '~-""---~`')
Fragment = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Marks:
    """The signs of the screen. `plain` is set if the encoding has ASCII only."""

    ok: str = "●"
    failed: str = "✗"
    running: str = "○"
    prompt: str = "› "
    queued: str = "↳"
    output: str = "│"
    spinner: str = _SPINNER
    plain: bool = False

    def fit(self, text: str) -> str:
        """Return `text` with characters that the encoding lacks replaced by others of the same width."""
        return text.translate(_PLAIN) if self.plain else text

    @classmethod
    def for_encoding(cls, encoding: str | None) -> Marks:
        """Return the signs that `encoding` can write."""
        try:
            "●✗○›↳│⠋…·".encode(encoding or "ascii")
        except (UnicodeEncodeError, LookupError):
            return cls("*", "x", "o", "> ", "+", "|", "-\\|/", plain=True)
        return cls()
