"""Log in with an identity provider (OpenID Connect): identify the person and their groups.

Authorization code with PKCE (S256), state and nonce. The id_token must be signed with one of the
provider's keys (RS256, PS256, ES256), which its discovery document names. The settings file limits the trust
in the provider: it names the claim that holds the person's name, and the groups that may decide or read.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import re
import secrets
import time
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import urlencode, urlsplit

import httpx2
import msgspec

from whet.config.paths import read_small
from whet.contract.errors import ConfigError, WhetError
from whet.contract.texts import from_json, from_values
from whet.internet import is_public
from whet_confirm.records import Role

if TYPE_CHECKING:
    from jwt import PyJWK

_ALGORITHMS = ["RS256", "PS256", "ES256"]
_TIMEOUT_S = 10.0
_LEEWAY_S = 60
_MAX_BYTES = 256 * 1024
_CACHE_S = 3600.0
_NUMERIC = re.compile(r"(?:(?:0x[0-9a-f]*|\d+)\.?)+|.*:.*")
_HINT = (
    'it takes issuer = "https://...", client_id = "..." and approve_groups = ["..."];'
    " optional are label, name_claim, groups_claim, audit_groups, session_hours"
)
_LOCAL = ("localhost", "127.0.0.1", "::1")


class SignInRefused(WhetError):
    """Raised if the provider fails or its answer permits no login."""


class OidcSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The file confirm/oidc.toml.

    `secret_env` names the variable with the client's secret. A client without one is public. A person in none
    of the groups named here is refused.
    """

    issuer: str
    client_id: str
    secret_env: str = "CONFIRMATION_OIDC_SECRET"
    label: str = "your company's login"
    name_claim: str = "preferred_username"
    groups_claim: str = "groups"
    approve_groups: tuple[str, ...] = ()
    audit_groups: tuple[str, ...] = ()
    scopes: tuple[str, ...] = ("openid", "profile", "email")
    session_hours: float = 12.0


class OidcPerson(msgspec.Struct, frozen=True):
    """The person who logged in, as the provider describes them."""

    issuer: str
    subject: str
    name: str
    role: Role
    groups: tuple[str, ...]


class _Endpoints(msgspec.Struct, frozen=True):
    issuer: str
    authorization_endpoint: str
    token_endpoint: str
    jwks_uri: str


class _Tokens(msgspec.Struct, frozen=True):
    id_token: str


class SignInAttempt(msgspec.Struct, frozen=True):
    """The state that is stored while a person is at the provider."""

    state: str
    nonce: str
    verifier: str
    url: str


def read_oidc(path: Path, is_named: bool = False) -> OidcSettings | None:
    """Read the settings, or return None if there is no file.

    Raises ConfigError if the file is invalid, or if it is missing and the user named it (`is_named`).
    """
    text = read_small(path)
    if text is None:
        if is_named:
            raise ConfigError(f"there is no file {path}", hint=_HINT)
        return None
    try:
        settings = from_values(tomllib.loads(text), OidcSettings)
    except (tomllib.TOMLDecodeError, msgspec.ValidationError) as error:
        raise ConfigError(f"{path}: {error}", hint=_HINT) from error
    if not is_allowed_address(settings.issuer):
        raise ConfigError(f"{path}: issuer must be an https address", hint=settings.issuer)
    if not settings.approve_groups and not settings.audit_groups:
        raise ConfigError(f"{path}: nobody may come in", hint='approve_groups = ["release-managers"]')
    if "openid" not in settings.scopes or not 0 < settings.session_hours <= 168:
        raise ConfigError(f"{path}: scopes must have openid, session_hours be at most 168")
    import_jwt()
    return settings


def import_jwt() -> None:
    """Import PyJWT. Raises ConfigError if it is not installed."""
    try:
        import jwt as jwt  # noqa: PLC0415 a third of a second, and an extra
    except ImportError as error:
        from whet.extras import install_command  # noqa: PLC0415 - few processes lack an extra

        raise ConfigError("signing in with a provider needs PyJWT", hint=install_command("oidc")) from error


