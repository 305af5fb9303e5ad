"""The parts that plugins register, as values: commands, engines, skills, providers, notifiers and more.

Each value has a name and the plugin that owns it. The program uses plugins' own objects only through them.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from whet.config.schema import ModelSettings
from whet.contract.context_engine import ContextEngine, EngineOffer
from whet.contract.errors import PluginError
from whet.contract.protocols import Provider
from whet.contract.texts import as_object
from whet.contract.tools import Tool
from whet.plugins.calls import attribute_errors, call, within

NOTIFY_LIMIT_S = 30.0
_BOUND = "_whet_bound"


class Problem(msgspec.Struct, frozen=True):
    """Why a plugin or one of its parts is off, for the person."""

    plugin: str
    reason: str

    @property
    def line(self) -> str:
        """One line for a person."""
        return f"plugin {self.plugin}: {self.reason}"


class PluginCommand(msgspec.Struct, frozen=True):
    """A slash command. `name` has no slash; `args_hint` describes the arguments."""

    plugin: str
    name: str
    handler: Callable[..., object]
    description: str = ""
    args_hint: str = ""

    async def run(self, argument: str) -> str:
        """Run the command with the text after its name and return its output. Raises PluginError."""
        with attribute_errors(self.plugin, f"/{self.name}"):
            output = await call(self.handler, argument)
        return "" if output is None else str(output)


class PluginCliCommand(msgspec.Struct, frozen=True):
    """A command for the shell, `whet plugins run NAME`.

    `setup` adds its arguments to an argparse parser. `handler` receives the parsed arguments.
    """

    plugin: str
    name: str
    help: str
    setup: Callable[[argparse.ArgumentParser], object]
    handler: Callable[[argparse.Namespace], object] | None = None


class Hook(msgspec.Struct, frozen=True):
    """A function that is called at a point of a turn or session."""

    plugin: str
    name: str
    function: Callable[..., object]


class PromptSection(msgspec.Struct, frozen=True):
    """Text for the system prompt of new sessions, or a function of a session's facts that returns it."""

    plugin: str
    id: str
    content: object
    max_chars: int


class PluginSkill(msgspec.Struct, frozen=True):
    """A skill's folder, which holds SKILL.md."""

    plugin: str
    name: str
    folder: Path
    description: str = ""


class PluginProvider(msgspec.Struct, frozen=True):
    """A model provider that `model.provider: NAME` selects."""

    plugin: str
    name: str
    factory: Callable[[ModelSettings, Mapping[str, str]], Provider]
    description: str = ""

    def open(self, model: ModelSettings, secrets: Mapping[str, str]) -> Provider:
        """Make the provider for these settings. `secrets` are the environment and .env.

        Raises PluginError.
        """
        with attribute_errors(self.plugin, f"provider {self.name}"):
            provider = self.factory(model, secrets)
            if not all(callable(getattr(provider, verb, None)) for verb in ("open", "list_models", "aclose")):
                raise TypeError(f"it gave {type(provider).__name__}, no Provider")
            return provider


class PluginNotifier(msgspec.Struct, frozen=True):
    """A way to reach a person outside the terminal."""

    plugin: str
    name: str
    send_text: Callable[..., object]
    description: str = ""

    async def send(self, title: str, text: str) -> None:
        """Notify the person. Raises PluginError if it failed or took longer than 30 s."""
        with attribute_errors(self.plugin, f"notifier {self.name}"):
            await within(NOTIFY_LIMIT_S, call(self.send_text, title, text))


class MemoryProvider(msgspec.Struct, frozen=True):
    """An external memory; `provider` is the plugin's object."""

    plugin: str
    name: str
    provider: object


