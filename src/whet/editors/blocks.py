"""Convert a prompt of an editor, with its mentioned files and pasted pictures, to text and images.

A mention is only a path or an address. If the model needs the file, a tool reads it under the gate. File
content that an editor embeds is marked as such, so that it is not mistaken for the person's words.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Sequence
from typing import TypeAlias
from urllib.parse import unquote, urlsplit

from acp import RequestError
from acp.schema import (
    AudioContentBlock,
    EmbeddedResourceContentBlock,
    ImageContentBlock,
    ResourceContentBlock,
    TextContentBlock,
    TextResourceContents,
)

from whet.contract.brought_text import wrap_in_tag
from whet.contract.messages import ImagePart, image_in
from whet.contract.texts import paths_in_uri
from whet.tools.files import IMAGE_BYTES
from whet.visible import visible

Block: TypeAlias = (
    TextContentBlock
    | ImageContentBlock
    | AudioContentBlock
    | ResourceContentBlock
    | EmbeddedResourceContentBlock
)

_MAX_CHARS = 2_000_000
_FENCE = re.compile("`{3,}")


def read_prompt(
    blocks: Sequence[Block], find_rule: Callable[[str], str] = lambda path: ""
) -> tuple[str, list[ImagePart]]:
    """Return a prompt's text and images.

    `find_rule` returns the deny rule that protects a file, or "". The model gets the rule instead of such a
    file's content. That is no error, because editors embed open files without being asked.

    Raises RequestError for sound, for other binary data, and for more than two million characters.
    """
    texts: list[str] = []
    images: list[ImagePart] = []
    for block in blocks:
        if line := _refuse_protected(block, find_rule):
            texts.append(wrap_in_tag("file", line))
            continue
        _read_block(block, texts, images)
    text = "".join(texts)
    if not text.strip() and not images:
        raise RequestError(-32602, "there is nothing in the prompt")
    if len(text) > _MAX_CHARS:
        hint = {"hint": "mention the file instead of putting it in"}
        raise RequestError(-32602, f"the prompt has {len(text):,} characters; {_MAX_CHARS:,} go in", hint)
    return text, images


def _read_block(block: Block, texts: list[str], images: list[ImagePart]) -> None:
    match block:
        case TextContentBlock():
            texts.append(block.text)
        case ImageContentBlock():
            images.append(_check_picture(block.mime_type, block.data, "the picture"))
        case ResourceContentBlock():
            link = f"[{_to_line(block.title or block.name)}]({_to_line(path_of_uri(block.uri))})"
            texts.append(wrap_in_tag("mention", link))
        case EmbeddedResourceContentBlock():
            resource = block.resource
            if isinstance(resource, TextResourceContents):
                texts.append(_format_file(path_of_uri(resource.uri), resource.text))
            else:
                images.append(
                    _check_picture(resource.mime_type or "", resource.blob, path_of_uri(resource.uri))
                )
        case AudioContentBlock():
            raise RequestError(-32602, "sound can't be taken")


def path_of_uri(uri: str) -> str:
    """Return the path of a `file:` URI, or any other URI unchanged."""
    parts = urlsplit(uri)
    return unquote(parts.path) if parts.scheme == "file" else uri


def _refuse_protected(block: Block, find_rule: Callable[[str], str]) -> str:
    """Return the line that replaces an embedded file if a deny rule protects it, otherwise ""."""
    if isinstance(block, EmbeddedResourceContentBlock):
        uri = block.resource.uri
    else:
        uri = block.uri if isinstance(block, ImageContentBlock) else None
    for path in paths_in_uri(uri) if uri else ():
        if uri and (rule := find_rule(path)):
            file = _to_line(path_of_uri(uri))
            return f"\n\nThe file {file} is left out: the rule deny: {rule} protects it.\n"
    return ""


def _format_file(path: str, text: str) -> str:
    """Return an embedded file with its name, in a marked tag and a code fence that it can't close."""
    longest = max((len(run) for run in _FENCE.findall(text)), default=2)
    fence = "`" * (longest + 1)
    return "\n\n" + wrap_in_tag("file", f"\nThe file {_to_line(path)} holds:\n{fence}\n{text}\n{fence}\n")


def _check_picture(media_type: str, data: str, label: str) -> ImagePart:
    """Convert a picture, whose bytes decide on its type. Raises RequestError if models do not accept it."""
    hint = {"hint": "mention the file instead"}
    if not media_type.startswith("image/"):
        raise RequestError(-32602, f"{_to_line(label)} is {_to_line(media_type) or 'no text'}", hint)
    try:
        size = len(base64.b64decode(data, validate=True))
    except (binascii.Error, ValueError) as error:
        raise RequestError(-32602, f"{_to_line(label)} is not base64") from error
    if not 0 < size <= IMAGE_BYTES:
        raise RequestError(-32602, f"{_to_line(label)} has {size:,} bytes; at most {IMAGE_BYTES:,} go in")
    if (image := image_in(data)) is None:
        raise RequestError(-32602, f"{_to_line(label)} is not a PNG, JPEG, GIF or WebP", hint)
    return image


def _to_line(text: str) -> str:
    return visible(" ".join(text.split()))[:1_000]
