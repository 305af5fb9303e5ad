"""The `read_file` and `write_file` tools.

`pages.py` reads pages and `atomic.py` replaces files. Searching files is in `search.py`, changing parts of
them in `patch.py`.
"""

from __future__ import annotations

import base64
import io
import os
import threading
from pathlib import Path
from typing import BinaryIO

import msgspec

from whet.contract.changes import TextChange
from whet.contract.errors import BadInput
from whet.contract.images import image_fault
from whet.contract.messages import ImagePart, image_type
from whet.contract.texts import clean, plural
from whet.contract.tools import ToolContext, ToolOutput
from whet.file_names import printable
from whet.tools import atomic, editor_files
from whet.tools.encoding import (
    Encoding,
    decode,
    describe_form_changes,
    encode,
    find_encoding,
    fit_form,
    may_be_document,
)
from whet.tools.output import size
from whet.tools.pages import LINE_CHARS, PAGE_CHARS, LinePage, format_numbered, read_page
from whet.tools.paths import (
    ConfinedPath,
    FileAccess,
    kind,
    missing_error,
    open_file,
    open_listing,
    system_error,
)
from whet.tools.preview import change_of, read_current, require_approved
from whet.tools.seen import READ_VERSIONS, state_of
from whet.tools.stray_bytes import has_stray_form

IMAGE_BYTES = 5_000_000
_DOCUMENT_CHARS = 4_000_000
_SNIFF_BYTES = 4 << 20
_MAGIC = (
    (b"%PDF-", "a PDF document"),
    (b"PK\x03\x04", "a ZIP archive or a document in one"),
    (b"\x1f\x8b", "a gzip archive"),
    (b"\x7fELF", "an ELF program"),
    (b"SQLite format 3\0", "an SQLite database"),
)


def read(
    ctx: ToolContext, path: str, lines: tuple[int, int], access: FileAccess, stop: threading.Event
) -> ToolOutput:
    """Read a text file, an image or a folder. `lines` are the first line and the number of lines. Raises
    ToolError."""
    target = access.resolve(path, ctx.workspace)
    if kind(target) == "folder":
        return ToolOutput(_listing(target, *lines))
    state = state_of(ctx, target)
    unsaved = editor_files.read_unsaved(ctx.buffers, target)
    if unsaved is not None:
        READ_VERSIONS.note(ctx, target, state)
        return ToolOutput(_unsaved_text(unsaved, target, lines, stop))
    with os.fdopen(open_file(target), "rb") as stream:
        head = stream.read(_SNIFF_BYTES)
        size_bytes = os.fstat(stream.fileno()).st_size
        if image := image_type(head):
            return _image(stream, target, image, size_bytes)
        if may_be_document(head):
            document = _document(stream, size_bytes, lines, stop)
            if document is not None:
                READ_VERSIONS.note(ctx, target, state)
                return ToolOutput(_page_text(document, target, Encoding()))
        encoding = find_encoding(head, is_whole=len(head) == size_bytes)
        if encoding is None:
            return ToolOutput(_binary(target, head, size_bytes))
        page = read_page(stream, encoding, *lines, stop)
    READ_VERSIONS.note(ctx, target, state)
    return ToolOutput(_page_text(page, target, encoding))


class _Rewrite(msgspec.Struct, frozen=True):
    """A whole file about to be written: its text in the form of the old file, and that as bytes."""

    target: ConfinedPath
    change: TextChange
    data: bytes
    note: str


def plan_replacement(ctx: ToolContext, path: str, content: str, access: FileAccess) -> TextChange:
    """Return the change that writing a whole file would make. Raises ToolError if it can't be written."""
    return _plan_rewrite(ctx, path, access.resolve(path, ctx.workspace, writes=True), content).change