class Registrations(msgspec.Struct):
    """The parts that one run of a plugin's register() registered."""

    tools: list[Tool] = msgspec.field(default_factory=list[Tool])
    commands: list[PluginCommand] = msgspec.field(default_factory=list[PluginCommand])
    hooks: list[Hook] = msgspec.field(default_factory=list[Hook])
    engines: list[ContextEngine] = msgspec.field(default_factory=list[ContextEngine])
    memory_providers: list[MemoryProvider] = msgspec.field(default_factory=list[MemoryProvider])
    skills: list[PluginSkill] = msgspec.field(default_factory=list[PluginSkill])
    providers: list[PluginProvider] = msgspec.field(default_factory=list[PluginProvider])
    notifiers: list[PluginNotifier] = msgspec.field(default_factory=list[PluginNotifier])
    sections: list[PromptSection] = msgspec.field(default_factory=list[PromptSection])
    tasks: list[asyncio.Task[Any]] = msgspec.field(default_factory=list["asyncio.Task[Any]"])
    overrides: list[str] = msgspec.field(default_factory=list[str])
    cli_commands: list[PluginCliCommand] = msgspec.field(default_factory=list[PluginCliCommand])
    unloads: list[Callable[[], object]] = msgspec.field(default_factory=list[Callable[[], object]])
    problems: list[Problem] = msgspec.field(default_factory=list[Problem])

    def names(self) -> dict[str, list[str]]:
        """Return the names of the parts by kind, without empty kinds."""
        names_by_kind = {
            "engine": [engine.name for engine in self.engines],
            "tools": [tool.name for tool in self.tools] + [n for e in self.engines for n in engine_tools(e)],
            "commands": [f"/{command.name}" for command in self.commands],
            "command lines": [command.name for command in self.cli_commands],
            "hooks": [hook.name for hook in self.hooks],
            "memory providers": [memory.name for memory in self.memory_providers],
            "skills": [skill.name for skill in self.skills],
            "providers": [provider.name for provider in self.providers],
            "notifiers": [notifier.name for notifier in self.notifiers],
            "prompt sections": [section.id for section in self.sections],
        }
        return {kind: names for kind, names in names_by_kind.items() if names}


def engine_tools(engine: ContextEngine) -> list[str]:
    """Return the names of an engine's own tools, or an empty list if it can't report them."""
    with contextlib.suppress(PluginError), attribute_errors(engine.name, "get_tool_schemas"):
        schemas = [as_object(schema) for schema in engine.get_tool_schemas()]
        return [
            str(name) for schema in schemas if (name := as_object(schema.get("function", schema)).get("name"))
        ]
    return []


class BoundParts(msgspec.Struct, frozen=True):
    """The commands and hooks that belong to one engine instance: register() made all of them in one run."""

    plugin: str
    commands: tuple[PluginCommand, ...]
    hooks: tuple[Hook, ...]


def bound_parts(engine: object) -> BoundParts | None:
    """Return the parts that belong to this engine instance, or None if it was not made by `PluginEngine`."""
    bound = getattr(engine, _BOUND, None)
    return bound if isinstance(bound, BoundParts) else None


class PluginEngine(msgspec.Struct, frozen=True):
    """A context engine that `context.engine: NAME` selects. `prototype` is the registered instance."""

    plugin: str
    name: str
    description: str
    prototype: ContextEngine
    register_again: Callable[[], Registrations]
    recorded: Callable[[ContextEngine, int], object]

    @property
    def offer(self) -> EngineOffer:
        """The engine in the form that the host accepts."""
        return EngineOffer(
            self.name,
            self.description,
            self.plugin,
            self.prototype,
            self.make_instance,
            recorded=self.recorded,
        )

    def make_instance(self) -> ContextEngine:
        """Run the plugin's register() again and return the new instance, with its own connections.

        Its commands and hooks are in `bound_parts`. Raises PluginError.
        """
        registered = self.register_again()
        engine = next((engine for engine in registered.engines if engine.name == self.name), None)
        if engine is None or engine is self.prototype:
            outcome = "the same instance again" if engine is not None else f"no engine named {self.name}"
            raise PluginError(
                f"register() gave {outcome}", plugin=self.plugin, hook="register_context_engine"
            )
        # Stored on the instance: its commands refer to it, so a table of ours would keep it alive forever.
        parts = BoundParts(self.plugin, tuple(registered.commands), tuple(registered.hooks))
        setattr(engine, _BOUND, parts)
        return engine
