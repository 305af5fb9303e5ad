"""Parse Codex's patch format, `*** Begin Patch` to `*** End Patch`, into the same values as a unified diff.

No I/O. Format: the instructions of the apply_patch tool of OpenAI's Codex.
"""

from __future__ import annotations

from whet.contract.errors import BadInput
from whet.tools.diffs import FilePatch, Hunk, HunkRow

_ADD, _DELETE, _UPDATE = "*** Add File: ", "*** Delete File: ", "*** Update File: "
_MOVE, _END_OF_FILE, _BEGIN, _END = "*** Move to: ", "*** End of File", "*** Begin Patch", "*** End Patch"


def parse_envelope(text: str) -> list[FilePatch]:
    """Parse a patch of one or more files. Raises BadInput with its line number."""
    reading = _Reading()
    for number, line in enumerate(text.strip().split("\n"), 1):
        reading.line(line.removesuffix("\r"), number)
    return reading.patches()


class _Reading:
    """The files of a patch, while its lines are read."""

    def __init__(self) -> None:
        self._files: list[tuple[str, str, list[Hunk]]] = []
        self._below = ""
        self._rows: list[HunkRow] = []

    def line(self, line: str, number: int) -> None:
        """Read a line. Raises BadInput."""
        if line.startswith((_BEGIN, _END, _END_OF_FILE)):
            self._end_hunk()
        elif line.startswith(_MOVE):
            raise BadInput(
                "the patch renames a file", hint="rename with the terminal, then patch the content"
            )
        elif line.startswith((_ADD, _DELETE, _UPDATE)):
            self._end_hunk()
            kind, _, name = line.partition(": ")
            name = name.strip()
            old, new = "" if kind.endswith("Add File") else name, "" if "Delete" in kind else name
            self._files.append((old, new, []))
        elif not self._files:
            raise BadInput(f"line {number} of the patch is of no file", hint=f"begin with {_UPDATE}PATH")
        elif line.startswith("@@"):
            self._end_hunk()
            self._below = line[2:].strip().removesuffix("@@").strip()
        else:
            self._row(line, number)

    def patches(self) -> list[FilePatch]:
        """Return the parsed files. Raises BadInput if a file has no change."""
        self._end_hunk()
        if not self._files or any(old and new and not hunks for old, new, hunks in self._files):
            raise BadInput("the patch changes nothing", hint="give lines that start with - or +")
        return [FilePatch(old, new, tuple(hunks)) for old, new, hunks in self._files]

    def _row(self, line: str, number: int) -> None:
        sign, text = line[:1] or " ", line[1:]
        if sign not in (" ", "+", "-"):
            problem = f"line {number} of the patch starts with {sign!r}"
            raise BadInput(problem, hint="begin each line with a space, + or -")
        self._rows.append(HunkRow(sign, text))

    def _end_hunk(self) -> None:
        rows, self._rows = self._rows, []
        if any(row.sign != " " for row in rows):
            is_new = not self._files[-1][0]
            self._files[-1][2].append(Hunk(0 if is_new else None, tuple(rows), self._below))
        self._below = ""
