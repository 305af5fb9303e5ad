"""Serve scripts, styles and icons under names that contain their hash, so that browsers may cache them for
ever. The files are read once, so no part of a request reaches the file system."""

from __future__ import annotations

import hashlib
from importlib.resources import files
from importlib.resources.abc import Traversable

import msgspec
from starlette.requests import Request
from starlette.responses import Response

_TYPES = {
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
    "png": "image/png",
    "webmanifest": "application/manifest+json",
}


class Asset(msgspec.Struct, frozen=True):
    """One file: its content and its type."""

    body: bytes
    content_type: str


_SHARED = files("whet.web") / "static"
_PATH = "/static"


class Assets:
    """The files of a site's folder and the files that all sites share, below `/static`."""

    def __init__(self, folder: Traversable) -> None:
        self._by_name: dict[str, Asset] = {}
        self._hashed_urls: dict[str, str] = {}
        for file in sorted((*_SHARED.iterdir(), *folder.iterdir()), key=lambda entry: entry.name):
            stem, _, kind = file.name.rpartition(".")
            if kind not in _TYPES:
                continue
            body = file.read_bytes()
            hashed_name = f"{stem}.{hashlib.sha256(body).hexdigest()[:16]}.{kind}"
            self._by_name[hashed_name] = Asset(body, _TYPES[kind])
            self._hashed_urls[file.name] = f"{_PATH}/{hashed_name}"

    def url(self, name: str) -> str:
        """Return the URL of a file by its plain name. Raises KeyError if it does not exist."""
        return self._hashed_urls[name]

    def read(self, name: str) -> bytes:
        """Return the content of a file by its plain name. Raises KeyError if it does not exist."""
        return self._by_name[self._hashed_urls[name].rpartition("/")[2]].body

    async def serve(self, request: Request) -> Response:
        """Answer GET {path}/{name}."""
        asset = self._by_name.get(request.path_params["name"])
        if asset is None:
            return Response("not found", 404, media_type="text/plain")
        return Response(
            asset.body,
            headers={
                "content-type": asset.content_type,
                "cache-control": "public, max-age=31536000, immutable",
            },
        )
