"""Get an OpenRouter key by a login in the browser (OAuth with PKCE) and store it like any other key.

OpenRouter creates the key for this program, and the person can limit or revoke it there. No client is
registered; the PKCE verifier leaves this process only in the exchange.
"""

from __future__ import annotations

import base64
import hashlib
import secrets
from collections.abc import Callable
from urllib.parse import urlencode

import msgspec

from whet import log
from whet.config.paths import Home
from whet.config.secrets import store_secret
from whet.contract.texts import from_json
from whet.http1.client import HttpClient, Limits, Request
from whet.http1.failure import HttpFailed
from whet.mcp.callback import CallbackListener, LoginFailed
from whet.visible import visible

SITE = "https://openrouter.ai"
VARIABLE = "OPENROUTER_API_KEY"
_WAIT_S = 300.0
_MAX_BYTES = 100_000


class _KeyReply(msgspec.Struct, frozen=True):
    key: str


async def log_in(
    home: Home, show: Callable[[str], None], *, site: str = SITE, wait_s: float = _WAIT_S
) -> str:
    """Let the person log in at the address passed to `show`, store the key, and return the name of its
    variable.

    The key is stored in the system's keyring, or in .env if there is none. Raises LoginFailed without storing
    anything.
    """
    verifier, state = secrets.token_urlsafe(48), secrets.token_urlsafe(24)
    challenge = base64.urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).rstrip(b"=").decode()
    log.protect([verifier])
    async with CallbackListener(state, site, needs_issuer=False) as listener:
        # The protocol has no field for the state, so it is a parameter of our own callback URL.
        callback_url = f"{listener.address.replace('127.0.0.1', 'localhost')}?{urlencode({'state': state})}"
        query = {"callback_url": callback_url, "code_challenge": challenge, "code_challenge_method": "S256"}
        show(f"{site}/auth?{urlencode(query)}")
        code = await listener.wait_for_code(wait_s)
    key = await _exchange(site, {"code": code, "code_verifier": verifier, "code_challenge_method": "S256"})
    store_secret(home, VARIABLE, key)
    return VARIABLE


async def _exchange(site: str, payload: dict[str, str]) -> str:
    """Exchange the code of a login for a key. Raises LoginFailed."""
    client = HttpClient(Limits(silence_s=30.0))
    headers = {"content-type": "application/json", "accept": "application/json", "user-agent": "whet"}
    request = Request("POST", f"{site}/api/v1/auth/keys", headers, msgspec.json.encode(payload))
    try:
        async with client.exchange(request) as answer:
            body = await answer.read(_MAX_BYTES)
            if answer.status != 200:
                text = visible(body[:200].decode("utf-8", "replace"), 200)
                raise LoginFailed(
                    f"OpenRouter gave no key (HTTP {answer.status}): {text}", hint="log in again"
                )
        key = from_json(body, _KeyReply).key
        log.protect([key])
    except HttpFailed as error:
        raise LoginFailed(f"OpenRouter could not be reached: {error}", hint="check the network") from error
    except (msgspec.DecodeError, UnicodeError) as error:
        raise LoginFailed("OpenRouter's answer holds no key", hint="log in again") from error
    finally:
        await client.aclose()
    if not key.strip() or not key.isascii() or not key.isprintable():
        raise LoginFailed("OpenRouter's answer holds no key", hint="log in again")
    return key
