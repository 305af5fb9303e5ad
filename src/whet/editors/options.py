"""Describe the options of a session to the editor: its mode and its model.

The mode is reported twice, because newer editors read it from the options, and older ones on its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeAlias, get_args

from acp import RequestError
from acp.schema import (
    ConfigOptionUpdate,
    SessionConfigOptionBoolean,
    SessionConfigOptionSelect,
    SessionConfigSelectOption,
    SessionMode,
    SessionModeState,
)

Mode: TypeAlias = Literal["ask", "plan", "auto", "deny"]
"""How permission requests are handled. ask: the person answers. plan: the agent only reads and makes a plan.
auto: harmless calls are allowed. deny: all are denied."""

MODE, MODEL = "mode", "model"
_MAX_MODELS = 200
_MODES: dict[Mode, tuple[str, str]] = {
    "ask": ("Ask", "Asks before edits, and before commands leave the sandbox."),
    "plan": ("Plan", "Only reads, and makes a plan; another mode approves it."),
    "auto": ("Auto", "Asks before what is dangerous only."),
    "deny": ("Deny", "Does nothing that it would have to ask for."),
}


def mode_of(text: object) -> Mode:
    """Return the mode of that name. Raises RequestError if it is unknown."""
    modes: tuple[Mode, ...] = get_args(Mode)
    for mode in modes:
        if mode == text:
            return mode
    raise RequestError(-32602, f"there is no mode {text}", {"modes": list(modes)})


def list_modes(current: Mode) -> SessionModeState:
    """Return the modes in the protocol's format."""
    modes = [SessionMode(id=id_, name=name, description=summary) for id_, (name, summary) in _MODES.items()]
    return SessionModeState(current_mode_id=current, available_modes=modes)


def list_options(
    mode: Mode, model: str, models: Sequence[str]
) -> list[SessionConfigOptionSelect | SessionConfigOptionBoolean]:
    """Return the mode and the model, each with its choices, in the protocol's format."""
    model_names = list(dict.fromkeys([model, *models]))[:_MAX_MODELS]
    return [
        SessionConfigOptionSelect(
            type="select",
            id=MODE,
            name="Mode",
            description="What is asked about before it is done.",
            category="mode",
            current_value=mode,
            options=[
                SessionConfigSelectOption(value=id_, name=name, description=summary)
                for id_, (name, summary) in _MODES.items()
            ],
        ),
        SessionConfigOptionSelect(
            type="select",
            id=MODEL,
            name="Model",
            description="Which model answers, from the next prompt on.",
            category="model",
            current_value=model,
            options=[SessionConfigSelectOption(value=name, name=name) for name in model_names],
        ),
    ]


def options_update(mode: Mode, model: str, models: Sequence[str]) -> ConfigOptionUpdate:
    """Return an update with the mode and the model, each with its choices."""
    return ConfigOptionUpdate(
        session_update="config_option_update", config_options=list_options(mode, model, models)
    )
