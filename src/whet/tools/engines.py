"""Search the web with the configured engine: SearXNG, Brave, Tavily, Exa or Google.

Each search sends one request, to the engine's own address or the configured one. Redirects are not
followed, so a key is sent nowhere else. Results are untrusted. Keys are loaded elsewhere.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal
from urllib.parse import urlsplit

import httpx2
import msgspec

from whet.contract.errors import ToolError, ToolTimeout
from whet.contract.texts import from_foreign_json, short
from whet.log import mask
from whet.tools.page_text import strip_invisible

EngineName = Literal["searxng", "brave", "tavily", "exa", "google"]
_LARGEST_BYTES = 2_000_000
_SNIPPET_CHARS = 400
_TITLE_CHARS = 200
_TAGS = re.compile(r"<[^>]{0,200}>")
_ENTITIES = {
    "&amp;": "&",
    "&lt;": "<",
    "&gt;": ">",
    "&quot;": '"',
    "&#x27;": "'",
    "&#39;": "'",
    "&nbsp;": " ",
}


class SearchEngine(msgspec.Struct, frozen=True):
    """The engine, its address and its key. `extra` is Google's search engine id, `results` the maximum per
    page."""

    name: EngineName
    base_url: str
    key: str = ""
    extra: str = ""
    results: int = 8
    timeout_s: float = 20.0


class SearchHit(msgspec.Struct, frozen=True):
    """One search result."""

    title: str
    url: str
    snippet: str
    date: str = ""


class _Wire(msgspec.Struct, frozen=True):
    method: str
    path: str
    params: dict[str, str | int]
    headers: dict[str, str]
    body: dict[str, Any] | None
    read: Callable[[bytes], Sequence[SearchHit]]


class _Hit(msgspec.Struct, frozen=True):
    """A result with the fields of any engine."""

    title: str | None = ""
    url: str | None = ""
    link: str | None = ""
    content: str | None = ""
    description: str | None = ""
    snippet: str | None = ""
    text: str | None = ""
    highlights: list[str] | None = None
    age: str | None = ""
    publishedDate: str | None = ""
    published_date: str | None = ""


class _Results(msgspec.Struct, frozen=True):
    results: list[_Hit] = []
    items: list[_Hit] = []


class _Brave(msgspec.Struct, frozen=True):
    web: _Results | None = None


async def search(engine: SearchEngine, query: str, count: int, page: int) -> list[SearchHit]:
    """Return the results of a page (from 1). Raises ToolError, ToolTimeout."""
    wire = _WIRES[engine.name](engine, query, count, page)
    host = urlsplit(engine.base_url).hostname or engine.base_url
    try:
        raw = await _send_request(engine, wire, host)
    except httpx2.TimeoutException as error:
        raise ToolTimeout(f"{host} did not answer in time", hint="try again later") from error
    except (httpx2.HTTPError, httpx2.InvalidURL) as error:
        raise ToolError(f"{host} can't be reached: {mask(str(error)) or type(error).__name__}") from error
    try:
        hits = wire.read(raw)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        hint = "json must stand under search.formats in its settings.yml" if engine.name == "searxng" else ""
        raise ToolError(f"{host} did not answer with {engine.name}'s JSON", hint=hint) from error
    return [hit for hit in hits if hit.url.startswith(("http://", "https://"))][:count]


async def _send_request(engine: SearchEngine, wire: _Wire, host: str) -> bytes:
    url = engine.base_url.rstrip("/") + wire.path
    headers = {"Accept": "application/json", **wire.headers}
    async with (
        httpx2.AsyncClient(timeout=engine.timeout_s, follow_redirects=False) as client,
        client.stream(
            wire.method, url, params=wire.params or None, headers=headers, json=wire.body
        ) as answer,
    ):
        body = bytearray()
        async for piece in answer.aiter_bytes():
            body += piece
            if len(body) > _LARGEST_BYTES:
                raise ToolError(f"{host} answered with more than {_LARGEST_BYTES:,} bytes")
        if answer.status_code != 200:
            raise _status_error(host, answer.status_code, bytes(body))
        return bytes(body)


def _status_error(host: str, status: int, body: bytes) -> ToolError:
    detail = " ".join(_TAGS.sub(" ", body[:2_000].decode("utf-8", "replace")).split())[:200]
    hint = {
        401: "the engine's key is wrong: search.api_key_env",
        403: "the engine refused: its key, or for SearXNG search.formats without json",
        429: "the engine's limit is reached; try again later",
    }.get(status, "")
    return ToolError(f"{host} answered {status}: {mask(detail)}", hint=hint)


def _searxng(engine: SearchEngine, query: str, count: int, page: int) -> _Wire:
    params: dict[str, str | int] = {"q": query, "format": "json", "pageno": page}
    headers = {"Authorization": f"Bearer {engine.key}"} if engine.key else {}
    return _Wire("GET", "/search", params, headers, None, _parse_plain)


def _brave(engine: SearchEngine, query: str, count: int, page: int) -> _Wire:
    params: dict[str, str | int] = {"q": query, "count": min(count, 20), "offset": page - 1}
    return _Wire("GET", "/res/v1/web/search", params, {"X-Subscription-Token": engine.key}, None, _parse_web)


def _tavily(engine: SearchEngine, query: str, count: int, page: int) -> _Wire:
    body = {"query": query, "max_results": min(count * page, 20)}
    later = _parse_after(count * (page - 1))
    return _Wire("POST", "/search", {}, {"Authorization": f"Bearer {engine.key}"}, body, later)


def _exa(engine: SearchEngine, query: str, count: int, page: int) -> _Wire:
    body = {
        "query": query,
        "numResults": min(count * page, 100),
        "contents": {"text": {"maxCharacters": _SNIPPET_CHARS}},
    }
    return _Wire("POST", "/search", {}, {"x-api-key": engine.key}, body, _parse_after(count * (page - 1)))


def _google(engine: SearchEngine, query: str, count: int, page: int) -> _Wire:
    number = min(count, 10)
    params: dict[str, str | int] = {
        "cx": engine.extra,
        "q": query,
        "num": number,
        "start": 1 + number * (page - 1),
    }
    return _Wire("GET", "/customsearch/v1", params, {"X-Goog-Api-Key": engine.key}, None, _parse_plain)


_WIRES: Mapping[EngineName, Callable[[SearchEngine, str, int, int], _Wire]] = {
    "searxng": _searxng,
    "brave": _brave,
    "tavily": _tavily,
    "exa": _exa,
    "google": _google,
}


def _parse_plain(raw: bytes) -> list[SearchHit]:
    answer = from_foreign_json(raw, _Results)
    return [_hit(hit) for hit in (*answer.results, *answer.items)]


def _parse_web(raw: bytes) -> list[SearchHit]:
    answer = from_foreign_json(raw, _Brave).web
    return [_hit(hit) for hit in answer.results] if answer is not None else []


def _parse_after(first: int) -> Callable[[bytes], list[SearchHit]]:
    """Return a parser that skips the results of earlier pages, for engines without pages."""
    return lambda raw: _parse_plain(raw)[first:]


def _hit(hit: _Hit) -> SearchHit:
    lights = " … ".join(hit.highlights or ())
    snippet = hit.content or hit.description or hit.snippet or lights or hit.text or ""
    date = hit.age or hit.publishedDate or hit.published_date or ""
    return SearchHit(
        _clean(hit.title or "", _TITLE_CHARS),
        "".join((hit.url or hit.link or "").split()),
        _clean(snippet, _SNIPPET_CHARS),
        _clean(date, 40),
    )


def _clean(text: str, limit: int) -> str:
    """Return text on one line, without tags and invisible characters."""
    text = _TAGS.sub("", text)
    for name, sign in _ENTITIES.items():
        text = text.replace(name, sign)
    return short(strip_invisible(text), limit)
