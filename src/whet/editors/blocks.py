"""What a person says in an editor, as text and images: typed words, mentioned files, pasted pictures."""

from __future__ import annotations

from collections.abc import Sequence
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

from whet.contract.messages import ImagePart

Block: TypeAlias = (
    TextContentBlock
    | ImageContentBlock
    | AudioContentBlock
    | ResourceContentBlock
    | EmbeddedResourceContentBlock
)


def read(blocks: Sequence[Block]) -> tuple[str, list[ImagePart]]:
    """Give a prompt's text and images. Raises RequestError for what can't be taken: sound, other bytes."""
    texts, images = list[str](), list[ImagePart]()
    for block in blocks:
        match block:
            case TextContentBlock():
                texts.append(block.text)
            case ImageContentBlock():
                images.append(ImagePart(block.mime_type, block.data))
            case ResourceContentBlock():
                texts.append(f"[{block.title or block.name}]({place(block.uri)})")
            case EmbeddedResourceContentBlock():
                texts.append(_resource(block))
            case AudioContentBlock():
                raise RequestError(-32602, "sound can't be taken")
    text = "".join(texts)
    if not text.strip() and not images:
        raise RequestError(-32602, "there is nothing in the prompt")
    return text, images


def place(uri: str) -> str:
    """Give a file's path for its address; another address stays."""
    parts = urlsplit(uri)
    return unquote(parts.path) if parts.scheme == "file" else uri


def _resource(block: EmbeddedResourceContentBlock) -> str:
    held = block.resource
    if not isinstance(held, TextResourceContents):
        raise RequestError(-32602, f"{place(held.uri)} is no text", {"hint": "mention the file instead"})
    return f"\n\n{place(held.uri)}:\n```\n{held.text}\n```\n"