class OidcProvider:
    """One provider. Its discovery document and keys are cached for an hour; unknown keys are refetched."""

    def __init__(self, settings: OidcSettings, variables: Mapping[str, str], page_url: str) -> None:
        self.settings = settings
        self._secret = variables.get(settings.secret_env, "")
        self._redirect = f"{page_url}/oidc/callback"
        self._discovered: tuple[float, _Endpoints] | None = None
        self._keys: dict[str, PyJWK] = {}

    async def begin(self) -> SignInAttempt:
        """Return the URL to send a person to, with the values that must come back. Raises SignInRefused."""
        endpoints = await self._discover()
        state, nonce, verifier = (secrets.token_urlsafe(32) for _ in range(3))
        challenge = base64.urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).rstrip(b"=")
        parameters = {
            "response_type": "code",
            "client_id": self.settings.client_id,
            "redirect_uri": self._redirect,
            "scope": " ".join(self.settings.scopes),
            "state": state,
            "nonce": nonce,
            "code_challenge": challenge.decode(),
            "code_challenge_method": "S256",
        }
        joint = "&" if urlsplit(endpoints.authorization_endpoint).query else "?"
        return SignInAttempt(
            state, nonce, verifier, f"{endpoints.authorization_endpoint}{joint}{urlencode(parameters)}"
        )

    async def finish(self, attempt: SignInAttempt, code: str) -> OidcPerson:
        """Exchange `code` and return the person who logged in. Raises SignInRefused."""
        endpoints = await self._discover()
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": self._redirect,
            "client_id": self.settings.client_id,
            "code_verifier": attempt.verifier,
        }
        auth = httpx2.BasicAuth(self.settings.client_id, self._secret) if self._secret else None
        body = await self._call("POST", endpoints.token_endpoint, data=form, auth=auth)
        claims = await self._read_claims(endpoints, _decode(body, _Tokens).id_token)
        if not secrets.compare_digest(
            str(claims.get("nonce", "")).encode("utf-8", "replace"), attempt.nonce.encode()
        ):
            raise SignInRefused("the provider's answer is not for this sign-in")
        return self._build_person(claims)

    def _build_person(self, claims: dict[str, Any]) -> OidcPerson:
        settings = self.settings
        name = claims.get(settings.name_claim)
        if not isinstance(name, str) or not name:
            raise SignInRefused(f"the provider gave no {settings.name_claim}")
        if settings.name_claim == "email" and claims.get("email_verified") is not True:
            raise SignInRefused("the provider has not verified this e-mail address")
        groups = tuple(_strings_in(claims.get(settings.groups_claim)))
        groups_by_role: dict[Role, tuple[str, ...]] = {
            "approve": settings.approve_groups,
            "audit": settings.audit_groups,
        }
        for role, role_groups in groups_by_role.items():
            if set(role_groups) & set(groups):
                return OidcPerson(settings.issuer, str(claims["sub"]), name, role, groups)
        raise SignInRefused(f"{name[:60]} is in no group that may come in here")

    async def _read_claims(self, endpoints: _Endpoints, token: str) -> dict[str, Any]:
        # The import takes a third of a second and is needed only for these logins.
        await asyncio.to_thread(import_jwt)
        import jwt  # noqa: PLC0415

        try:
            head = jwt.get_unverified_header(token)
            if head.get("alg") not in _ALGORITHMS:
                raise SignInRefused("the provider signs in a way that is not taken here")
            key = await self._find_key(endpoints, str(head.get("kid", "")))
            claims: dict[str, Any] = jwt.decode(
                token,
                key,
                algorithms=_ALGORITHMS,
                audience=self.settings.client_id,
                issuer=self.settings.issuer,
                leeway=_LEEWAY_S,
                options={"require": ["exp", "iat", "iss", "aud", "sub"]},
            )
        except jwt.PyJWTError as error:
            raise SignInRefused(f"the provider's signature or claims don't hold: {error}") from error
        others = [client for client in _strings_in(claims["aud"]) if client != self.settings.client_id]
        if others and claims.get("azp") != self.settings.client_id:
            raise SignInRefused("the provider's answer is for somebody else, too")
        return claims

    async def _find_key(self, endpoints: _Endpoints, kid: str) -> PyJWK:
        if kid not in self._keys:
            import jwt  # noqa: PLC0415

            raw = await self._call("GET", endpoints.jwks_uri)
            try:
                keys = jwt.PyJWKSet.from_json(raw.decode("utf-8", "replace")).keys
            except (ValueError, TypeError, AttributeError, KeyError, RecursionError) as error:
                raise SignInRefused("the provider's keys can't be read") from error
            self._keys = {str(key.key_id or ""): key for key in keys}
        if kid not in self._keys:
            raise SignInRefused("the provider signed with a key that it does not publish")
        return self._keys[kid]

    async def _discover(self) -> _Endpoints:
        now_s = time.monotonic()
        if self._discovered is None or now_s - self._discovered[0] > _CACHE_S:
            issuer = self.settings.issuer
            raw = await self._call("GET", f"{issuer.rstrip('/')}/.well-known/openid-configuration")
            endpoints = _decode(raw, _Endpoints)
            if endpoints.issuer != issuer:
                raise SignInRefused("the provider calls itself by another address than oidc.toml does")
            addresses = (endpoints.authorization_endpoint, endpoints.token_endpoint, endpoints.jwks_uri)
            if not all(is_allowed_address(address, issuer) for address in addresses):
                raise SignInRefused("the provider names an address that is not https, or not public")
            self._discovered, self._keys = (now_s, endpoints), {}
        return self._discovered[1]

    async def _call(self, method: str, url: str, **options: Any) -> bytes:
        # An answer that was not asked to be compressed can't be larger than what comes over the network.
        headers = {"accept": "application/json", "accept-encoding": "identity"}
        try:
            async with (
                asyncio.timeout(_TIMEOUT_S),
                httpx2.AsyncClient(timeout=_TIMEOUT_S, follow_redirects=False) as client,
                client.stream(method, url, headers=headers, **options) as answer,
            ):
                if not answer.is_success:
                    raise SignInRefused(f"the provider answered {answer.status_code}")
                if answer.headers.get("content-encoding", "identity") != "identity":
                    raise SignInRefused("the provider's answer is compressed")
                body = b""
                async for piece in answer.aiter_raw():
                    body += piece
                    if len(body) > _MAX_BYTES:
                        raise SignInRefused(f"the provider's answer is larger than {_MAX_BYTES:,} bytes")
                return body
        except (httpx2.HTTPError, httpx2.InvalidURL, TimeoutError, ValueError) as error:
            raise SignInRefused(f"the provider does not answer: {type(error).__name__}") from error


def _decode(body: bytes, type_: type[Any]) -> Any:
    try:
        return from_json(body, type_)
    except msgspec.DecodeError as error:
        raise SignInRefused(f"the provider's answer can't be read: {error}") from error


def _strings_in(value: object) -> list[str]:
    """Return the strings in a list, or an empty list for any other value."""
    items = cast("list[object]", value) if isinstance(value, list) else []
    return [item for item in items if isinstance(item, str)]


def is_allowed_address(url: str, issuer: str = "") -> bool:
    """Return whether an address is https, or http on this machine.

    If a provider (`issuer`) named it, the address must also be public or on the provider's own host.
    """
    try:
        parts, own = urlsplit(url), urlsplit(issuer)
        host, own_host = parts.hostname or "", own.hostname or ""
    except ValueError:
        return False
    if parts.username is not None or not host:
        return False
    if host in _LOCAL and (not issuer or own_host in _LOCAL):
        return parts.scheme in ("https", "http")
    if not issuer:
        return parts.scheme == "https"
    is_address = _NUMERIC.fullmatch(host.rstrip(".")) is not None
    is_elsewhere = host not in _LOCAL and (not is_address or is_public(host))
    return parts.scheme == "https" and (host == own_host or is_elsewhere)
