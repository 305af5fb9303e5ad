"""Every error that Whet raises on purpose, and who acts on it.

    WhetError                       .message for a person, .hint says what to do; neither holds a secret
    ├─ ConfigError                  the user fixes a setting
    ├─ BudgetReached                wait for the next day, or the user raises the limit
    ├─ NotFound                     the user named something that does not exist
    ├─ ProviderError                .provider .model .status .request_id .retryable
    │  ├─ AuthRejected              the user fixes the key (401, 403)
    │  ├─ QuotaExhausted            the user pays or raises a limit (402, insufficient_quota)
    │  ├─ RateLimited               wait: .retry_after_s (429)
    │  ├─ Unavailable               wait or fall back: 5xx, 408, network, time-out, cut stream
    │  ├─ ContextOverflow           the context engine makes a smaller view: .limit_tokens
    │  ├─ ModelRefused              the person rephrases: the vendor's safety system declined
    │  ├─ BadRequest                us: the vendor rejected the request's shape (400, 404, 413, 422)
    │  │  └─ UnknownModel           the user names another model
    │  └─ WireError                 the server said something that we can't read: .excerpt
    ├─ StoreError
    │  ├─ StoreBusy                 wait: another process holds the session or the file
    │  │  └─ QueueFull              wait: too many turns of this person wait for a worker
    │  ├─ StoreFull                 the user frees disk space
    │  ├─ StoreCorrupt              the user restores a backup; `whet doctor` shows the way
    │  ├─ StoreUnwritable           the user fixes permissions
    │  └─ SchemaTooNew              the user upgrades Whet
    ├─ PluginError                  that plugin is disabled: .plugin .hook
    └─ ToolError                    the model reads it as an error result and goes on
       ├─ BadInput                  arguments that don't fit the schema
       ├─ ToolTimeout               the tool passed its time limit
       └─ ToolDenied                the gate said no

Constructors have no side effects. An expected ending of a turn (answered, budget, cancelled, refused)
is a value, `TurnEnd.reason`, and never an exception.
"""

from __future__ import annotations


class WhetError(Exception):
    """Anything Whet reports on purpose: one line for a person, and a hint that says what to do."""

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class ConfigError(WhetError):
    """A setting is wrong. The message names the key, the source of its value, and the allowed values."""


class BudgetReached(WhetError):
    """The daily spending limit has no room for the next call. The message says how much was spent."""


class NotFound(WhetError):
    """The person named a session, model or file that does not exist; the hint shows how to list them."""


class ProviderError(WhetError):
    """A request to a model server failed. `retryable`: the same request may succeed later."""

    retryable = False

    def __init__(
        self,
        message: str,
        *,
        hint: str = "",
        provider: str = "",
        model: str = "",
        status: int | None = None,
        request_id: str = "",
    ) -> None:
        super().__init__(message, hint=hint)
        self.provider = provider
        self.model = model
        self.status = status
        self.request_id = request_id
        self.code = ""
        """The server's own error code, or an empty string if it sent none."""
        self.detail = ""
        """All texts in the server's error object, one a line."""
        self.part = ""
        """The part of the request that the server refused, as JSON; empty if it named none."""
        self.tool = ""
        """The tool whose schema the server refused; empty if it named none."""
        self.was_sent: bool = False
        """Whether the server got the request and may charge for it, though no whole answer came."""


class AuthRejected(ProviderError):
    """The key is missing, wrong or revoked; another key of the pool may work."""


class QuotaExhausted(ProviderError):
    """The account has no credit left; another key of the pool or the fallback model may work."""


class RateLimited(ProviderError):
    """Too many requests. Wait `retry_after_s` seconds (None if the server did not say)."""

    retryable = True
    retry_after_s: float | None = None


class Unavailable(ProviderError):
    """The server or the network is down: 5xx, 408, DNS, refused, time-out, a stream cut short. The server may
    say when to try again (`retry_after_s`), for example while it loads its model."""

    retryable = True
    retry_after_s: float | None = None


class ContextOverflow(ProviderError):
    """The request is larger than the model's window. `limit_tokens` is None if the server did not say."""

    limit_tokens: int | None = None


class ModelRefused(ProviderError):
    """The vendor's safety system declined to answer; the same request will be declined again."""


class Rambled(ProviderError):
    """The answer did not end, so Whet cut it off. The same model may do so again."""


class BadRequest(ProviderError):
    """The server rejected the request as invalid; sending it again will not help."""


class UnknownModel(BadRequest):
    """The server has no model of this name."""


class WireError(ProviderError):
    """The server answered with something that is not its protocol; `excerpt` holds at most 500 characters."""

    retryable = True
    excerpt: str = ""


class StoreError(WhetError):
    """The session database could not carry out an operation. Nothing half-done is left behind."""


class StoreBusy(StoreError):
    """Another process holds the session or the file's write lock, and did not release it in time."""


class QueueFull(StoreBusy):
    """Too many turns of this person wait for a worker already."""


class ClaimRefused(StoreBusy):
    """A turn can't begin, because another process holds the session or has changed it."""


class StoreFull(StoreError):
    """The disk that holds the database is full."""


class StoreCorrupt(StoreError):
    """The file is not a readable SQLite database."""


class StoreUnwritable(StoreError):
    """The home folder or the database can't be written."""


class SchemaTooNew(StoreError):
    """The database was written by a newer Whet; it is left untouched."""


class PluginError(WhetError):
    """A plugin broke. It is disabled with this reason; everything else continues."""

    def __init__(self, message: str, *, plugin: str, hook: str = "", hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.plugin = plugin
        self.hook = hook


class ToolError(WhetError):
    """A tool could not do its work; the message goes to the model and says what to do instead."""

    kind = "failed"


class BadInput(ToolError):
    """The arguments don't fit the tool's schema. The message names the argument and the expected value."""

    kind = "bad_input"


class ToolTimeout(ToolError):
    """The tool passed its time limit and was stopped."""

    kind = "timeout"


class ToolDenied(ToolError):
    """The gate refused the call; the message says truthfully who or what refused."""

    kind = "denied"
