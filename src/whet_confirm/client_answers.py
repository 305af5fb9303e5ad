"""What a client of the service needs besides its calls: the stored token, and the JSON of an answer."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, cast

import httpx2
import msgspec

from whet.config.paths import find_home, read_small
from whet.contract.errors import ConfigError
from whet_confirm.tickets import Unreachable

URL_HINT = "name the address that `whet confirm serve` printed with --url or WHET_CONFIRM_URL"


def find_token_path(role: str) -> Path:
    """Return the path of a role's stored token, in the home's folder `confirm`."""
    return find_home(os.environ.get("WHET_PROFILE", "")).root / "confirm" / f"{role}.token"


def read_stored_token(path: Path) -> str:
    """Return the token in a file, or an empty string."""
    try:
        return (read_small(path) or "").strip()
    except ConfigError:
        return ""


def take_rotated_token(http: httpx2.AsyncClient, path: Path | None) -> bool:
    """Send the stored token from now on. Returns whether it is another one than before."""
    token = read_stored_token(path) if path is not None else ""
    header = f"Bearer {token}"
    if not token or http.headers.get("authorization") == header:
        return False
    http.headers["authorization"] = header
    return True


def read_content(answer: httpx2.Response, url: str) -> dict[str, Any]:
    """Return the JSON object of an answer, or an empty one for other JSON. Raises Unreachable."""
    try:
        decoded: object = msgspec.json.decode(answer.content)
    except (ValueError, RecursionError) as error:  # msgspec's DecodeError is a ValueError
        if answer.status_code >= 500:
            status = f"{url} answered {answer.status_code}"
            raise Unreachable(status, hint="the service's log says why") from error
        raise not_the_service(url) from error
    return cast("dict[str, Any]", decoded) if isinstance(decoded, dict) else {}


def not_the_service(url: str) -> Unreachable:
    """Return the error for an address where another program answers."""
    return Unreachable(f"{url} is another program, not a confirmation service", hint=URL_HINT)
