"""Receive files from people in chats, and send files of the workspace to them."""

from __future__ import annotations

import asyncio
import base64
import mimetypes
import os
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Annotated

import msgspec

from whet.app.received_files import MAX_IMAGE_BYTES, image_type, save_attachment
from whet.channels.pieces import split_message
from whet.contract.brought_text import wrap_in_tag
from whet.contract.channels import (
    Channel,
    FileBounds,
    FileRef,
    Incoming,
    Outgoing,
    PlatformLimits,
    SendFailed,
)
from whet.contract.errors import BadInput, WhetError
from whet.contract.images import image_fault
from whet.contract.messages import ImagePart
from whet.contract.tools import Tool, ToolContext
from whet.gateway.voice import VoiceNotes
from whet.sandbox.path_rules import NO_RULES, PathRules
from whet.tools.signature import tool
from whet.visible import visible

_MAX_FILES = 10
_MAX_SENT_FILES = 50


class ChatFiles:
    """The folders of one home: `people` for other people's files, `workspace` for the owner's."""

    def __init__(self, people: Path, workspace: Path, max_bytes: int, voice: VoiceNotes) -> None:
        self._voice = voice
        self._people = people
        self._workspace = workspace
        self._max_bytes = max_bytes

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
        """Save an update's files. Returns its text with a line about each file, and the images.

        The line about a file that is too large or can't be fetched has the reason.
        """
        lines: list[str] = []
        images: list[ImagePart] = []
        for file in update.files[:_MAX_FILES]:
            display_name = visible(file.name, 80).replace("\n", " ") or "a file without a name"
            try:
                data = await self._fetch(channel, file)
                path = await asyncio.to_thread(save_attachment, self.workspace(profile), file.name, data)
            except (SendFailed, WhetError, OSError) as error:
                failure = f"[{display_name!r} was sent and could not be taken: {_explain(error)}]"
                lines.append(wrap_in_tag("file", failure))
                continue
            heading = f"[file received: {path.relative_to(self.workspace(profile))}, {len(data):,} bytes]"
            lines.append(wrap_in_tag("file", heading))
            mime = image_type(data)
            if mime and (fault := image_fault(data)):
                lines.append(f"[it is not an image that you can see: {fault}]")
            elif mime and len(data) <= MAX_IMAGE_BYTES:
                images.append(ImagePart(mime, base64.b64encode(data).decode()))
            elif _is_recording(file):
                lines.append(await self._voice.describe(path.name, data))
        if len(update.files) > _MAX_FILES:
            lines.append(f"[{len(update.files) - _MAX_FILES} more files were left out]")
        return "\n".join([*filter(None, [update.text]), *lines]), images

    async def _fetch(self, channel: Channel, file: FileRef) -> bytes:
        if file.size_bytes > self._max_bytes:
            raise WhetError(f"it is larger than {self._max_bytes // 1_000_000} MB")
        return await channel.fetch(file, self._max_bytes)


def _is_recording(file: FileRef) -> bool:
    kind = file.mime or mimetypes.guess_type(file.name)[0] or ""
    return kind.startswith(("audio/", "video/"))


def find_sendable_file(workspace: Path, path: str, max_bytes: int, rules: PathRules = NO_RULES) -> Path:
    """Return the real path of a file that may be sent: a regular file inside the workspace which no deny rule
    protects. Raises WhetError."""
    full = Path(os.path.realpath(workspace / path))
    root = Path(os.path.realpath(workspace))
    if root not in full.parents or not full.is_file():
        raise WhetError(
            f"{path} is not a file in {workspace}", hint="only files of the workspace can be sent"
        )
    if rule := rules.find(full, workspace, writes=False):
        raise WhetError(f"the rule deny: {rule} protects {path}")
    if full.stat().st_size > max_bytes:
        raise WhetError(f"{path} is larger than {max_bytes // 1_000_000} MB")
    return full


def _explain(error: SendFailed | WhetError | OSError) -> str:
    if isinstance(error, SendFailed):
        return error.reason
    return error.message if isinstance(error, WhetError) else str(error.strerror)


Post = Callable[[str, Outgoing], Awaitable[bool]]
"""Queues a message for a session's conversation. Returns False if it has none."""


def send_file_tool(post: Post, max_bytes: int, rules: PathRules = NO_RULES) -> Tool:
    """Make the `send_file` tool. It sends no file that the `rules` protect."""

    # It reaches only the reader of the answer, so it has no more effect than quoting the file: the gate asks
    # about files with keys, as for `read_file`.
    @tool(toolset="file", effects={"read"}, timeout_s=30)
    async def send_file(
        ctx: ToolContext,
        path: Annotated[str, "in the workspace"],
        caption: str = "",
        more: Annotated[tuple[str, ...], "more files, sent with it"] = (),
    ) -> str:
        """Send a file of the workspace to the person, or several as an album."""
        if len(more) >= _MAX_SENT_FILES:
            raise BadInput(f"at most {_MAX_SENT_FILES} files can be sent at once")
        try:
            files = [find_sendable_file(ctx.workspace, name, max_bytes, rules) for name in (path, *more)]
        except WhetError as error:
            raise BadInput(error.message, hint=error.hint) from None
        first, *others = dict.fromkeys(files)
        message = Outgoing(
            caption,
            file=str(first),
            file_name=first.name,
            bounds=FileBounds(os.path.realpath(ctx.workspace), max_bytes),
            more_files=tuple(map(str, others)),
        )
        if not await post(ctx.session_id, message):
            raise BadInput("there is nobody to send it to here")
        if not others:
            return f"{first.name} is on its way."
        names = ", ".join(file.name for file in (first, *others))
        return f"{len(others) + 1} files are on their way: {names}."

    return send_file


def split_album(message: Outgoing, limits: PlatformLimits) -> list[Outgoing]:
    """Split a message with files into messages that a platform accepts.

    The first one has the caption. The rest of a long text follows in messages of its own.
    """
    first_chars = limits.caption_chars or limits.message_chars
    caption, *more_texts = split_message(message.text, limits.message_chars, first_chars)
    albums: list[list[str]] = []
    album_bytes = 0
    for path in (message.file, *message.more_files):
        size_bytes = os.stat(path).st_size if os.path.exists(path) else 0
        album_bytes += size_bytes
        if not albums or len(albums[-1]) >= limits.album_files or album_bytes > limits.album_bytes:
            albums.append([])
            album_bytes = size_bytes
        albums[-1].append(path)
    messages = [
        msgspec.structs.replace(
            message,
            text="" if at else caption,
            file=album[0],
            file_name="" if at else message.file_name,
            more_files=tuple(album[1:]),
        )
        for at, album in enumerate(albums)
    ]
    return [messages[0], *(Outgoing(text, quiet=message.quiet) for text in more_texts), *messages[1:]]
