"""`/v1/embeddings`: forward requests to the server in the settings, with its own key.

Whet computes no embeddings itself. Front ends that search documents request them at the same address as
answers, and would otherwise need a second address.
"""

from __future__ import annotations

from contextlib import aclosing
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from whet.app.model_links.models import Models
from whet.config.key_hosts import server_key_names
from whet.config.schema import EmbeddingSettings
from whet.contract.channels import SendFailed
from whet.serve.auth import ApiCaller
from whet.serve.wire import BODY_LIMIT_BYTES, ApiError
from whet.vendors.http import VendorAnswer, VendorHttp

_NOT_CONFIGURED = (
    "no server for embeddings is set: whet config set embeddings.base_url URL (and embeddings.model)"
)


class _Refusal(msgspec.Struct):
    error: dict[str, Any] | str | None = None


class Embeddings:
    """Forwards requests for embeddings. Their cost is unknown and counts against no limit."""

    def __init__(self, settings: EmbeddingSettings, models: Models) -> None:
        self._settings = settings
        self._models = models

    async def create(self, request: Request, caller: ApiCaller, body: dict[str, Any]) -> Response:
        """Return the vectors of texts, from the configured server."""
        settings = self._settings
        if not settings.base_url:
            raise ApiError(400, _NOT_CONFIGURED, code="embeddings_not_configured")
        key = self._models.find_key(server_key_names(settings))
        headers = {"authorization": f"Bearer {key}"} if key else {}
        content = msgspec.json.encode({**body, **({"model": settings.model} if settings.model else {})})
        http = VendorHttp("embeddings.base_url", settings.base_url, headers, max_bytes=BODY_LIMIT_BYTES)
        try:
            async with aclosing(http):
                answer = await http.raw(
                    "POST", "/embeddings", content, {"content-type": "application/json"}, settings.timeout_s
                )
        except SendFailed as failure:
            raise ApiError(502, failure.reason, code="embeddings_failed", again=True) from failure
        if answer.status != 200:
            raise _failure(answer)
        return Response(answer.body, media_type="application/json")


def _failure(answer: VendorAnswer) -> ApiError:
    """Return the error for a refusal by the server. If it refused our key, the client's key is not blamed."""
    refusal = answer.read(_Refusal) or _Refusal()
    words = refusal.error.get("message") if isinstance(refusal.error, dict) else refusal.error
    is_ours = answer.status in (401, 403) or answer.status >= 500
    text = f"embeddings.base_url answered {answer.status}: {str(words or 'no reason given')[:300]}"
    return ApiError(
        502 if is_ours else answer.status, text, code="embeddings_failed", again=answer.status >= 500
    )
