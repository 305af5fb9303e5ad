"""Let plugins reclassify a failed model request: whether a retry helps, its cause, its message.

The hook is called after Whet's own classification. The first answer with a reason is used. The settings still
decide how often and how long a request is retried.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from whet.contract.errors import (
    AuthRejected,
    BadRequest,
    ContextOverflow,
    ProviderError,
    QuotaExhausted,
    RateLimited,
    Unavailable,
)
from whet.contract.messages import Message
from whet.contract.protocols import ModelInfo
from whet.contract.texts import as_object
from whet.plugins.hooks import Hooks

HOOK = "transform_api_error_classification"
_CLASSES: dict[str, type[ProviderError]] = {
    "auth": AuthRejected,
    "auth_permanent": AuthRejected,
    "billing": QuotaExhausted,
    "rate_limit": RateLimited,
    "overloaded": Unavailable,
    "server_error": Unavailable,
    "timeout": Unavailable,
    "context_overflow": ContextOverflow,
    "payload_too_large": ContextOverflow,
    "model_not_found": BadRequest,
    "format_error": BadRequest,
}
_OF_KEYS = (AuthRejected, QuotaExhausted, RateLimited)
_CHARS_A_TOKEN = 4


class FailureHooks:
    """Asks the plugins about each failure."""

    def __init__(self, hooks: Hooks) -> None:
        self._hooks = hooks

    async def judge(
        self, info: ModelInfo, error: ProviderError, messages: Sequence[Message]
    ) -> ProviderError:
        """Return the error as reclassified by plugins, or the original error if no plugin changes it."""
        answers = await self._hooks.call_all(
            HOOK,
            provider=info.provider,
            model=info.model,
            status_code=error.status,
            error_type=type(error).__name__,
            error_code=error.code or None,
            error_message=error.message,
            error_body={"error": {"message": error.message, "code": error.code or None}},
            error=error,
            approx_tokens=sum(len(message.text) for message in messages) // _CHARS_A_TOKEN,
            context_length=info.window_tokens,
            num_messages=len(messages),
        )
        for answer in map(as_object, answers):
            if isinstance(answer.get("reason"), str) and answer["reason"]:
                return _reclassify(error, answer)
        return error


def _reclassify(error: ProviderError, answer: dict[str, Any]) -> ProviderError:
    kind = _error_class(type(error), answer)
    new_error = error if kind is type(error) else kind(error.message, hint=error.hint)
    new_error.provider, new_error.model, new_error.status = error.provider, error.model, error.status
    new_error.request_id, new_error.code = error.request_id, error.code
    if isinstance(new_error, Unavailable | RateLimited) and isinstance(error, Unavailable | RateLimited):
        new_error.retry_after_s = error.retry_after_s
    if isinstance(answer.get("message"), str) and answer["message"]:
        new_error.message = f"{error.provider}: {answer['message']}"
    if isinstance(answer.get("retryable"), bool):
        new_error.retryable = answer["retryable"]
    return new_error


def _error_class(kind: type[ProviderError], answer: dict[str, Any]) -> type[ProviderError]:
    """Return the error class for an answer: by its reason, then by the reaction that it asks for."""
    error_class = _CLASSES.get(answer["reason"], kind)
    if answer.get("should_compress") is True:
        return ContextOverflow
    if answer.get("should_rotate_credential") is True and not issubclass(error_class, _OF_KEYS):
        return RateLimited
    if answer.get("should_fallback") is True and not issubclass(error_class, (*_OF_KEYS, Unavailable)):
        return Unavailable
    if answer.get("retryable") is True and not issubclass(error_class, (RateLimited, Unavailable)):
        return Unavailable
    return error_class
