"""The source of web pages: its limits, what it returns, and its interface."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol

import msgspec


class WebLimits(msgspec.Struct, frozen=True):
    """Whether private addresses may be reached, the time limit of one fetch, below the tool's 60 s, and the
    name and version that sites are told."""

    allow_private: bool = False
    timeout_s: float = 30.0
    client: str = "whet"


class FetchedPage(msgspec.Struct, frozen=True):
    """One response, read to its end or to the size limit."""

    url: str
    status: int
    content_type: str
    body: bytes
    is_cut: bool


RefuseRedirect = Callable[[str, bool], Awaitable[str]]
"""Returns why the address that a page redirects to may not be fetched, or an empty string. True: it is at the
same host and port."""


class PageSource(Protocol):
    """Fetches pages."""

    async def fetch(self, url: str, refuse: RefuseRedirect | None = None) -> FetchedPage:
        """Get `url`, following redirects that `refuse` allows. Raises BadInput, ToolDenied (address),
        ToolTimeout, ToolError."""
        ...
