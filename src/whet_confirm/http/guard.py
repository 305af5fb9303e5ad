"""Check who may call the API: the request's Host, the browser's origin, and the token.

A browser can be made to send requests to a port on this machine. So a Host that is not ours (DNS
rebinding), a foreign Origin and a cross-site fetch are refused before anything else, also in open mode.
"""

from __future__ import annotations

from functools import lru_cache

from whet.web.guard import HOST
from whet.web.throttle import Throttle
from whet_confirm.http.wire import HttpRefusal, Scope, header
from whet_confirm.peers import Peers
from whet_confirm.records import Caller
from whet_confirm.service import ConfirmService

_LOCAL = frozenset({"localhost", "127.0.0.1", "::1"})
_FAILURES = 10


class ApiGuard:
    """Accepts a request with its caller, or refuses it."""

    def __init__(
        self, service: ConfirmService, *, hosts: frozenset[str], is_open: bool, peers: Peers | None = None
    ) -> None:
        self._peers = peers or {}
        self._service = service
        self._hosts = _LOCAL | hosts
        self._any_host = "*" in hosts
        self.is_open = is_open
        self._throttle = Throttle(_FAILURES)

    def approvers(self) -> list[str]:
        """Return the users of this machine that may decide without a token."""
        return [caller.name for caller in self._peers.values() if caller.role == "approve"]

    def check_origin(self, scope: Scope) -> None:
        """Refuse (403) foreign hosts, origins and cross-site fetches."""
        headers: dict[bytes, bytes] = dict(scope["headers"])  # none of these headers repeats
        host, origin, site = headers.get(b"host", b""), headers.get(b"origin"), headers.get(b"sec-fetch-site")
        if not self._any_host and host and _host_name(host) not in self._hosts:
            raise HttpRefusal(403, "this Host is not served here; name it with --allow-host")
        if origin and origin.partition(b"://")[2] != host:
            raise HttpRefusal(403, "requests from other sites are refused")
        if site and site not in (b"same-origin", b"none"):
            raise HttpRefusal(403, "cross-site requests are refused")

    def find_caller(self, scope: Scope, *, is_from_cache: bool = False) -> Caller | None:
        """Return the caller, or None without a valid token. `is_from_cache` accepts a cached answer."""
        if self.is_open:
            return Caller("anonymous", "admin", is_open=True)
        peer = scope["extensions"].get("whet.peer")
        if peer in self._peers and not header(scope, b"authorization"):
            return self._peers[peer]
        scheme, _, secret = header(scope, b"authorization").partition(" ")
        if scheme.lower() != "bearer" or not secret:
            return None
        return self._service.authenticate(secret.strip(), is_from_cache=is_from_cache)

    def has_looked_up(self, caller: Caller) -> bool:
        """Return whether a caller was found in the database: not a socket's peer, and not in open mode."""
        return bool(caller.token_id) and caller not in self._peers.values()

    async def require_caller(self, scope: Scope, *, is_from_cache: bool = False) -> Caller:
        """Return the caller. Raises HttpRefusal: 401 without a valid token, 429 after too many failures."""
        if (caller := self.find_caller(scope, is_from_cache=is_from_cache)) is not None:
            return caller
        if not header(scope, b"authorization").partition(" ")[0]:
            raise HttpRefusal(401, "a token is needed: Authorization: Bearer ...", headers=_CHALLENGE)
        client = scope.get("client")
        address = client[0] if client else "unknown"
        wait_s = self._throttle.record_failure(address, self._service.timeline.now_s())
        if wait_s:
            raise HttpRefusal(429, "too many failed logins", headers=[retry_after(wait_s)])
        await self._service.record("login_failed", data={"address": address})
        raise HttpRefusal(401, "this token is not valid", headers=_CHALLENGE)


_CHALLENGE = [(b"www-authenticate", b'Bearer realm="whet confirm"')]


def require_role(caller: Caller, *roles: str) -> None:
    """Refuse (403) a caller without one of `roles`."""
    if not caller.may(*roles):
        raise HttpRefusal(403, f"this needs a token of role {' or '.join(roles)}; yours is {caller.role}")


def retry_after(wait_s: float) -> tuple[bytes, bytes]:
    """Return the Retry-After header in whole seconds, at least one."""
    return (b"retry-after", str(max(1, int(wait_s + 0.999))).encode())


@lru_cache(maxsize=64)  # a service has few names
def _host_name(host: bytes) -> str:
    """Return the name in a Host header in lower case, or an empty string if it is invalid."""
    match = HOST.fullmatch(host.decode("latin-1"))
    return (match[1] or match[2]).lower() if match else ""
