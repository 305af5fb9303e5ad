"""The read-only pages of the files in a session's workspace, and the images of its messages."""

from __future__ import annotations

import asyncio
import base64
import os
import stat
from pathlib import Path

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from whet.beneath import open_beneath, open_folder
from whet.contract.messages import image_type
from whet.serve.board import shown
from whet.serve.board.frame import Frame
from whet.serve.board.marked import CodeRun, mark_file
from whet.serve.wire import ApiError
from whet.store import replay, sessions
from whet.web.sessions import Visit

_MAX_ENTRIES, _MAX_BYTES = 2_000, 400_000
# Keep a browser that opens an image directly from running anything in it.
_IMAGE_HEADERS = {
    "content-security-policy": "default-src 'none'; sandbox",
    "cache-control": "private, max-age=86400, immutable",
}


class FolderEntry(msgspec.Struct, frozen=True, order=True):
    """A file or folder. Folders sort first."""

    is_file: bool
    name: str
    size_bytes: int = 0
    is_link: bool = False


class FilePages:
    """Shows the workspace of a session and the images of its messages."""

    def __init__(self, frame: Frame) -> None:
        self._frame = frame

    async def image(self, request: Request, visit: Visit) -> Response:
        """Return one image of a message."""
        session_id = request.path_params["id"]
        seq: int = request.path_params["seq"]
        number: int = request.path_params["number"]
        entries = await self._frame.services.database.read(
            lambda db: replay.list_entries(db, session_id, seq, 1)
        )
        images = entries[0].message.images if entries and entries[0].seq == seq else ()
        if number >= len(images):
            raise ApiError(404, "There is no such image.")
        data = base64.b64decode(images[number].data_base64)
        kind = image_type(data)
        if not kind:
            raise ApiError(404, "This is not an image that a browser shows.")
        return Response(data, media_type=kind, headers=_IMAGE_HEADERS)

    async def files(self, request: Request, visit: Visit) -> Response:
        """Show a folder or a file of the session's workspace. Links are not followed."""
        session_id, path = request.path_params["id"], request.query_params.get("path", "").strip("/")
        services = self._frame.services
        row = await services.database.read(lambda db: sessions.get(db, session_id))
        root = Path(row.workspace or services.workspace)
        names = [name for name in path.split("/") if name]
        if any(name in (".", "..") or "\0" in name for name in names):
            raise ApiError(404, "There is no such file.")
        entries: list[FolderEntry] = []
        lines: tuple[tuple[CodeRun, ...], ...] = ()
        note = ""
        try:
            if await asyncio.to_thread(_is_folder, root, names):
                entries = await asyncio.to_thread(_list_folder, root, names)
                if len(entries) > _MAX_ENTRIES:
                    note = f"{len(entries) - _MAX_ENTRIES:,} more entries are not listed."
            else:
                lines, note = _mark_content(await asyncio.to_thread(_read_file, root, path), path)
        except OSError as error:
            raise ApiError(404, f"This can't be shown: {error.strerror or error}.") from error
        return self._frame.page(
            "files.html",
            visit,
            here="sessions",
            row=row,
            root=str(root),
            names=names,
            path=path,
            entries=entries[:_MAX_ENTRIES],
            lines=lines,
            is_file=not entries and bool(lines or note),
            note=note,
        )


def _is_folder(root: Path, names: list[str]) -> bool:
    if not names:
        return True
    with open_folder(root, names[:-1]) as folder:
        return stat.S_ISDIR(os.stat(names[-1], dir_fd=folder, follow_symlinks=False).st_mode)


def _list_folder(root: Path, names: list[str]) -> list[FolderEntry]:
    entries: list[FolderEntry] = []
    with open_folder(root, names) as handle:
        folder = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=handle)
    try:
        for name in os.listdir(folder):
            status = os.stat(name, dir_fd=folder, follow_symlinks=False)
            is_folder = stat.S_ISDIR(status.st_mode)
            is_link = stat.S_ISLNK(status.st_mode)
            entries.append(FolderEntry(not is_folder, name, 0 if is_folder else status.st_size, is_link))
    finally:
        os.close(folder)
    return sorted(entries)


def _read_file(root: Path, path: str) -> bytes:
    with open_beneath(root, path) as file:
        return file.read(_MAX_BYTES + 1)


def _mark_content(data: bytes, path: str) -> tuple[tuple[tuple[CodeRun, ...], ...], str]:
    """Return a file's lines with marks, and a note if the file is not text, too long or empty."""
    if b"\0" in data:
        return (), "This is not text."
    text = data[:_MAX_BYTES].decode("utf-8", "replace").removesuffix("\n")
    note = f"Only the first {_MAX_BYTES:,} bytes are shown." if len(data) > _MAX_BYTES else ""
    if not text:
        return (), note or "The file is empty."
    return mark_file(shown.text(text, _MAX_BYTES), path), note
