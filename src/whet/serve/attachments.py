"""Replace the attachments of a request: images given by URL by their data, documents by their text.

Changes the decoded JSON of all three formats in place, before the messages are read. URLs are fetched as by
the `web_fetch` tool: only public addresses, unless the settings allow private ones.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections import OrderedDict
from collections.abc import Iterator
from hashlib import sha256
from io import BytesIO
from typing import Any, cast

from whet.contract.brought_text import wrap_in_tag
from whet.contract.errors import ToolError
from whet.contract.messages import image_type
from whet.contract.texts import as_object
from whet.lanes import ToolPool
from whet.serve.content import IMAGE_LIMIT_BYTES
from whet.serve.wire import ApiError
from whet.tools.encoding import decode, may_be_document
from whet.tools.page_source import FetchedPage, PageSource, RefuseRedirect, WebLimits

MAX_ATTACHMENTS = 50
MAX_TEXT_CHARS = 200_000
_KEPT = 8
_KEPT_CHARS = 4_000_000
_HTTP = re.compile(r"https?://", re.IGNORECASE)
_DATA = re.compile(r"data:[^,]{0,200};base64,", re.IGNORECASE)
_CONTAINERS = ("content", "output")
"""The fields of a message, an item or a result that may hold a list of parts."""


class Attachments:
    """Fetches and reads the attachments of requests. Caches the last images and the texts of the last
    documents, because clients send the whole conversation each time.

    `refuse` returns why an address may not be fetched, or an empty string.
    """

    def __init__(self, pool: ToolPool, limits: WebLimits, refuse: RefuseRedirect | None = None) -> None:
        self._pool = pool
        self._refuse = refuse
        self._limits = limits
        self._source: PageSource | None = None
        self._images: OrderedDict[str, str] = OrderedDict()
        self._texts: OrderedDict[bytes, str] = OrderedDict()

    async def include(self, messages: object, name: str) -> None:
        """Replace the URLs of images, and all documents, in `messages`. `name` is the field that contains
        them. Raises ApiError that names the part."""
        for count, (part, location) in enumerate(_find_attachments(messages, name)):
            if count >= MAX_ATTACHMENTS:
                raise ApiError(400, f"more than {MAX_ATTACHMENTS} attachments", param=location)
            try:
                await self._include_part(part)
            except ToolError as error:
                text = f"{error.message} ({error.hint})" if error.hint else error.message
                raise ApiError(400, text, param=location, code="invalid_attachment") from error

    async def _include_part(self, part: dict[str, Any]) -> None:
        if (url := _image_url(part)) is not None:
            data = await self._image(url)
            if part["type"] == "image":
                part["source"] = {"type": "base64", "media_type": "image/png", "data": data}
            else:
                part["image_url"] = f"data:image/png;base64,{data}"  # the type is read from the bytes
            return
        (url, data), name = _document_of(part)
        content = (await self._fetch(url)).body if url else _decode(data)
        text = await self._read(content)
        part.clear()
        heading = f"[file {name}]" if name else "[file]"
        part.update({"type": "text", "text": wrap_in_tag("file", f"{heading}\n{text}")})

    async def _image(self, url: str) -> str:
        data = self._images.get(url)
        if data is None:
            page = await self._fetch(url)
            if not image_type(page.body) or len(page.body) > IMAGE_LIMIT_BYTES:
                raise ToolError("the URL holds no PNG, JPEG, GIF or WebP")
            data = base64.b64encode(page.body).decode()
        self._images[url] = data
        self._images.move_to_end(url)
        while len(self._images) > _KEPT:
            self._images.popitem(last=False)
        return data

    async def _read(self, content: bytes) -> str:
        """Return the text of a file, from the cache if it is a document there. Raises ToolError."""
        if not may_be_document(content):
            return await self._pool.run(_read_text, content)
        digest = sha256(content).digest()
        text = self._texts.get(digest)
        if text is None:
            text = await self._pool.run(_read_document, content)
        self._texts[digest] = text
        self._texts.move_to_end(digest)
        while sum(map(len, self._texts.values())) > _KEPT_CHARS:
            self._texts.popitem(last=False)
        return text

    async def _fetch(self, url: str) -> FetchedPage:
        if not _HTTP.match(url):
            raise ToolError("only http and https URLs are fetched")
        if self._source is None:
            from whet.tools.fetch import Fetcher  # noqa: PLC0415 - few requests name a URL

            self._source = Fetcher(self._limits)
        if self._refuse is not None and (why := await self._refuse(url, True)):
            raise ToolError(f"{url} is not fetched: {why}")
        page = await self._source.fetch(url, self._refuse)
        if page.status >= 400:
            raise ToolError(f"the URL answers with HTTP {page.status}")
        if page.is_cut:
            raise ToolError("the file behind the URL is too large")
        return page


def _find_attachments(value: object, location: str) -> Iterator[tuple[dict[str, Any], str]]:
    """Yield the parts to replace in a list of messages, items or parts, with their locations."""
    if not isinstance(value, list):
        return
    for number, item in enumerate(cast("list[object]", value)):
        fields = cast("dict[str, Any]", item) if isinstance(item, dict) else _fields_of(item)
        here = f"{location}[{number}]"
        if isinstance(item, dict) and (_image_url(fields) is not None or any(_document_of(fields)[0])):
            yield fields, here
            continue
        for name in _CONTAINERS:
            yield from _find_attachments(fields.get(name), f"{here}.{name}")


def _fields_of(item: object) -> dict[str, Any]:
    return {name: getattr(item, name, None) for name in _CONTAINERS}


def _image_url(part: dict[str, Any]) -> str | None:
    """Return the http(s) URL of an image part, or None."""
    kind, url = part.get("type"), part.get("image_url")
    if kind == "image":
        source = as_object(part.get("source"))
        url = source.get("url") if source.get("type") == "url" else None
    elif kind not in ("image_url", "input_image"):
        return None
    url = as_object(cast("object", url)).get("url", url)
    return url if isinstance(url, str) and _HTTP.match(url) else None


def _document_of(part: dict[str, Any]) -> tuple[tuple[str, str], str]:
    """Return the URL and the base64 data of a file part, of which one is empty, and the file's name. Both are
    empty if the part is not a file."""
    kind = part.get("type")
    if kind == "document":
        source = as_object(part.get("source"))
        url = source.get("url") if source.get("type") == "url" else ""
        data = source.get("data") if source.get("type") == "base64" else ""
        name = part.get("title")
    elif kind in ("file", "input_file"):
        file = as_object(part.get("file")) if kind == "file" else part
        url, data, name = file.get("file_url"), file.get("file_data"), file.get("filename")
    else:
        return ("", ""), ""
    return (_text_or_empty(url), _text_or_empty(data)), " ".join(_text_or_empty(name).split())[:200]


def _decode(data: str) -> bytes:
    try:
        return base64.b64decode(_DATA.sub("", data, count=1), validate=True)
    except (binascii.Error, ValueError) as error:
        raise ToolError("the file is not base64") from error


def _read_document(content: bytes) -> str:
    """Return the text of a PDF or an office file, parsed in a process of its own. Raises ToolError."""
    from whet.tools.document_process import read_document  # noqa: PLC0415 - few requests carry one

    document = read_document(BytesIO(content), MAX_TEXT_CHARS)
    if document is None:
        return _read_text(content)
    return document.text + ("\n[cut here]" if document.is_cut else "")


def _read_text(content: bytes) -> str:
    """Return the text of a file in any encoding that `read_file` knows. Raises ToolError."""
    decoded = decode(content)
    if decoded is None:
        raise ToolError("the file is not a PDF, office file or text")
    text, encoding = decoded
    note = f"[{encoding.note}]\n" if encoding.note and not encoding.mark else ""
    return note + (text if len(text) <= MAX_TEXT_CHARS else f"{text[:MAX_TEXT_CHARS]}\n[cut here]")


def _text_or_empty(value: object) -> str:
    return value if isinstance(value, str) else ""
