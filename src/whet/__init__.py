"""Whet: an agent that learns its owner's work.

    with whet.Agent() as agent:
        print(agent.run("What is in this folder?").text)

Names are loaded at first use, so `import whet` costs almost nothing. docs/library.md documents them.
"""

from __future__ import annotations

import importlib

TYPE_CHECKING = False  # type checkers assume True; no `typing` import is needed at run time
if TYPE_CHECKING:
    from whet.app.facade import Agent, AsyncAgent
    from whet.app.program_tools import tool
    from whet.contract.errors import (
        AuthRejected,
        BadInput,
        BadRequest,
        ConfigError,
        ContextOverflow,
        ModelRefused,
        NotFound,
        PluginError,
        ProviderError,
        QuotaExhausted,
        RateLimited,
        StoreBusy,
        StoreError,
        ToolError,
        Unavailable,
        WhetError,
        WireError,
    )
    from whet.contract.events import (
        ApprovalAsked,
        ApprovalDecided,
        Compaction,
        ConfirmationAsked,
        EndReason,
        Event,
        Notice,
        ReasoningDelta,
        Retry,
        ReviewFinished,
        ReviewQueued,
        Steered,
        StepFinished,
        StreamRestarted,
        TextDelta,
        ToolFinished,
        ToolProgress,
        ToolStarted,
        TurnEnd,
    )
    from whet.contract.messages import ImagePart, Message, Part, TextPart, ToolCall, Usage
    from whet.contract.protocols import Answer, ApprovalRequest, Person
    from whet.contract.tools import Effect, Tool, ToolContext, ToolOutput, ToolSpec
    from whet.store.lesson_counts import LearningNews
    from whet.warm.library import build_warm, delete_warm, list_warm, load_warm

__version__ = "0.4.0"
__all__ = [
    "Agent",
    "Answer",
    "ApprovalAsked",
    "ApprovalDecided",
    "ApprovalRequest",
    "AsyncAgent",
    "AuthRejected",
    "BadInput",
    "BadRequest",
    "Compaction",
    "ConfigError",
    "ConfirmationAsked",
    "ContextOverflow",
    "Effect",
    "EndReason",
    "Event",
    "ImagePart",
    "LearningNews",
    "Message",
    "ModelRefused",
    "NotFound",
    "Notice",
    "Part",
    "Person",
    "PluginError",
    "ProviderError",
    "QuotaExhausted",
    "RateLimited",
    "ReasoningDelta",
    "Retry",
    "ReviewFinished",
    "ReviewQueued",
    "Steered",
    "StepFinished",
    "StoreBusy",
    "StoreError",
    "StreamRestarted",
    "TextDelta",
    "TextPart",
    "Tool",
    "ToolCall",
    "ToolContext",
    "ToolError",
    "ToolFinished",
    "ToolOutput",
    "ToolProgress",
    "ToolSpec",
    "ToolStarted",
    "TurnEnd",
    "Unavailable",
    "Usage",
    "WhetError",
    "WireError",
    "__version__",
    "build_warm",
    "delete_warm",
    "list_warm",
    "load_warm",
    "tool",
]
_MODULES = (
    "whet.contract.errors",
    "whet.contract.messages",
    "whet.contract.events",
    "whet.contract.tools",
    "whet.contract.protocols",
    "whet.app.program_tools",
    "whet.warm.library",
    "whet.app.facade",
    "whet.store.lesson_counts",
)


def __getattr__(name: str) -> object:
    for module in _MODULES if name in __all__ else ():
        value = getattr(importlib.import_module(module), name, None)
        if value is not None:
            return value
    raise AttributeError(f"module 'whet' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
