"""Files that people send: saved by `app/received_files.py`, with images shown to the model.

Independent of platforms.
"""

from __future__ import annotations

import asyncio
import base64
import os
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Annotated

from whet.app.received_files import MAX_IMAGE_BYTES, image_type, save_attachment
from whet.contract.channels import Channel, FileBounds, FileRef, Incoming, Outgoing, SendFailed
from whet.contract.errors import BadInput, WhetError
from whet.contract.images import image_fault
from whet.contract.messages import ImagePart
from whet.contract.tools import Tool, ToolContext
from whet.tools.signature import tool
from whet.visible import visible

_MAX_FILES = 10


class ChatFiles:
    """The folders of one home: `people` for other people's files, `workspace` for the owner's."""

    def __init__(self, people: Path, workspace: Path, most_bytes: int) -> None:
        self._people = people
        self._workspace = workspace
        self._most_bytes = most_bytes

    def workspace(self, profile: str) -> Path:
        """Return the folder of a person's sessions: the owner's workspace, or a folder in the home."""
        if not profile:
            return self._workspace
        folder = self._people / profile / "work"
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        return folder

    async def receive(
        self, channel: Channel, update: Incoming, profile: str
    ) -> tuple[str, Sequence[ImagePart]]:
        """Fetch an update's files. Returns its text with a line on each file, and the images.

        A file that is too large or can't be fetched gets a line with the reason. Never raises.
        """
        lines: list[str] = []
        images: list[ImagePart] = []
        for file in update.files[:_MAX_FILES]:
            display_name = visible(file.name, 80).replace("\n", " ") or "a file without a name"
            try:
                data = await self._fetch(channel, file)
                path = await asyncio.to_thread(save_attachment, self.workspace(profile), file.name, data)
            except (SendFailed, WhetError, OSError) as error:
                lines.append(f"[{display_name!r} was sent and could not be taken: {_why(error)}]")
                continue
            lines.append(f"[file received: {path.relative_to(self.workspace(profile))}, {len(data):,} bytes]")
            mime = image_type(data)
            if mime and (fault := image_fault(data)):
                lines.append(f"[it is no image that you can see: {fault}]")
            elif mime and len(data) <= MAX_IMAGE_BYTES:
                images.append(ImagePart(mime, base64.b64encode(data).decode()))
        if len(update.files) > _MAX_FILES:
            lines.append(f"[{len(update.files) - _MAX_FILES} more files were left out]")
        return "\n".join([*filter(None, [update.text]), *lines]), images

    async def _fetch(self, channel: Channel, file: FileRef) -> bytes:
        if file.size_bytes > self._most_bytes:
            raise WhetError(f"it is larger than {self._most_bytes // 1_000_000} MB")
        return await channel.fetch(file, self._most_bytes)


def find_sendable_file(workspace: Path, path: str, most_bytes: int) -> Path:
    """Return the path of a file that may be sent: a regular file inside the workspace. Raises WhetError."""
    full = Path(os.path.realpath(workspace / path))
    root = Path(os.path.realpath(workspace))
    if root not in full.parents or not full.is_file():
        raise WhetError(f"{path} is no file in {workspace}", hint="only files of the workspace can be sent")
    if full.stat().st_size > most_bytes:
        raise WhetError(f"{path} is larger than {most_bytes // 1_000_000} MB")
    return full


def _why(error: SendFailed | WhetError | OSError) -> str:
    if isinstance(error, SendFailed):
        return error.reason
    return error.message if isinstance(error, WhetError) else str(error.strerror)


Post = Callable[[str, Outgoing], Awaitable[bool]]
"""Queues a message for a session's conversation. Returns False if it has none."""


def send_file_tool(post: Post, most_bytes: int) -> Tool:
    """Make the `send_file` tool."""

    # It reaches only the reader of the answer, so it has no more effect than quoting the file.
    @tool(toolset="file", effects={"read"}, timeout_s=30)
    async def send_file(ctx: ToolContext, path: Annotated[str, "in the workspace"], caption: str = "") -> str:
        """Send a file of the workspace to the person."""
        try:
            full = find_sendable_file(ctx.workspace, path, most_bytes)
        except WhetError as error:
            raise BadInput(error.message, hint=error.hint) from None
        bounds = FileBounds(os.path.realpath(ctx.workspace), most_bytes)
        message = Outgoing(caption[:1000], file=str(full), file_name=full.name, bounds=bounds)
        if not await post(ctx.session_id, message):
            raise BadInput("there is nobody to send it to here")
        return f"{full.name} is on its way."

    return send_file