def _plan_rewrite(ctx: ToolContext, path: str, target: ConfinedPath, content: str) -> _Rewrite:
    """Plan to write `content` in the encoding and with the line endings of the file that it replaces."""
    if kind(target) == "folder":
        raise BadInput(f"{target.shown} is a folder", hint="name a file in it")
    _refuse_lookalike(ctx, path, target)
    unsaved = editor_files.read_unsaved(ctx.buffers, target)
    before = read_current(target) if unsaved is None else unsaved
    decoded = decode(before or b"")
    old, encoding = decoded or ("", Encoding())
    text = fit_form(content, old)
    note = (
        describe_form_changes(text, old, encoding) if decoded else "it was not text before, and is UTF-8 now"
    )
    return _Rewrite(
        target,
        change_of(target, before, text),
        _encode_content(target, text, encoding),
        note,
    )


def _refuse_lookalike(ctx: ToolContext, path: str, target: ConfinedPath) -> None:
    """Raise BadInput if the path leads to a file with another name that looks the same, and the session does
    not know that file."""
    is_exact = "\\" in path or os.path.lexists(Path(ctx.workspace, os.path.expanduser(path)))
    if not is_exact and kind(target) == "file" and not READ_VERSIONS.knows(ctx, target):
        raise BadInput(
            f"{target.shown} exists, spelled in other characters: {target.name!a}",
            hint="read it before you replace it, or choose another name",
        )


def _encode_content(target: ConfinedPath, text: str, encoding: Encoding) -> bytes:
    try:
        return encode(text, encoding)
    except UnicodeEncodeError as error:
        if "\ud800" <= text[error.start] <= "\udfff":
            raise BadInput(f"content holds a broken character at {error.start}") from error
        raise BadInput(
            f"{target.shown} is {encoding.name}, which can't hold {text[error.start]!r}",
            hint="convert the file to UTF-8 in the terminal first (iconv), if that is right",
        ) from error


def replace(
    ctx: ToolContext, path: str, content: str, access: FileAccess, stop: threading.Event
) -> ToolOutput:
    """Create or replace a whole file and report it. Durable on return. Raises ToolError.

    The encoding, mark, line endings and last newline of the file that it replaces are kept.
    """
    target = access.resolve(path, ctx.workspace, writes=True)
    READ_VERSIONS.check(ctx, target, is_whole=True)
    fingerprint = atomic.fingerprint(target)
    rewrite = _plan_rewrite(ctx, path, target, content)
    change, data, text = rewrite.change, rewrite.data, rewrite.change.new or ""
    require_approved([change], ctx)
    write = atomic.PendingWrite(target, data, fingerprint, text=text)
    notes = editor_files.write_all([write], ctx.buffers, stop.is_set)
    READ_VERSIONS.note(ctx, target)
    verb = "overwrote" if fingerprint else "created"
    lines = text.count("\n") + (not text.endswith("\n") and text != "")
    summary = f"{verb} {target.shown}: {plural(lines, 'line')}, {size(len(data))}"
    shown_notes = "".join(f"\n[{note}]" for note in (rewrite.note, *notes) if note)
    return ToolOutput(f"{summary}{shown_notes}", changes=(change,))


def _unsaved_text(data: bytes, target: ConfinedPath, lines: tuple[int, int], stop: threading.Event) -> str:
    encoding = find_encoding(data, is_whole=True) or Encoding()
    text = _page_text(read_page(io.BytesIO(data), encoding, *lines, stop), target, encoding)
    return f"{text}\n[as it stands in the editor, with changes that are not saved]"


def _page_text(page: LinePage, target: ConfinedPath, encoding: Encoding) -> str:
    if not page.total:
        return f"[{target.shown} is empty]"
    if not page.lines:
        has = plural(page.total, "line") if page.is_counted else f"over {page.total:,} lines"
        raise BadInput(f"{target.shown} has {has}; line {page.first} is past its end")
    body = format_numbered(page)
    cleaned = clean(body)
    notes = [encoding.note] if encoding.note else []
    if page.has_crlf:
        notes.append("lines end with CRLF")
    if len(cleaned) != len(body):
        notes.append(f"{len(body) - len(cleaned)} control characters not shown")
    notes += _describe_odd_bytes(body)
    if page.cut_line:
        rest = f"sed -n {page.cut_line}p FILE | cut -c{LINE_CHARS + 1}-{PAGE_CHARS}"
        notes.append(f"a command shows more of a long line: {rest}")
    last = page.next_line - 1
    if page.ends_open and last == page.total:
        notes.append("no newline at the end")
    if page.first > 1 or last < page.total or not page.is_counted:
        over = "" if page.is_counted else "over "
        notes.append(f"lines {page.first}-{last} of {over}{page.total:,}")
    if last < page.total or not page.is_counted:
        notes.append(f"read on with offset={page.next_line}")
    return f"{cleaned}\n[{'; '.join(notes)}]" if notes else cleaned


def _describe_odd_bytes(body: str) -> list[str]:
    notes: list[str] = []
    if has_stray_form(body):
        notes.append(r"bytes that are not UTF-8 are shown as ‹\xff›; edits can repeat or replace them so")
    if "\ufffd" in body:
        notes.append("unreadable bytes are shown as \ufffd")
    return notes


def _listing(target: ConfinedPath, offset: int, limit: int) -> str:
    try:
        folder = open_listing(target)
        try:
            with os.scandir(folder) as entries:
                sorted_entries = sorted(entries, key=lambda entry: entry.name)
            rows = [_entry(entry, folder) for entry in sorted_entries[offset - 1 : offset - 1 + limit]]
        finally:
            os.close(folder)
    except FileNotFoundError:
        raise missing_error(target) from None
    except OSError as error:
        raise system_error("list", target, error) from error
    if not rows:
        return (
            f"[{target.shown} is an empty folder]"
            if not sorted_entries
            else f"[{len(sorted_entries)} entries in all]"
        )
    last = offset - 1 + len(rows)
    more = f"; read on with offset={last + 1}" if last < len(sorted_entries) else ""
    return "\n".join([*rows, f"[{target.shown}: {plural(len(sorted_entries), 'entry', 'entries')}{more}]"])


def _entry(entry: os.DirEntry[str], folder: int) -> str:
    name = printable(entry.name)
    try:
        if entry.is_symlink():
            return f"{name} -> {printable(os.readlink(entry.name, dir_fd=folder))}"
        if entry.is_dir(follow_symlinks=False):
            return f"{name}/"
        return f"{name}  {size(entry.stat(follow_symlinks=False).st_size)}"
    except OSError:
        return f"{name}  (can't be looked at)"


def _image(stream: BinaryIO, target: ConfinedPath, media_type: str, size_bytes: int) -> ToolOutput:
    text = f"[{target.shown}: {media_type}, {size(size_bytes)}]"
    if size_bytes > IMAGE_BYTES:
        return ToolOutput(f"{text} too large to view; the limit is {size(IMAGE_BYTES)}")
    stream.seek(0)
    data = stream.read(IMAGE_BYTES)
    if fault := image_fault(data):
        return ToolOutput(f"{text} can't be viewed: {fault}. Convert or shrink it with a command first.")
    return ToolOutput(text, images=(ImagePart(media_type, base64.b64encode(data).decode()),))


def _document(
    stream: BinaryIO, size_bytes: int, lines: tuple[int, int], stop: threading.Event
) -> LinePage | None:
    """Read a PDF or an office file as lines, each page under its number. Returns None if it is neither."""
    from whet.tools.document_process import MAX_BYTES, read_document  # noqa: PLC0415 - few files are one

    document = read_document(stream, _DOCUMENT_CHARS, stop.is_set) if size_bytes <= MAX_BYTES else None
    if document is None:
        return None
    page = read_page(io.BytesIO(document.text.encode("utf-8", "replace")), Encoding(), *lines, stop)
    page.is_counted = page.is_counted and not document.is_cut
    return page


def _binary(target: ConfinedPath, head: bytes, size_bytes: int) -> str:
    description = next((name for magic, name in _MAGIC if head.startswith(magic)), "binary")
    return f"[{target.shown} is {description}, {size(size_bytes)}; not text, so not shown]"
